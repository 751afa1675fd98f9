"""What every WorkStore promises."""

import asyncio
from decimal import Decimal
from typing import Any

import pytest

from app.agents import Agent
from app.conversation import Message, Role, Usage, UsageSource
from app.errors import LeaseLost
from app.events import RunState
from app.ids import WorkerId
from app.ports.records import CancelWish, Claim, NewRun, Renewal, RunContextInput
from tests.store.conformance.logs import HELD, OTHER, TENANT_A, TENANT_B, WORKER, Log, claim, submit_and_claim
from tests.store.support import AGENT, NUL, new_run, terminated, update, warned

WISH = CancelWish(reason="enough", requested_by="ada")


async def take_over(log: Log) -> tuple[NewRun, Claim, Claim]:
    """A run whose first claim has lapsed and which another worker has claimed since."""
    run, first = await submit_and_claim(log, lease_seconds=0.0)
    assert await log.store.requeue_expired() == 1
    return run, first, await claim(log, OTHER)


# --- claim -----------------------------------------------------------------------------------------------------------


async def test_claiming_an_empty_queue_answers_nothing(log: Log) -> None:
    assert await log.store.claim(WORKER, limit=5, lease_seconds=60) == []


async def test_a_claim_sets_the_run_running_and_raises_its_fence(log: Log) -> None:
    run, claimed = await submit_and_claim(log)
    record = await log.record(run)
    assert (claimed.run_id, claimed.tenant_id, claimed.fence, claimed.recoveries) == (run.run_id, TENANT_A, 1, 0)
    assert record.state is RunState.RUNNING
    assert record.started_at is not None


async def test_a_claimed_run_is_not_claimed_again(log: Log) -> None:
    await submit_and_claim(log)
    assert await log.store.claim(OTHER, limit=5, lease_seconds=60) == []


async def claim_ending(log: Log) -> list[str]:
    return [claimed.run_id for claimed in await log.store.claim_ending(WORKER, limit=5, lease_seconds=60)]


async def test_a_cancelled_run_is_claimed_out_of_turn(log: Log) -> None:
    first, second = new_run(TENANT_A, priority=5), new_run(TENANT_A)
    await log.submit(first)
    await log.submit(second)
    await log.request_cancel(second, WISH)
    assert await claim_ending(log) == [second.run_id]


async def test_a_run_past_its_deadline_is_claimed_out_of_turn_and_one_before_it_is_not(log: Log) -> None:
    late, early = new_run(TENANT_A, deadline_at=1.0), new_run(TENANT_B, deadline_at=4e9)
    await log.submit(late)
    await log.submit(early)
    assert await claim_ending(log) == [late.run_id]


async def test_a_claim_out_of_turn_is_a_claim_like_any_other(log: Log) -> None:
    run = new_run(TENANT_A)
    await log.submit(run)
    await log.request_cancel(run, WISH)
    [claimed] = await log.store.claim_ending(WORKER, limit=5, lease_seconds=60)
    await log.store.append_if_owner(claimed, [terminated(RunState.CANCELLED)], update(RunState.CANCELLED))
    assert (claimed.fence, (await log.record(run)).state) == (1, RunState.CANCELLED)


async def test_a_run_that_is_held_or_at_rest_is_not_claimed_out_of_turn(log: Log) -> None:
    run, _ = await submit_and_claim(log)
    await log.request_cancel(run, WISH)
    assert await claim_ending(log) == []


async def test_a_claim_takes_no_more_than_its_limit(log: Log) -> None:
    await asyncio.gather(*(log.submit(new_run(TENANT_A)) for _ in range(3)))
    assert len(await log.store.claim(WORKER, limit=2, lease_seconds=60)) == 2


async def test_priority_comes_before_age(log: Log) -> None:
    old, urgent, late = new_run(TENANT_A), new_run(TENANT_A, priority=5), new_run(TENANT_A)
    await log.submit(old)
    await log.submit(urgent)
    await log.submit(late)
    first = await claim(log)
    rest = await log.store.claim(WORKER, limit=2, lease_seconds=60)
    assert [one.run_id for one in (first, *rest)] == [urgent.run_id, old.run_id, late.run_id]


async def test_a_tenant_with_many_runs_does_not_delay_one_with_one(log: Log) -> None:
    await asyncio.gather(*(log.submit(new_run(TENANT_A)) for _ in range(20)))
    lone = new_run(TENANT_B)
    await log.submit(lone)
    claimed = await log.store.claim(WORKER, limit=2, lease_seconds=60)
    assert lone.run_id in {one.run_id for one in claimed}


