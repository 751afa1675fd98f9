"""What every WorkStore promises of a run that goes on from another one."""

from typing import Any

import pytest

from app.conversation import Message, Role
from app.events import RunState
from app.ids import CallId, RunId, SessionId
from app.policy import Outcome
from app.ports.records import Claim, NewRun
from app.ports.sessions import NewSession
from tests.store.conformance.logs import TENANT_A, WORKER, Log, claim, suspend
from tests.store.support import NUL, new_run, terminated, update, warned

SESSION = SessionId("ses_1")


async def fail(log: Log, claimed: Claim, *texts: str) -> None:
    items = tuple(Message(role=Role.ASSISTANT, content=text) for text in texts)
    ended = update(RunState.FAILED, session_items=items or None)
    await log.store.append_if_owner(claimed, [terminated(RunState.FAILED)], ended)


async def run_and_fail(log: Log, *texts: str, **changes: Any) -> NewRun:
    run = new_run(TENANT_A, **changes)
    await log.submit(run)
    claimed = await claim(log)
    await log.store.append_if_owner(claimed, [warned(run.run_id)], update())
    await fail(log, claimed, *texts)
    return run


def resuming(run: NewRun, **changes: Any) -> NewRun:
    return new_run(TENANT_A, resumes=run.run_id, first_run_id=run.first_run_id or run.run_id, **changes)


async def texts_before(log: Log, claimed: Claim) -> list[Any]:
    return [message.content for message in (await log.store.load(claimed)).history]


async def test_a_run_says_which_one_it_goes_on_from(log: Log) -> None:
    first = await run_and_fail(log)
    resolutions = {CallId("call_1"): Outcome.SUCCEEDED, CallId(NUL): Outcome.RETRY}
    run = resuming(first, resolutions=resolutions)
    await log.submit(run)
    record = (await log.store.load(await claim(log))).record
    assert (record.resumes, record.first_run_id, record.resolutions) == (first.run_id, first.run_id, resolutions)
    assert record == await log.record(run)


async def test_a_run_that_goes_on_from_none_says_so(log: Log) -> None:
    run = await run_and_fail(log)
    record = await log.record(run)
    assert (record.resumes, record.first_run_id, record.resolutions) == (None, None, {})


async def test_a_run_brings_the_logs_of_all_that_it_goes_on_from_the_first_runs_first(log: Log) -> None:
    first = await run_and_fail(log)
    second = resuming(first)
    await log.submit(second)
    await fail(log, await claim(log))
    third = resuming(second)
    await log.submit(third)
    loaded = await log.store.load(await claim(log))
    told = [[(event.run_id, event.seq, event.kind) for event in events] for events in loaded.before]
    assert told == [
        [(first.run_id, 1, "run_queued"), (first.run_id, 2, "warning"), (first.run_id, 3, "terminated")],
        [(second.run_id, 1, "run_queued"), (second.run_id, 2, "terminated")],
    ]
    assert [event.run_id for event in loaded.events] == [third.run_id]


async def test_the_logs_before_are_told_as_they_were_stored(log: Log) -> None:
    run = new_run(TENANT_A)
    await log.submit(run)
    claimed = await claim(log)
    stored = await log.store.append_if_owner(
        claimed, [warned(NUL), terminated(RunState.FAILED)], update(RunState.FAILED)
    )
    await log.submit(resuming(run))
    [before] = (await log.store.load(await claim(log))).before
    assert before[1:] == stored


async def test_a_run_that_goes_on_from_none_has_no_logs_before_it(log: Log) -> None:
    await run_and_fail(log)
    await log.submit(new_run(TENANT_A))
    assert (await log.store.load(await claim(log))).before == ()


async def test_the_event_of_a_run_says_which_one_it_goes_on_from(log: Log) -> None:
    first = await run_and_fail(log)
    await log.submit(resuming(first))
    [event] = (await log.store.load(await claim(log))).events
    assert getattr(event.body, "resumes", None) == first.run_id


async def test_a_run_is_gone_on_from_once(log: Log) -> None:
    first = await run_and_fail(log)
    await log.submit(resuming(first))
    with pytest.raises(ValueError, match="go on from"):
        await log.submit(resuming(first))
    assert len(await log.store.claim(WORKER, limit=9, lease_seconds=60)) == 1


async def test_nobody_goes_on_from_an_unknown_run(log: Log) -> None:
    with pytest.raises(ValueError, match="go on from"):
        await log.submit(new_run(TENANT_A, resumes=RunId("run_none"), first_run_id=RunId("run_none")))


async def test_what_a_run_left_that_is_gone_on_from_is_not_in_the_history(log: Log) -> None:
    await log.open_session(NewSession(session_id=SESSION))
    await run_and_fail(log, "zero", session_id=SESSION)
    first = await run_and_fail(log, "one", session_id=SESSION)
    second = resuming(first, session_id=SESSION)
    await log.submit(second)
    claimed = await claim(log)
    assert await texts_before(log, claimed) == ["zero"]
    await fail(log, claimed)
    await log.submit(resuming(second, session_id=SESSION))
    assert await texts_before(log, await claim(log)) == ["zero"]


async def test_a_later_turn_reads_what_the_first_run_left_while_the_second_has_left_nothing(log: Log) -> None:
    await log.open_session(NewSession(session_id=SESSION))
    first = await run_and_fail(log, "one", session_id=SESSION)
    await log.submit(resuming(first, session_id=SESSION))
    await fail(log, await claim(log))
    await log.submit(new_run(TENANT_A, session_id=SESSION))
    assert await texts_before(log, await claim(log)) == ["one"]


async def test_a_later_turn_reads_what_the_second_run_left_in_the_place_of_the_first_ones(log: Log) -> None:
    await log.open_session(NewSession(session_id=SESSION))
    await run_and_fail(log, "zero", session_id=SESSION)
    first = await run_and_fail(log, "one", session_id=SESSION)
    await log.submit(resuming(first, session_id=SESSION))
    await fail(log, await claim(log), "one", "two")
    await log.submit(new_run(TENANT_A, session_id=SESSION))
    assert await texts_before(log, await claim(log)) == ["zero", "one", "two"]


async def test_a_second_run_that_is_suspended_leaves_the_first_ones_part_alone(log: Log) -> None:
    await log.open_session(NewSession(session_id=SESSION))
    first = await run_and_fail(log, "one", session_id=SESSION)
    await log.submit(resuming(first, session_id=SESSION))
    await suspend(log, await claim(log))
    await fail(log, await claim(log))
    await log.submit(new_run(TENANT_A, session_id=SESSION))
    assert await texts_before(log, await claim(log)) == ["one"]
