"""What every WorkStore promises of state that outlives a run, and of artifacts."""

import random
from typing import Any

import pytest

from app.agents import Agent
from app.errors import ConfigurationError, LeaseLost
from app.events import RunState
from app.ids import SessionId, TenantId
from app.ports.sessions import NewSession
from tests.store.conformance.logs import OTHER, TENANT_A, TENANT_B, Log, claim
from tests.store.support import AGENT, NUL, new_run, terminated, update, warned

SESSION, SECOND = SessionId("ses_1"), SessionId("ses_2")
DEEP = {"a": [1, None, {"b": NUL}], "n": 1.5}


@pytest.fixture(autouse=True)
async def sessions(log: Log) -> None:
    await log.open_session(NewSession(session_id=SESSION))
    await log.open_session(NewSession(session_id=SECOND))


async def leave(log: Log, delta: dict[str, Any], *, tenant: TenantId = TENANT_A, **changes: Any) -> None:
    """A run that changes state and ends."""
    await log.submit(new_run(tenant, **changes))
    claimed = await claim(log)
    await log.store.append_if_owner(claimed, [warned()], update(state_delta=delta))
    await log.store.append_if_owner(claimed, [terminated()], update(RunState.COMPLETED))


async def see(log: Log, *, tenant: TenantId = TENANT_A, **changes: Any) -> dict[str, Any]:
    """What the next run finds. It ends."""
    await log.submit(new_run(tenant, **changes))
    claimed = await claim(log)
    state = dict((await log.store.load(claimed)).session_state)
    await log.store.append_if_owner(claimed, [terminated()], update(RunState.COMPLETED))
    return state


async def test_state_comes_back_as_it_was_set(log: Log) -> None:
    await leave(log, {NUL: DEEP, "zero": 0, "no": False}, session_id=SESSION)
    assert await see(log, session_id=SESSION) == {NUL: DEEP, "zero": 0, "no": False}


async def test_a_change_is_stored_with_its_events_and_none_deletes(log: Log) -> None:
    await leave(log, {"a": 1, "b": 2}, session_id=SESSION)
    await leave(log, {"a": 3, "b": None, "never": None}, session_id=SESSION)
    assert await see(log, session_id=SESSION) == {"a": 3}


async def test_a_key_may_be_as_long_as_it_likes(log: Log) -> None:
    first, second = (f"user:{random.Random(1).randbytes(5000).hex()}{end}" for end in "ab")
    await leave(log, {first: 1, second: 2}, user="ada")
    await leave(log, {first: None, second: 3}, user="ada")
    assert await see(log, user="ada") == {second: 3}


async def test_a_running_run_sees_what_it_has_stored(log: Log) -> None:
    await log.submit(new_run(TENANT_A, session_id=SESSION))
    claimed = await claim(log)
    await log.store.append_if_owner(claimed, [warned()], update(state_delta={"a": 1}))
    assert (await log.store.load(claimed)).session_state == {"a": 1}


async def test_plain_keys_are_the_sessions(log: Log) -> None:
    await leave(log, {"a": 1}, session_id=SESSION, user="ada")
    assert await see(log, session_id=SECOND, user="ada") == {}
    assert await see(log, user="ada") == {}


async def test_plain_keys_of_a_run_without_a_session_are_not_kept(log: Log) -> None:
    await leave(log, {"a": 1}, user="ada")
    assert await see(log, user="ada") == {}


async def test_app_keys_are_kept_for_every_run_of_the_agent(log: Log) -> None:
    await leave(log, {"app:a": 1}, session_id=SESSION, user="ada")
    assert await see(log) == {"app:a": 1}
    assert await see(log, session_id=SECOND, user="bob") == {"app:a": 1}


async def test_user_keys_are_kept_for_agent_and_user(log: Log) -> None:
    await leave(log, {"user:a": 1}, user=NUL)
    assert await see(log, user=NUL, session_id=SESSION) == {"user:a": 1}
    assert await see(log, user="bob") == {}


async def test_user_keys_without_a_user_are_not_kept(log: Log) -> None:
    await leave(log, {"user:a": 1}, session_id=SESSION)
    assert await see(log, session_id=SESSION) == {}
    assert await see(log, session_id=SESSION, user="") == {}


async def test_another_agent_sees_neither_app_nor_user_keys(log: Log) -> None:
    await leave(log, {"app:a": 1, "user:a": 2}, user="ada")
    assert await see(log, user="ada", agent=Agent(name="other", instructions="Hm.")) == {}


async def test_another_tenant_sees_none_of_it(log: Log) -> None:
    await leave(log, {"app:a": 1, "user:a": 2}, user="ada")
    assert await see(log, tenant=TENANT_B, user="ada") == {}


