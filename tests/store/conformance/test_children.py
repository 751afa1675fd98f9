"""What every WorkStore promises of runs below others: they have no claim of their own, and live by their root's."""

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from app.agents import Agent, SubAgent, SubAgentMode
from app.conversation import Usage
from app.errors import LeaseLost
from app.events import RunState
from app.ids import RunId, SessionId
from app.ports.records import Adopted, CancelWish, Claim, NewRun, Renewal
from app.ports.sessions import NewSession
from tests.store.conformance.logs import HELD, OTHER, TENANT_A, TENANT_B, WORKER, Log, ask_and_suspend, claim
from tests.store.support import AGENT, new_run, terminated, update, warned

BOSS = Agent(name="boss", instructions="Delegate.", sub_agents=(SubAgent(agent="clerk", mode=SubAgentMode.TOOL),))
SESSION = SessionId("ses_1")
WISH = CancelWish(reason="enough", requested_by="ada")


@pytest.fixture(autouse=True)
async def clerk(log: Log) -> None:
    await log.put_agent(AGENT)


async def submit_root(log: Log, **changes: Any) -> NewRun:
    run = new_run(TENANT_A, agent=BOSS, team={"clerk": 1}, **changes)
    await log.submit(run)
    return run


async def claim_root(log: Log, **changes: Any) -> Claim:
    await submit_root(log, **changes)
    return await claim(log)


def child_of(above: Claim, **changes: Any) -> NewRun:
    return new_run(TENANT_A, **{"parent_run_id": above.run_id, "depth": 1, "path": ("boss", "clerk"), **changes})


async def adopt(log: Log, above: Claim, **changes: Any) -> Adopted:
    return await log.store.adopt(above, child_of(above, **changes))


async def lapse(log: Log, above: Claim) -> Claim:
    """The root's lease lapses, and another worker claims it."""
    await log.store.renew([above], lease_seconds=0.0)
    assert await log.store.requeue_expired() == 1
    return await claim(log, OTHER)


# --- adopt -----------------------------------------------------------------------------------------------------------


async def test_an_adopted_run_runs_at_once_under_its_roots_fence(log: Log) -> None:
    root = await claim_root(log)
    child = child_of(root, user="ada")
    adopted = await log.store.adopt(root, child)
    assert adopted.claim == replace(root, run_id=child.run_id, root_run_id=root.run_id)
    assert (adopted.record.state, adopted.record.user) == (RunState.RUNNING, "ada")
    assert await log.kinds(child) == ["run_queued"]


async def test_an_adopted_run_tells_its_place_in_the_tree(log: Log) -> None:
    root = await claim_root(log)
    child = child_of(root)
    await log.store.adopt(root, child)
    record = await log.record(child)
    assert (record.parent_run_id, record.root_run_id, record.depth) == (root.run_id, root.run_id, 1)
    assert (record.path, record.session_id) == (("boss", "clerk"), None)


async def test_adopting_again_goes_on_with_the_same_log(log: Log) -> None:
    root = await claim_root(log)
    child = child_of(root)
    first = await log.store.adopt(root, child)
    await log.store.append_if_owner(first.claim, [warned()], update(model_calls=1))
    again = await log.store.adopt(root, child)
    assert (again.claim, again.record.model_calls) == (first.claim, 1)
    assert await log.kinds(child) == ["run_queued", "warning"]


async def test_a_run_that_has_ended_is_adopted_as_it_is(log: Log) -> None:
    root = await claim_root(log)
    child = child_of(root)
    first = await log.store.adopt(root, child)
    await log.store.append_if_owner(first.claim, [terminated()], update(RunState.COMPLETED, output_text="yes"))
    again = await log.store.adopt(root, child)
    assert (again.record.state, again.record.output_text) == (RunState.COMPLETED, "yes")
    assert await log.kinds(child) == ["run_queued", "terminated"]


async def test_a_run_below_a_run_below_another_has_the_same_root(log: Log) -> None:
    root = await claim_root(log)
    middle = await adopt(log, root)
    lowest = await adopt(log, middle.claim, depth=2, path=("boss", "clerk", "clerk"))
    assert lowest.record.parent_run_id == middle.record.run_id
    assert (lowest.record.root_run_id, lowest.claim.root_run_id) == (root.run_id, root.run_id)


