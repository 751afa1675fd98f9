"""Who may decide: the tenant's rules by agent, tool, subject and group, as they are when somebody decides."""

import asyncio
from typing import Any

import pytest

from app.policy import ApproverRule
from app.ports.tenancy import OperatorStore
from tests.api.harness import Service
from tests.api.questions import ask, decide, read, told
from tests.api.terms import add_person, set_terms

REFUSED = (403, "not_an_approver")
OTHER_DIGEST = "0" * 64


async def asked(service: Service, **about: Any) -> str:
    return await ask(service, await service.submit(), **about)


async def rule(admin: OperatorStore, service: Service, *rules: ApproverRule) -> None:
    await set_terms(admin, service, approvers=rules)


async def test_whom_the_rules_do_not_name_decides_nothing(service: Service, admin: OperatorStore) -> None:
    await rule(admin, service, ApproverRule(groups=("finance",)))
    approval_id = await asked(service)
    assert told(await decide(service, approval_id)) == REFUSED
    assert (await read(service, approval_id))["status"] == "pending"


async def test_whom_the_rules_do_not_name_denies_nothing_either(service: Service, admin: OperatorStore) -> None:
    await rule(admin, service, ApproverRule(groups=("finance",)))
    approval_id = await asked(service)
    assert told(await decide(service, approval_id, "deny")) == REFUSED
    assert (await read(service, approval_id))["status"] == "pending"


async def test_a_member_of_a_named_group_decides(service: Service, admin: OperatorStore) -> None:
    await rule(admin, service, ApproverRule(groups=("finance", "board")))
    grace = await add_person(admin, service, "grace", "staff", "board")
    response = await decide(service, await asked(service), by=grace)
    assert (response.status_code, response.json()["decision"]["decided_by"]) == (200, "grace")


async def test_a_named_subject_decides(service: Service, admin: OperatorStore) -> None:
    await rule(admin, service, ApproverRule(subjects=("grace",), groups=("finance",)))
    grace = await add_person(admin, service, "grace")
    assert (await decide(service, await asked(service), by=grace)).status_code == 200


async def test_a_name_is_a_subjects_or_a_groups_and_not_the_others(service: Service, admin: OperatorStore) -> None:
    await rule(admin, service, ApproverRule(groups=("grace",)))
    grace = await add_person(admin, service, "grace", "finance")
    assert told(await decide(service, await asked(service), by=grace)) == REFUSED


@pytest.mark.parametrize("about", [{"agents": ("billing",)}, {"tools": ("pay",)}])
async def test_a_rule_about_another_agent_or_tool_binds_nobody(
    service: Service, admin: OperatorStore, about: dict[str, Any]
) -> None:
    await rule(admin, service, ApproverRule(groups=("finance",), **about))
    assert (await decide(service, await asked(service))).status_code == 200


@pytest.mark.parametrize("about", [{"agents": ("planner",)}, {"tools": ("pay", "wire")}])
async def test_a_rule_about_this_agent_or_tool_binds(
    service: Service, admin: OperatorStore, about: dict[str, Any]
) -> None:
    await rule(admin, service, ApproverRule(groups=("finance",), **about))
    assert told(await decide(service, await asked(service))) == REFUSED


async def test_a_rule_is_about_the_agent_that_asks_and_not_the_one_above_it(
    service: Service, admin: OperatorStore
) -> None:
    await rule(admin, service, ApproverRule(agents=("helper",), groups=("finance",)))
    run_id = await service.submit()
    below = await ask(service, await service.scribe.open_child(run_id), agent="helper")
    own = await ask(service, run_id, call=2)
    assert told(await decide(service, below)) == REFUSED
    assert (await decide(service, own)).status_code == 200


async def test_every_rule_that_holds_has_to_admit_whoever_decides(service: Service, admin: OperatorStore) -> None:
    await rule(admin, service, ApproverRule(groups=("finance",)), ApproverRule(tools=("wire",), groups=("board",)))
    one = await add_person(admin, service, "one", "finance")
    both = await add_person(admin, service, "both", "finance", "board")
    approval_id = await asked(service)
    assert told(await decide(service, approval_id, by=one)) == REFUSED
    assert (await decide(service, approval_id, by=both)).status_code == 200


async def test_rules_that_change_hold_at_the_next_decision(service: Service, admin: OperatorStore) -> None:
    approval_id = await asked(service)
    await rule(admin, service, ApproverRule(groups=("finance",)))
    refused = await decide(service, approval_id)
    await rule(admin, service)
    assert told(refused) == REFUSED
    assert (await decide(service, approval_id)).status_code == 200


async def test_the_rules_of_one_tenant_bind_no_other_one(service: Service, admin: OperatorStore) -> None:
    nobody = ApproverRule(subjects=("nobody",))
    await admin.set_tenant(service.others_keys.tenant_id, {"approvers": [nobody]}, actor="ops")
    assert (await decide(service, await asked(service))).status_code == 200


async def test_the_rules_are_asked_after_self_approval_and_before_the_digest(
    service: Service, admin: OperatorStore
) -> None:
    await rule(admin, service, ApproverRule(groups=("finance",)))
    approval_id = await asked(service)
    codes = [
        told(await decide(service, approval_id, by=service.keys.service, arguments_digest=OTHER_DIGEST)),
        told(await decide(service, approval_id, arguments_digest=OTHER_DIGEST)),
    ]
    assert codes == [(403, "self_approval"), REFUSED]


async def test_a_rule_that_names_the_requester_does_not_let_him_approve_himself(
    service: Service, admin: OperatorStore
) -> None:
    me = (await service.client.get("/me")).json()["subject"]
    await rule(admin, service, ApproverRule(subjects=(me,)))
    assert told(await decide(service, await asked(service), by=service.keys.service)) == (403, "self_approval")


async def test_of_twenty_who_decide_at_once_only_the_admitted_one_does(service: Service, admin: OperatorStore) -> None:
    await rule(admin, service, ApproverRule(groups=("finance",)))
    grace = await add_person(admin, service, "grace", "finance")
    approval_id = await asked(service)
    keys = [service.keys.colleague] * 19 + [grace]
    answers = await asyncio.gather(*(decide(service, approval_id, by=key) for key in keys))
    assert [answer.status_code for answer in answers] == [403] * 19 + [200]
    assert (await read(service, approval_id))["approved_by"] == ["grace"]


async def test_one_who_decides_alone_is_the_one_who_approved(service: Service) -> None:
    approval_id = await asked(service)
    before = await read(service, approval_id)
    after = (await decide(service, approval_id)).json()
    assert (before["approvals_needed"], before["approved_by"]) == (1, [])
    assert (after["approvals_needed"], after["approved_by"]) == (1, [after["decision"]["decided_by"]])


async def test_what_was_denied_nobody_approved(service: Service) -> None:
    approval_id = await asked(service)
    assert (await decide(service, approval_id, "deny")).json()["approved_by"] == []
