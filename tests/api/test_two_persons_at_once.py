"""Many who decide at once under the rule of two: exactly two different persons approve, or one denies."""

import asyncio
from collections import Counter
from typing import Any

import asyncpg
import pytest

from app.policy import ApprovalKind, ApproverRule
from app.ports.tenancy import OperatorStore
from tests.api.harness import Service
from tests.api.questions import ask, decide, read, state_of, told
from tests.api.terms import add_people, set_terms
from tests.conftest import DatabaseUrls
from tests.store.support import query, wait_for_rows

TWO = ApproverRule(approvals=2)
SOMEBODY_WAITS = "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"


@pytest.fixture
async def people(service: Service, admin: OperatorStore) -> list[str]:
    """Keys of twenty different persons, in a tenant in which two have to approve."""
    await set_terms(admin, service, approvers=[TWO])
    return await add_people(admin, service, 20)


async def asked(service: Service, **about: Any) -> str:
    return await ask(service, await service.submit(), **about)


async def changes(urls: DatabaseUrls, approval_id: str) -> list[str]:
    statement = "SELECT status FROM approval_changes WHERE approval_id = $1 ORDER BY xid, change_id"
    return [row["status"] for row in await query(urls.superuser_url, statement, approval_id)]


async def test_of_twenty_persons_at_once_two_approve_and_the_others_are_too_late(
    service: Service, people: list[str], api_urls: DatabaseUrls
) -> None:
    run_id = await service.submit()
    approval_id = await ask(service, run_id)
    answers = await asyncio.gather(*(decide(service, approval_id, by=key) for key in people))
    approval = await read(service, approval_id)
    assert Counter(answer.status_code for answer in answers) == {202: 1, 200: 1, 409: 18}
    assert len(set(approval["approved_by"])) == 2
    assert approval["decision"]["decided_by"] == approval["approved_by"][1]
    assert await changes(api_urls, approval_id) == ["pending", "approved"]
    assert await state_of(service, run_id) == "queued"


async def test_one_person_twenty_times_at_once_approves_nothing(
    service: Service, people: list[str], api_urls: DatabaseUrls
) -> None:
    run_id = await service.submit()
    approval_id = await ask(service, run_id)
    answers = await asyncio.gather(*(decide(service, approval_id, by=people[0]) for _ in range(20)))
    approval = await read(service, approval_id)
    assert Counter(answer.status_code for answer in answers) == {202: 20}
    assert (approval["status"], approval["approved_by"]) == ("pending", ["person 0"])
    assert await changes(api_urls, approval_id) == ["pending"]
    assert await state_of(service, run_id) == "suspended"


async def test_two_persons_ten_times_each_approve_once(service: Service, people: list[str]) -> None:
    approval_id = await asked(service)
    answers = await asyncio.gather(*(decide(service, approval_id, by=people[n % 2]) for n in range(20)))
    approval = await read(service, approval_id)
    assert set(approval["approved_by"]) == {"person 0", "person 1"}
    assert {answer.status_code for answer in answers} == {202, 200}
    assert all(
        answer.json()["approved_by"] == approval["approved_by"][:1] for answer in answers if answer.status_code == 202
    )


async def test_of_ten_who_approve_and_ten_who_deny_two_or_one_decide(
    service: Service, people: list[str], api_urls: DatabaseUrls
) -> None:
    approval_id = await asked(service)
    words = ("approve", "deny")
    answers = await asyncio.gather(
        *(decide(service, approval_id, words[n % 2], by=key) for n, key in enumerate(people))
    )
    approval = await read(service, approval_id)
    counts = Counter(answer.status_code for answer in answers)
    settled = {
        "approved": (len(approval["approved_by"]), counts[202]) == (2, 1),
        "denied": (len(approval["approved_by"]), counts[202]) in ((0, 0), (1, 1)),
    }
    assert settled[approval["status"]]
    assert counts[200] == 1
    assert await changes(api_urls, approval_id) == ["pending", approval["status"]]


async def test_a_denial_that_waits_behind_the_first_approval_decides(
    service: Service, people: list[str], api_urls: DatabaseUrls
) -> None:
    run_id = await service.submit()
    approval_id = await ask(service, run_id)
    async with asyncio.timeout(30):
        holder = await asyncpg.connect(api_urls.superuser_url)
        await holder.execute("BEGIN")
        await holder.execute("SELECT FROM runs WHERE run_id = $1 FOR NO KEY UPDATE", run_id)
        approving = asyncio.create_task(decide(service, approval_id, by=people[0]))
        await wait_for_rows(api_urls.superuser_url, SOMEBODY_WAITS)
        denying = asyncio.create_task(decide(service, approval_id, "deny", by=people[1]))
        await wait_for_rows(api_urls.superuser_url, f"{SOMEBODY_WAITS} OFFSET 1")
        await holder.execute("ROLLBACK")
        await holder.close()
        first, second = await approving, await denying
    assert (first.status_code, second.status_code) == (202, 200)
    assert (await read(service, approval_id))["status"] == "denied"