async def test_a_lost_claim_adopts_nothing(log: Log) -> None:
    root = await claim_root(log)
    child = child_of(root)
    held = await lapse(log, root)
    with pytest.raises(LeaseLost):
        await log.store.adopt(root, child)
    assert (await log.store.load(held)).children == ()


async def test_a_run_below_one_that_ended_is_refused(log: Log) -> None:
    root = await claim_root(log)
    middle = await adopt(log, root)
    await log.store.append_if_owner(middle.claim, [terminated()], update(RunState.COMPLETED))
    with pytest.raises(LeaseLost):
        await adopt(log, middle.claim)


async def test_another_ones_child_is_refused(log: Log) -> None:
    root = await claim_root(log)
    middle, child = await adopt(log, root), child_of(root)
    await log.store.adopt(root, child)
    with pytest.raises(ValueError, match="another one's"):
        await log.store.adopt(middle.claim, replace(child, parent_run_id=middle.claim.run_id))


@pytest.mark.parametrize(
    "changes",
    [
        {"parent_run_id": None},
        {"parent_run_id": "run_other"},
        {"root_run_id": "run_other"},
        {"session_id": "ses_1"},
        {"tenant_id": TENANT_B},
    ],
)
async def test_a_child_that_says_it_belongs_elsewhere_is_a_mistake(log: Log, changes: dict[str, Any]) -> None:
    root = await claim_root(log)
    with pytest.raises(ValueError, match=r"says otherwise|another tenant"):
        await log.store.adopt(root, replace(child_of(root), **changes))


# --- held by the root ------------------------------------------------------------------------------------------------


async def test_a_child_is_in_no_queue_and_has_no_lease(log: Log) -> None:
    root = await claim_root(log)
    child = child_of(root, deadline_at=1.0)
    await log.store.adopt(root, child)
    assert await log.store.claim(OTHER, limit=9, lease_seconds=60) == []
    assert await log.store.claim_ending(OTHER, limit=9, lease_seconds=60) == []
    assert await log.store.requeue_expired() == 0
    assert (await log.record(child)).state is RunState.RUNNING


async def test_a_child_writes_and_is_loaded_under_its_claim(log: Log) -> None:
    root = await claim_root(log)
    adopted = await adopt(log, root)
    [event] = await log.store.append_if_owner(adopted.claim, [warned("hm")], update())
    loaded = await log.store.load(adopted.claim)
    assert loaded.events[1:] == (event,)
    assert (loaded.agent.name, loaded.history, loaded.last_agent) == ("clerk", (), None)


async def test_a_child_can_not_write_or_load_when_its_root_is_lost(log: Log) -> None:
    root = await claim_root(log)
    child = child_of(root)
    adopted = await log.store.adopt(root, child)
    await lapse(log, root)
    with pytest.raises(LeaseLost):
        await log.store.append_if_owner(adopted.claim, [warned()], update())
    with pytest.raises(LeaseLost):
        await log.store.load(adopted.claim)
    assert await log.kinds(child) == ["run_queued"]


async def test_a_child_can_not_write_while_its_root_waits_in_the_queue(log: Log) -> None:
    root = await claim_root(log)
    child = child_of(root)
    adopted = await log.store.adopt(root, child)
    await log.store.release(root)
    with pytest.raises(LeaseLost):
        await log.store.append_if_owner(adopted.claim, [warned()], update())
    assert await log.kinds(child) == ["run_queued"]


async def test_a_claim_that_hides_the_root_holds_nothing(log: Log) -> None:
    root = await claim_root(log)
    adopted = await adopt(log, root)
    forged = replace(adopted.claim, root_run_id=None)
    with pytest.raises(LeaseLost):
        await log.store.append_if_owner(forged, [warned()], update())
    with pytest.raises(LeaseLost):
        await log.store.load(forged)


async def test_the_next_claim_of_the_root_goes_on_with_the_child(log: Log) -> None:
    root = await claim_root(log)
    child = child_of(root)
    adopted = await log.store.adopt(root, child)
    await log.store.append_if_owner(adopted.claim, [warned()], update())
    held = await lapse(log, root)
    again = await log.store.adopt(held, child)
    await log.store.append_if_owner(again.claim, [warned()], update())
    assert (again.claim.fence, again.claim.worker_id, again.claim.recoveries) == (2, OTHER, 1)
    assert await log.kinds(child) == ["run_queued", "warning", "warning"]