async def test_the_tenant_served_longest_ago_comes_first(log: Log) -> None:
    await asyncio.gather(*(log.submit(new_run(tenant)) for tenant in (TENANT_A, TENANT_B) for _ in range(3)))
    order = [(await claim(log)).tenant_id for _ in range(6)]
    assert set(order[0:2]) == set(order[2:4]) == set(order[4:6]) == {TENANT_A, TENANT_B}


async def test_priority_does_not_take_another_tenants_turn(log: Log) -> None:
    await asyncio.gather(*(log.submit(new_run(TENANT_A, priority=9)) for _ in range(3)))
    await log.submit(new_run(TENANT_B))
    assert {(await claim(log)).tenant_id for _ in range(2)} == {TENANT_A, TENANT_B}


async def test_claims_at_once_never_share_a_run_and_leave_none(log: Log) -> None:
    runs = [new_run(tenant) for tenant in (TENANT_A, TENANT_B) for _ in range(10)]
    await asyncio.gather(*(log.submit(run) for run in runs))
    batches = await asyncio.gather(
        *(log.store.claim(WorkerId(f"wrk_{n}"), limit=5, lease_seconds=60) for n in range(4))
    )
    taken = [one.run_id for batch in batches for one in batch]
    assert sorted(taken) == sorted(run.run_id for run in runs)


async def test_the_first_claim_is_when_a_run_started(log: Log) -> None:
    run, first = await submit_and_claim(log)
    started_at = (await log.record(run)).started_at
    await log.store.release(first)
    await claim(log)
    assert (await log.record(run)).started_at == started_at


# --- load ------------------------------------------------------------------------------------------------------------


async def test_what_was_submitted_is_what_is_loaded(log: Log) -> None:
    run = new_run(
        TENANT_A,
        input=(Message(role=Role.USER, content=NUL), Message(role=Role.USER, content="and?")),
        context=RunContextInput(pinned=(NUL,), retrieved=("fact",)),
        user=NUL,
        subject=NUL,
        model="scripted:x",
        deadline_at=1_900_000_000.25,
        priority=3,
        metadata={NUL: NUL, "k": "v"},
    )
    await log.submit(run)
    record = (await log.store.load(await claim(log))).record
    assert (record.input, record.context, record.user, record.subject) == (run.input, run.context, NUL, NUL)
    assert (record.model, record.deadline_at, record.priority) == ("scripted:x", 1_900_000_000.25, 3)
    assert (record.metadata, record.budget, record.max_llm_calls) == (run.metadata, run.budget, run.max_llm_calls)
    assert (record.agent, record.agent_version) == ("clerk", 1)


@pytest.mark.parametrize("schema", [{"type": "object", "title": NUL, "required": ["a"]}, {}, None])
async def test_the_form_of_the_answer_is_loaded_as_it_was_submitted(log: Log, schema: dict[str, Any] | None) -> None:
    await log.submit(new_run(TENANT_A, output_schema=schema))
    assert (await log.store.load(await claim(log))).record.output_schema == schema


async def test_an_agent_with_a_form_of_its_own_is_loaded_with_it(log: Log) -> None:
    agent = Agent(name="clerk", instructions="Answer.", output_schema={"type": "object", "title": NUL})
    await log.submit(new_run(TENANT_A, agent=agent))
    assert (await log.store.load(await claim(log))).agent == agent


async def test_a_loaded_run_brings_its_agent_and_its_log(log: Log) -> None:
    await submit_and_claim(log)
    await log.submit(new_run(TENANT_A))
    loaded = await log.store.load(await claim(log))
    assert loaded.agent == AGENT
    assert [(event.seq, event.kind) for event in loaded.events] == [(1, "run_queued")]
    assert loaded.cancel is None


async def test_loading_under_a_lost_claim_is_refused(log: Log) -> None:
    _, stale, _ = await take_over(log)
    with pytest.raises(LeaseLost):
        await log.store.load(stale)


# --- append ----------------------------------------------------------------------------------------------------------


async def test_events_are_numbered_without_a_gap_and_returned_as_stored(log: Log) -> None:
    _, claimed = await submit_and_claim(log)
    first = await log.store.append_if_owner(claimed, [warned("a"), warned("b")], update())
    second = await log.store.append_if_owner(claimed, [warned(NUL)], update())
    loaded = await log.store.load(claimed)
    assert [event.seq for event in loaded.events] == [1, 2, 3, 4]
    assert loaded.events[1:] == first + second
    assert loaded.events[3].body.detail == NUL
    assert loaded.record.last_seq == 4