async def test_twenty_outcomes_at_once_of_two_kinds_are_one_that_two_told(service: Service, people: list[str]) -> None:
    approval_id = await asked(service, kind=ApprovalKind.OUTCOME)
    words = ("succeeded", "failed")
    answers = await asyncio.gather(
        *(decide(service, approval_id, words[n % 2], by=key) for n, key in enumerate(people))
    )
    approval = await read(service, approval_id)
    codes = Counter(told(answer) for answer in answers if answer.status_code == 409)
    word = approval["decision"]["decision"]
    assert Counter(answer.status_code for answer in answers)[200] == 1
    assert {int(name.removeprefix("person ")) % 2 for name in approval["approved_by"]} == {words.index(word)}
    assert len(set(approval["approved_by"])) == 2
    assert set(codes) <= {(409, "approvals_differ"), (409, "approval_already_decided")}


async def test_whatever_the_rules_change_to_meanwhile_no_fewer_approve_than_they_wanted(
    service: Service, admin: OperatorStore, people: list[str]
) -> None:
    approvals = [await asked(service) for _ in range(5)]

    async def change() -> None:
        for rules in ([], [TWO]) * 5:
            await set_terms(admin, service, approvers=rules)

    deciding = (decide(service, approval_id, by=key) for approval_id in approvals for key in people[:6])
    await asyncio.gather(change(), *deciding)
    told_of = [await read(service, approval_id) for approval_id in approvals]
    assert [approval["status"] for approval in told_of] == ["approved"] * 5
    assert all(len(set(approval["approved_by"])) >= approval["approvals_needed"] for approval in told_of)


async def test_a_rule_of_two_that_commits_first_binds_whoever_has_waited(
    service: Service, admin: OperatorStore, people: list[str], api_urls: DatabaseUrls
) -> None:
    await set_terms(admin, service, approvers=[])
    run_id = await service.submit()
    approval_id = await ask(service, run_id)
    async with asyncio.timeout(30):
        holder = await asyncpg.connect(api_urls.superuser_url)
        await holder.execute("BEGIN")
        await holder.execute("SELECT FROM runs WHERE run_id = $1 FOR NO KEY UPDATE", run_id)
        late = asyncio.create_task(decide(service, approval_id, by=people[0]))
        await wait_for_rows(api_urls.superuser_url, SOMEBODY_WAITS)
        await set_terms(admin, service, approvers=[TWO])
        await holder.execute("ROLLBACK")
        await holder.close()
        response = await late
    assert (response.status_code, response.json()["approved_by"]) == (202, ["person 0"])


async def test_the_time_that_runs_out_while_the_second_one_waits_leaves_it_undecided(
    service: Service, people: list[str], api_urls: DatabaseUrls
) -> None:
    run_id = await service.submit()
    approval_id = await ask(service, run_id)
    await decide(service, approval_id, by=people[0])
    async with asyncio.timeout(30):
        holder = await asyncpg.connect(api_urls.superuser_url)
        await holder.execute("BEGIN")
        await holder.execute("SELECT FROM runs WHERE run_id = $1 FOR NO KEY UPDATE", run_id)
        late = asyncio.create_task(decide(service, approval_id, by=people[1]))
        await wait_for_rows(api_urls.superuser_url, SOMEBODY_WAITS)
        await holder.execute("UPDATE approvals SET expires_at = clock_timestamp() WHERE approval_id = $1", approval_id)
        await holder.execute("COMMIT")
        await holder.close()
        response = await late
    assert told(response) == (410, "approval_expired")
    assert (await read(service, approval_id))["status"] == "expired"


async def test_a_cancel_and_many_who_approve_leave_one_of_the_two(service: Service, people: list[str]) -> None:
    run_id = await service.submit()
    approval_id = await ask(service, run_id)
    cancel = service.client.post(f"/runs/{run_id}/cancel")
    deciding = [decide(service, approval_id, by=key) for key in people[:10]]
    _, *answers = await asyncio.gather(cancel, *deciding)
    approval = await read(service, approval_id)
    decided = sum(answer.status_code == 200 for answer in answers)
    assert (approval["status"], decided) in (("approved", 1), ("cancelled", 0))
    assert await state_of(service, run_id) == "queued"