async def test_a_child_born_after_a_recovery_of_its_root_counts_none(log: Log) -> None:
    held = await lapse(log, await claim_root(log))
    assert (await adopt(log, held)).claim.recoveries == 0


async def test_a_child_of_a_root_that_was_handed_back_counts_no_recovery(log: Log) -> None:
    root = await claim_root(log)
    child = child_of(root)
    await log.store.adopt(root, child)
    await log.store.release(root)
    assert (await log.store.adopt(await claim(log), child)).claim.recoveries == 0


async def test_releasing_a_child_leaves_it_with_its_root(log: Log) -> None:
    root = await claim_root(log)
    child = child_of(root)
    adopted = await log.store.adopt(root, child)
    await log.store.release(adopted.claim)
    assert (await log.record(child)).state is RunState.RUNNING
    assert await log.store.claim(OTHER, limit=9, lease_seconds=60) == []


# --- suspended -------------------------------------------------------------------------------------------------------


async def test_a_suspended_child_goes_on_when_it_is_adopted(log: Log) -> None:
    root = await claim_root(log)
    child = child_of(root)
    adopted = await log.store.adopt(root, child)
    await ask_and_suspend(log, adopted.claim)
    with pytest.raises(LeaseLost):
        await log.store.append_if_owner(adopted.claim, [warned()], update())
    again = await log.store.adopt(root, child)
    assert (again.record.state, again.claim.recoveries) == (RunState.RUNNING, 0)
    await log.store.append_if_owner(again.claim, [warned()], update())


async def test_root_and_child_wait_for_people_together(log: Log) -> None:
    root = await claim_root(log)
    child = child_of(root)
    await ask_and_suspend(log, (await log.store.adopt(root, child)).claim)
    await ask_and_suspend(log, root)
    assert (await log.record(child)).state is RunState.SUSPENDED
    assert await log.store.claim(OTHER, limit=9, lease_seconds=60) == []


# --- renew and cancel ------------------------------------------------------------------------------------------------


async def test_renewing_tells_of_a_child_and_gives_it_no_lease(log: Log) -> None:
    root = await claim_root(log)
    adopted = await adopt(log, root)
    renewed = await log.store.renew([root, adopted.claim], lease_seconds=0.0)
    assert renewed == {root.run_id: HELD, adopted.claim.run_id: HELD}
    assert await log.store.requeue_expired() == 1


async def test_a_child_is_lost_with_its_root(log: Log) -> None:
    root = await claim_root(log)
    adopted = await adopt(log, root)
    held = await lapse(log, root)
    assert await log.store.renew([held, adopted.claim], lease_seconds=60) == {root.run_id: HELD}


async def test_a_cancel_of_a_child_reaches_it_and_not_its_root(log: Log) -> None:
    root = await claim_root(log)
    child = child_of(root)
    adopted = await log.store.adopt(root, child)
    asked = await log.request_cancel(child, WISH)
    assert asked is not None
    assert (asked.state, asked.cancel_reason) == (RunState.RUNNING, "enough")
    told = {root.run_id: HELD, child.run_id: Renewal(wish=WISH, extended=True)}
    assert await log.store.renew([root, adopted.claim], lease_seconds=60) == told
    assert (await log.store.load(adopted.claim)).cancel == WISH


async def test_a_cancel_of_a_suspended_child_queues_its_root(log: Log) -> None:
    root = await claim_root(log)
    child = child_of(root)
    await ask_and_suspend(log, (await log.store.adopt(root, child)).claim)
    await ask_and_suspend(log, root)
    await log.request_cancel(child, WISH)
    assert (await log.record(child)).state is RunState.SUSPENDED
    again = await claim(log, OTHER)
    assert again.run_id == root.run_id
    assert (await log.store.adopt(again, child)).record.cancel_reason == "enough"


async def test_a_cancel_of_a_child_that_has_ended_queues_nothing(log: Log) -> None:
    root = await claim_root(log)
    child = child_of(root)
    adopted = await log.store.adopt(root, child)
    await log.store.append_if_owner(adopted.claim, [terminated()], update(RunState.COMPLETED))
    await ask_and_suspend(log, root)
    record = await log.request_cancel(child, WISH)
    assert record is not None
    assert record.cancel_requested_at is None
    assert await log.store.claim(OTHER, limit=9, lease_seconds=60) == []