async def test_times_of_events_do_not_go_back(log: Log) -> None:
    _, claimed = await submit_and_claim(log)
    await log.store.append_if_owner(claimed, [warned(), warned()], update())
    await log.store.append_if_owner(claimed, [warned()], update())
    instants = [event.at for event in (await log.store.load(claimed)).events]
    assert instants == sorted(instants)


async def test_append_refuses_a_stale_fence_and_stores_nothing(log: Log) -> None:
    run, stale, held = await take_over(log)
    before = await log.record(run)
    with pytest.raises(LeaseLost):
        await log.store.append_if_owner(stale, [terminated()], update(RunState.COMPLETED, output_text="late"))
    assert await log.record(run) == before
    assert await log.kinds(run) == ["run_queued"]
    assert (await log.store.load(held)).record.state is RunState.RUNNING


async def test_append_is_refused_while_the_run_waits_in_the_queue_again(log: Log) -> None:
    run, lapsed = await submit_and_claim(log, lease_seconds=0.0)
    await log.store.requeue_expired()
    with pytest.raises(LeaseLost):
        await log.store.append_if_owner(lapsed, [warned()], update())
    assert await log.kinds(run) == ["run_queued"]


async def test_a_lapsed_lease_that_nobody_took_still_writes(log: Log) -> None:
    run, lapsed = await submit_and_claim(log, lease_seconds=0.0)
    await log.store.append_if_owner(lapsed, [warned()], update())
    assert await log.kinds(run) == ["run_queued", "warning"]


async def test_the_summary_is_written_with_the_events(log: Log) -> None:
    run, claimed = await submit_and_claim(log)
    usage = Usage(input_tokens=5, cached_tokens=2, output_tokens=7, source=UsageSource.HEURISTIC)
    summary = update(
        usage=usage,
        model_calls=2,
        tool_calls=1,
        output_text=NUL,
        error_code="c",
        error_detail=NUL,
        prompt_version="v",
        prompt_fingerprint="f",
        model="m:x",
    )
    await log.store.append_if_owner(claimed, [warned()], summary)
    record = await log.record(run)
    assert (record.usage, record.model_calls, record.tool_calls, record.model) == (usage, 2, 1, "m:x")
    assert (record.output_text, record.error_code, record.error_detail) == (NUL, "c", NUL)
    assert (record.prompt_version, record.prompt_fingerprint) == ("v", "f")


@pytest.mark.parametrize("cost", ["0", "0.000000000000000001", "1234567890123.25", "1E+3"])
async def test_a_cost_is_kept_to_the_last_digit(log: Log, cost: str) -> None:
    run, claimed = await submit_and_claim(log)
    await log.store.append_if_owner(claimed, [warned()], update(cost=Decimal(cost)))
    assert (await log.record(run)).cost == Decimal(cost)


async def test_a_run_of_which_nothing_has_a_price_has_no_cost(log: Log) -> None:
    run, claimed = await submit_and_claim(log)
    await log.store.append_if_owner(claimed, [warned()], update())
    assert (await log.record(run)).cost is None


async def test_a_summary_without_a_model_keeps_the_one_that_was_asked_for(log: Log) -> None:
    run = new_run(TENANT_A, model="scripted:x")
    await log.submit(run)
    await log.store.append_if_owner(await claim(log), [warned()], update())
    assert (await log.record(run)).model == "scripted:x"


async def test_a_rewritten_input_replaces_the_input(log: Log) -> None:
    run, claimed = await submit_and_claim(log)
    await log.store.append_if_owner(claimed, [warned()], update(rewritten_input="redacted"))
    await log.store.append_if_owner(claimed, [warned()], update())
    assert (await log.record(run)).input == "redacted"


async def test_a_terminal_append_ends_the_run_for_good(log: Log) -> None:
    run, claimed = await submit_and_claim(log)
    [ended] = await log.store.append_if_owner(claimed, [terminated()], update(RunState.COMPLETED, output_text="yes"))
    record = await log.record(run)
    with pytest.raises(LeaseLost):
        await log.store.append_if_owner(claimed, [warned()], update())
    assert (record.state, record.output_text, record.ended_at) == (RunState.COMPLETED, "yes", ended.at)
    assert await log.kinds(run) == ["run_queued", "terminated"]
    assert await log.store.claim(WORKER, limit=1, lease_seconds=60) == []


