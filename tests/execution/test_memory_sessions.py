"""Sessions of the library: whose they are, and what they hold."""

from typing import Any

import pytest

from app.conversation import Message, Role
from app.errors import ConfigurationError, SessionBusyError
from app.execution.memory_sessions import InMemorySessions, Session
from app.ids import RunId, SessionId, TenantId
from app.testing import FakeClock

TENANT = TenantId("default")
HELLO = (Message(role=Role.USER, content="hello"),)


@pytest.fixture
def sessions() -> InMemorySessions:
    return InMemorySessions(FakeClock())


async def create(sessions: InMemorySessions, **changes: Any) -> Session:
    return await sessions.create_session(**{"user_id": "ada", "session_id": "ses_1", "app_name": "clerk", **changes})


async def get(sessions: InMemorySessions, **changes: Any) -> Session | None:
    return await sessions.get_session(**{"user_id": "ada", "session_id": "ses_1", "app_name": "clerk", **changes})


def leave_turn(sessions: InMemorySessions, last_agent: str | None = None) -> None:
    book = sessions.book
    seq = book.admit(TENANT, SessionId("ses_1"), RunId("run_1"), now=1.0)
    book.end_turn(TENANT, SessionId("ses_1"), seq, items=HELLO, last_agent=last_agent, now=2.0)


async def test_a_session_comes_back_as_it_was_made(sessions: InMemorySessions) -> None:
    made = await create(sessions, state={"a": [1], "app:b": 2, "user:c": 3})
    assert (made.id, made.user_id, made.app_name) == ("ses_1", "ada", "clerk")
    assert (made.state, made.messages, made.last_agent) == ({"a": [1], "app:b": 2, "user:c": 3}, (), None)
    assert await get(sessions) == made


async def test_a_session_without_an_id_is_given_one_of_its_own(sessions: InMemorySessions) -> None:
    first, second = await create(sessions, session_id=None), await create(sessions, session_id=None)
    assert first.id.startswith("ses_")
    assert first.id != second.id


async def test_an_id_that_is_taken_is_refused(sessions: InMemorySessions) -> None:
    await create(sessions)
    with pytest.raises(ConfigurationError) as refused:
        await create(sessions)
    assert refused.value.code == "session_exists"


async def test_tenants_may_use_the_same_id(sessions: InMemorySessions) -> None:
    await create(sessions, state={"a": 1})
    await create(sessions, tenant="other")
    found = await get(sessions, tenant="other")
    assert found is not None
    assert found.state == {}


@pytest.mark.parametrize("who", [{"user_id": "bob"}, {"app_name": "other"}, {"tenant": "other"}, {"session_id": "x"}])
async def test_a_session_of_somebody_else_does_not_exist(sessions: InMemorySessions, who: dict[str, str]) -> None:
    await create(sessions)
    assert await get(sessions, **who) is None
    assert not await sessions.delete_session(**{"user_id": "ada", "session_id": "ses_1", "app_name": "clerk", **who})
    assert await get(sessions) is not None


async def test_a_session_without_an_app_is_open_to_any(sessions: InMemorySessions) -> None:
    await create(sessions, app_name=None)
    assert await get(sessions, app_name="any") is not None
    assert await get(sessions, app_name=None) is not None


async def test_state_of_app_and_user_is_shared_by_their_sessions(sessions: InMemorySessions) -> None:
    await create(sessions, state={"app:b": 2, "user:c": 3})
    same = await create(sessions, session_id="ses_2")
    other = await create(sessions, session_id="ses_3", user_id="bob")
    assert (same.state, other.state) == ({"app:b": 2, "user:c": 3}, {"app:b": 2})


async def test_a_session_without_an_app_shows_the_state_of_whoever_asks(sessions: InMemorySessions) -> None:
    await create(sessions, session_id="ses_2", state={"app:b": 2})
    await create(sessions, app_name=None)
    found = await get(sessions)
    assert found is not None
    assert found.state == {"app:b": 2}


async def test_changing_a_session_in_hand_changes_nothing_that_is_kept(sessions: InMemorySessions) -> None:
    state = {"a": [1]}
    made = await create(sessions, state=state)
    state["a"].append(2)
    made.state["a"].append(3)
    found = await get(sessions)
    assert found is not None
    assert found.state == {"a": [1]}


@pytest.mark.parametrize("state", [{"temp:a": 1}, {"a": object()}, {"a": float("nan")}])
async def test_state_that_can_not_be_kept_is_refused(sessions: InMemorySessions, state: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        await create(sessions, state=state)
    assert await get(sessions) is None


@pytest.mark.parametrize("key", ["app:a", "user:a"])
async def test_state_of_an_app_needs_one(sessions: InMemorySessions, key: str) -> None:
    with pytest.raises(ConfigurationError, match="app_name"):
        await create(sessions, app_name=None, state={key: 1})


async def test_what_was_said_and_by_whom_is_in_the_session(sessions: InMemorySessions) -> None:
    await create(sessions)
    leave_turn(sessions, "billing")
    found = await get(sessions)
    assert found is not None
    assert (found.messages, found.last_agent, found.updated_at) == (HELLO, "billing", 2.0)


async def test_sessions_are_listed_by_user_and_app(sessions: InMemorySessions) -> None:
    await create(sessions)
    await create(sessions, session_id="ses_2", app_name="other")
    await create(sessions, session_id="ses_3", user_id="bob")
    listed = await sessions.list_sessions(user_id="ada")
    clerks = await sessions.list_sessions(user_id="ada", app_name="clerk")
    assert ([one.id for one in listed], [one.id for one in clerks]) == (["ses_1", "ses_2"], ["ses_1"])


async def test_a_deleted_session_is_gone(sessions: InMemorySessions) -> None:
    await create(sessions)
    leave_turn(sessions)
    assert await sessions.delete_session(user_id="ada", session_id="ses_1")
    assert await get(sessions) is None


async def test_a_session_with_a_run_that_goes_on_is_not_deleted(sessions: InMemorySessions) -> None:
    await create(sessions)
    sessions.book.admit(TENANT, SessionId("ses_1"), RunId("run_1"), now=1.0)
    with pytest.raises(SessionBusyError):
        await sessions.delete_session(user_id="ada", session_id="ses_1")
    assert await get(sessions) is not None


async def test_a_run_that_is_forgotten_frees_its_session(sessions: InMemorySessions) -> None:
    await create(sessions)
    seq = sessions.book.admit(TENANT, SessionId("ses_1"), RunId("run_1"), now=1.0)
    later = sessions.book.admit(TENANT, SessionId("ses_1"), RunId("run_2"), now=1.0)
    was_blocked = sessions.book.is_blocked(TENANT, SessionId("ses_1"), later)
    sessions.book.withdraw(TENANT, SessionId("ses_1"), seq)
    assert was_blocked
    assert not sessions.book.is_blocked(TENANT, SessionId("ses_1"), later)