async def test_temp_keys_end_with_the_run(log: Log) -> None:
    await leave(log, {"temp:a": 1}, session_id=SESSION, user="ada")
    assert await see(log, session_id=SESSION, user="ada") == {}


async def test_a_session_begins_with_the_state_that_it_was_made_with(log: Log) -> None:
    state = {"a": DEEP, "app:b": 1, "user:c": 2}
    await log.open_session(NewSession(session_id=SessionId("ses_3"), agent=AGENT.name, user="ada", state=state))
    assert await see(log, session_id="ses_3", user="ada") == state
    assert await see(log, user="ada") == {"app:b": 1, "user:c": 2}


async def test_a_stale_claim_changes_no_state(log: Log) -> None:
    await log.submit(new_run(TENANT_A, session_id=SESSION))
    stale = await claim(log, lease_seconds=0.0)
    await log.store.requeue_expired()
    held = await claim(log, OTHER)
    with pytest.raises(LeaseLost):
        await log.store.append_if_owner(stale, [warned()], update(state_delta={"a": 1}))
    assert (await log.store.load(held)).session_state == {}


# --- artifacts -------------------------------------------------------------------------------------------------------


async def test_artifacts_are_kept_in_versions_by_name(log: Log) -> None:
    await log.submit(new_run(TENANT_A, session_id=SESSION))
    claimed = await claim(log)
    versions = [await log.store.save_artifact(claimed, "a.bin", data, "x/y") for data in (b"\x00\xff", b"")]
    versions.append(await log.store.save_artifact(claimed, "B", b"b", "text/plain"))
    found = [await log.store.load_artifact(claimed, "a.bin", version) for version in (1, None)]
    assert versions == [1, 2, 1]
    assert await log.store.list_artifacts(claimed) == ["B", "a.bin"]
    assert [(one.version, one.data) for one in found if one is not None] == [
        (1, b"\x00\xff"),
        (2, b""),
    ]


async def test_an_artifact_tells_type_size_digest_and_who_saved_it(log: Log) -> None:
    run = new_run(TENANT_A, session_id=SESSION)
    await log.submit(run)
    claimed = await claim(log)
    await log.store.save_artifact(claimed, "a", b"abc", "text/plain; charset=utf-8")
    found = await log.store.load_artifact(claimed, "a")
    assert found is not None
    assert (found.name, found.content_type, found.size, found.run_id) == (
        "a",
        "text/plain; charset=utf-8",
        3,
        run.run_id,
    )
    assert found.sha256 == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


@pytest.mark.parametrize("name", ["none", NUL, "\ud800", "ä"])
async def test_an_unknown_artifact_is_none(log: Log, name: str) -> None:
    await log.submit(new_run(TENANT_A, session_id=SESSION))
    claimed = await claim(log)
    await log.store.save_artifact(claimed, "a", b"abc", "x/y")
    assert await log.store.load_artifact(claimed, name) is None
    assert await log.store.load_artifact(claimed, "a", 2) is None


async def test_later_runs_of_the_session_find_its_artifacts_and_other_sessions_do_not(log: Log) -> None:
    await log.submit(new_run(TENANT_A, session_id=SESSION))
    claimed = await claim(log)
    await log.store.save_artifact(claimed, "a", b"abc", "x/y")
    await log.store.append_if_owner(claimed, [terminated()], update(RunState.COMPLETED))
    await log.submit(new_run(TENANT_A, session_id=SESSION))
    same = await claim(log)
    await log.submit(new_run(TENANT_A, session_id=SECOND))
    other = await claim(log)
    assert await log.store.list_artifacts(same) == ["a"]
    assert await log.store.list_artifacts(other) == []
    assert await log.store.load_artifact(other, "a") is None


async def test_a_run_without_a_session_has_no_place_for_artifacts(log: Log) -> None:
    await log.submit(new_run(TENANT_A))
    claimed = await claim(log)
    with pytest.raises(ConfigurationError) as refused:
        await log.store.save_artifact(claimed, "a", b"abc", "x/y")
    assert refused.value.code == "no_session"
    assert await log.store.load_artifact(claimed, "a") is None
    assert list(await log.store.list_artifacts(claimed)) == []


async def test_a_stale_claim_saves_no_artifact(log: Log) -> None:
    await log.submit(new_run(TENANT_A, session_id=SESSION))
    stale = await claim(log, lease_seconds=0.0)
    await log.store.requeue_expired()
    held = await claim(log, OTHER)
    with pytest.raises(LeaseLost):
        await log.store.save_artifact(stale, "a", b"abc", "x/y")
    assert await log.store.list_artifacts(held) == []