async def test_a_run_that_ended_is_neither_renewed_nor_queued_again(log: Log) -> None:
    run, claimed = await submit_and_claim(log, lease_seconds=0.0)
    await log.store.append_if_owner(claimed, [terminated()], update(RunState.COMPLETED))
    await log.store.release(claimed)
    assert await log.store.requeue_expired() == 0
    assert await log.store.renew([claimed], lease_seconds=60) == {}
    assert (await log.record(run)).state is RunState.COMPLETED


# --- release, requeue, renew -----------------------------------------------------------------------------------------


async def test_a_released_run_is_queued_and_counts_no_recovery(log: Log) -> None:
    run, claimed = await submit_and_claim(log)
    await log.store.release(claimed)
    assert (await log.record(run)).state is RunState.QUEUED
    again = await claim(log)
    assert (again.fence, again.recoveries) == (2, 0)


async def test_releasing_a_lost_claim_changes_nothing(log: Log) -> None:
    run, stale, _ = await take_over(log)
    await log.store.release(stale)
    assert (await log.record(run)).state is RunState.RUNNING


async def test_a_lapsed_lease_is_queued_counts_a_recovery_and_writes_no_event(log: Log) -> None:
    run, _ = await submit_and_claim(log, lease_seconds=0.0)
    assert await log.store.requeue_expired() == 1
    record = await log.record(run)
    assert (record.state, record.recoveries) == (RunState.QUEUED, 1)
    assert await log.kinds(run) == ["run_queued"]
    assert (await claim(log)).recoveries == 1


async def test_a_live_lease_is_left_alone(log: Log) -> None:
    run, _ = await submit_and_claim(log)
    assert await log.store.requeue_expired() == 0
    assert (await log.record(run)).state is RunState.RUNNING


async def test_sweeps_at_once_count_one_recovery(log: Log) -> None:
    run, _ = await submit_and_claim(log, lease_seconds=0.0)
    counts = await asyncio.gather(*(log.store.requeue_expired() for _ in range(4)))
    assert sum(counts) == 1
    assert (await log.record(run)).recoveries == 1


async def test_a_renewed_lease_does_not_lapse(log: Log) -> None:
    run, claimed = await submit_and_claim(log, lease_seconds=0.0)
    assert await log.store.renew([claimed], lease_seconds=60) == {run.run_id: HELD}
    assert await log.store.requeue_expired() == 0


async def test_renewing_tells_which_claims_are_lost(log: Log) -> None:
    _, stale, _ = await take_over(log)
    kept_run = new_run(TENANT_B)
    await log.submit(kept_run)
    kept = await claim(log)
    assert await log.store.renew([stale, kept], lease_seconds=60) == {kept_run.run_id: HELD}


async def test_renewing_nothing_answers_nothing(log: Log) -> None:
    assert await log.store.renew([], lease_seconds=60) == {}


# --- cancel ----------------------------------------------------------------------------------------------------------


async def test_a_cancel_reaches_the_holder_at_its_next_renewal(log: Log) -> None:
    run, claimed = await submit_and_claim(log)
    await log.request_cancel(run, CancelWish(reason=NUL, requested_by=NUL))
    told = Renewal(wish=CancelWish(reason=NUL, requested_by=NUL), extended=True)
    assert await log.store.renew([claimed], lease_seconds=60) == {run.run_id: told}


async def test_a_cancel_of_a_queued_run_waits_for_whoever_claims_it(log: Log) -> None:
    run = new_run(TENANT_A)
    await log.submit(run)
    await log.request_cancel(run, WISH)
    loaded = await log.store.load(await claim(log))
    assert loaded.cancel == WISH
    assert loaded.record.cancel_requested_at is not None


async def test_the_first_cancel_stays(log: Log) -> None:
    run, _ = await submit_and_claim(log)
    first = await log.request_cancel(run, WISH)
    second = await log.request_cancel(run, CancelWish(reason="again", requested_by="bob"))
    assert first == second
    assert second is not None
    assert (second.cancel_reason, second.cancel_requested_by) == ("enough", "ada")


async def test_a_cancel_after_the_end_is_not_written(log: Log) -> None:
    run, claimed = await submit_and_claim(log)
    await log.store.append_if_owner(claimed, [terminated()], update(RunState.COMPLETED))
    record = await log.request_cancel(run, WISH)
    assert record is not None
    assert (record.state, record.cancel_requested_at) == (RunState.COMPLETED, None)


async def test_cancelling_an_unknown_run_answers_none(log: Log) -> None:
    assert await log.request_cancel(new_run(TENANT_A), WISH) is None