# --- what the root is told -------------------------------------------------------------------------------------------


async def test_a_root_is_told_what_all_below_it_used_each_for_itself(log: Log) -> None:
    root = await claim_root(log)
    middle = await adopt(log, root)
    lowest = await adopt(log, middle.claim)
    usage = Usage(input_tokens=5, cached_tokens=2, output_tokens=7)
    spent = update(usage=usage, cost=Decimal("0.50"), model_calls=2, tool_calls=1, iterations=3)
    await log.store.append_if_owner(lowest.claim, [warned()], spent)
    children = (await log.store.load(root)).children
    assert [(one.run_id, one.parent_run_id, one.model_calls) for one in children] == [
        (middle.record.run_id, root.run_id, 0),
        (lowest.record.run_id, middle.record.run_id, 2),
    ]
    told = children[1]
    assert (told.usage, told.cost, told.tool_calls, told.iterations) == (usage, Decimal("0.50"), 1, 3)
    assert children[0].cost is None


async def test_a_child_is_told_of_those_below_it_only(log: Log) -> None:
    root = await claim_root(log)
    middle, _ = await adopt(log, root), await adopt(log, root)
    lowest = await adopt(log, middle.claim)
    children = (await log.store.load(middle.claim)).children
    assert [one.run_id for one in children] == [lowest.record.run_id]
    assert (await log.store.load(lowest.claim)).children == ()


# --- state, artifacts, sessions --------------------------------------------------------------------------------------


async def test_a_childs_state_is_kept_for_its_roots_agent(log: Log) -> None:
    root = await claim_root(log, user="ada")
    adopted = await adopt(log, root, user="ada")
    delta = {"app:a": 1, "user:b": 2, "plain": 3}
    await log.store.append_if_owner(adopted.claim, [warned()], update(state_delta=delta))
    assert (await log.store.load(root)).session_state == {"app:a": 1, "user:b": 2}
    assert (await log.store.load(adopted.claim)).session_state == {"app:a": 1, "user:b": 2}


async def test_a_childs_artifacts_are_its_roots_sessions(log: Log) -> None:
    await log.open_session(NewSession(session_id=SESSION))
    root = await claim_root(log, session_id=SESSION)
    adopted = await adopt(log, root)
    assert await log.store.save_artifact(adopted.claim, "a", b"abc", "x/y") == 1
    found = await log.store.load_artifact(root, "a")
    assert found is not None
    assert found.run_id == adopted.record.run_id
    assert await log.store.list_artifacts(adopted.claim) == ["a"]


async def test_a_child_whose_root_is_lost_saves_no_artifact(log: Log) -> None:
    await log.open_session(NewSession(session_id=SESSION))
    root = await claim_root(log, session_id=SESSION)
    adopted = await adopt(log, root)
    held = await lapse(log, root)
    with pytest.raises(LeaseLost):
        await log.store.save_artifact(adopted.claim, "a", b"abc", "x/y")
    assert await log.store.list_artifacts(held) == []


async def test_a_child_that_has_ended_saves_no_artifact(log: Log) -> None:
    await log.open_session(NewSession(session_id=SESSION))
    root = await claim_root(log, session_id=SESSION)
    adopted = await adopt(log, root)
    await log.store.append_if_owner(adopted.claim, [terminated()], update(RunState.COMPLETED))
    with pytest.raises(LeaseLost):
        await log.store.save_artifact(adopted.claim, "a", b"abc", "x/y")
    assert await log.store.list_artifacts(root) == []


async def test_a_child_is_no_run_of_the_session(log: Log) -> None:
    await log.open_session(NewSession(session_id=SESSION))
    root = await claim_root(log, session_id=SESSION)
    adopted = await adopt(log, root)
    await log.store.append_if_owner(adopted.claim, [terminated()], update(RunState.COMPLETED))
    session = await log.session(SESSION)
    assert (session.runs, session.active_run_id) == (1, root.run_id)


async def test_a_claim_of_nothing_adopts_nothing(log: Log) -> None:
    root = await claim_root(log)
    nobody = replace(root, run_id=RunId("run_none"), worker_id=WORKER)
    with pytest.raises(LeaseLost):
        await adopt(log, nobody)
