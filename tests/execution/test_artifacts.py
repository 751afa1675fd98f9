"""What tools and callbacks keep in their session by name, and what they can't keep."""

from collections.abc import Callable
from typing import Any, Final

import pytest

from app.events import AnyEvent, ArtifactDelta, ToolFailed
from app.execution.adk import Event
from app.execution.memory_sessions import InMemorySessions
from app.ids import SessionId, TenantId
from app.ports.sessions import Artifact
from app.ports.tools import ToolContext
from app.providers import ScriptedProvider
from tests.execution.adk.talking import SESSION, Conversation, script
from tests.execution.crew import Crew, member
from tests.execution.fakes import call, make_tool, say
from tests.execution.support import clerk

MIB: Final = 1_048_576


class Keeps:
    """A tool that saves what it was told to, one after the other."""

    def __init__(self, *saved: tuple[Any, ...], then: Exception | None = None) -> None:
        self.versions: list[int] = []
        self._saved = saved
        self._then = then

    async def __call__(self, arguments: dict[str, Any], context: ToolContext) -> str:
        self.versions += [await context.save_artifact(*saved) for saved in self._saved]
        if self._then is not None:
            raise self._then
        return "kept"


def keeping(keeps: Keeps, **fields: Any) -> Conversation:
    return Conversation(clerk(tools=("keep",), **fields), script(call("keep"), say("Done.")), make_tool("keep", keeps))


def bodies(events: list[Event], kind: type[AnyEvent]) -> list[Any]:
    return [event.run_event.body for event in events if event.run_event and isinstance(event.run_event.body, kind)]


def kept(sessions: InMemorySessions, name: str) -> Artifact | None:
    return sessions.book.artifact(TenantId("default"), SessionId(SESSION), name, None)


async def test_each_save_is_the_next_version_of_its_name() -> None:
    keeps = Keeps(("a.txt", "one"), ("a.txt", "two"), ("b.txt", "three"))
    await (await keeping(keeps).open()).tell()
    assert keeps.versions == [1, 2, 1]


async def test_what_a_call_saved_is_told_in_front_of_its_result_by_the_newest_versions() -> None:
    events = await (await keeping(Keeps(("a.txt", "one"), ("a.txt", "two"))).open()).tell()
    [result] = [event for event in events if event.get_function_responses()]
    [delta] = bodies(events, ArtifactDelta)
    assert (delta.actions.artifact_delta, result.actions.artifact_delta) == ({"a.txt": 2}, {"a.txt": 2})


async def test_what_a_call_saved_stays_and_is_told_although_the_call_failed() -> None:
    talk = await keeping(Keeps(("a.txt", "one"), then=ValueError("later"))).open()
    events = await talk.tell()
    assert [delta.actions.artifact_delta for delta in bodies(events, ArtifactDelta)] == [{"a.txt": 1}]
    assert kept(talk.sessions, "a.txt") is not None


@pytest.mark.parametrize(
    ("name", "data", "given", "content_type"),
    [
        ("a.csv", b"1,2", None, "text/csv"),
        ("a.csv", b"1,2", "text/plain", "text/plain"),
        ("a", "text", None, "text/plain; charset=utf-8"),
        ("a", b"bytes", None, "application/octet-stream"),
    ],
)
async def test_an_artifact_has_the_type_that_it_is_given_or_the_one_of_its_name(
    name: str, data: bytes | str, given: str | None, content_type: str
) -> None:
    talk = await keeping(Keeps((name, data, given))).open()
    await talk.tell()
    found = kept(talk.sessions, name)
    assert found is not None
    assert found.content_type == content_type


async def test_an_artifact_may_have_a_mebibyte() -> None:
    keeps = Keeps(("a", b"x" * MIB))
    await (await keeping(keeps).open()).tell()
    assert keeps.versions == [1]


@pytest.mark.parametrize(
    ("saved", "code"),
    [
        (("a", b"x" * (MIB + 1)), "artifact_too_large"),
        (("a", "ü" * (MIB // 2 + 1)), "artifact_too_large"),
        (("", b"x"), "artifact_name"),
        (("x" * 129, b"x"), "artifact_name"),
        (("../a", b"x"), "artifact_name"),
        (("user:a", b"x"), "artifact_name"),
        (("a", b"x", "text"), "artifact_type"),
        (("a", b"x", "text/plain\r\nX: y"), "artifact_type"),
    ],
)
async def test_what_can_not_be_kept_fails_the_call_by_its_code_and_is_not_kept(
    saved: tuple[Any, ...], code: str
) -> None:
    talk = await keeping(Keeps(saved)).open()
    events = await talk.tell()
    assert [failed.code for failed in bodies(events, ToolFailed)] == [code]
    assert bodies(events, ArtifactDelta) == []
    assert kept(talk.sessions, saved[0]) is None


async def test_a_run_without_a_session_keeps_nothing() -> None:
    crew = Crew({"root": [call("keep"), say("Done.")]}, {"keep": Keeps(("a", b"x"))})
    run = await crew.run(member("root", tools=("keep",)))
    assert [event.body.code for event in run.events if isinstance(event.body, ToolFailed)] == ["no_session"]


def saves(point: str) -> Callable[..., Any]:
    async def save(**given: Any) -> None:
        context = given.get("tool_context") or given["callback_context"]
        await context.save_artifact("seen.txt", point)

    return save


@pytest.mark.parametrize("point", ["before_agent", "after_agent", "before_model", "after_model", "after_tool"])
async def test_a_callback_keeps_artifacts_as_a_tool_does(point: str) -> None:
    talk = await keeping(Keeps(), **{f"{point}_callback": saves(point)}).open()
    events = await talk.tell()
    assert {"seen.txt": 1} in [delta.actions.artifact_delta for delta in bodies(events, ArtifactDelta)]
    found = kept(talk.sessions, "seen.txt")
    assert found is not None
    assert found.data == point.encode()


async def test_a_later_run_of_the_session_loads_what_an_earlier_one_kept() -> None:
    seen: list[Any] = []

    async def look(arguments: dict[str, Any], context: ToolContext) -> str:
        newest, first = await context.load_artifact("a.txt"), await context.load_artifact("a.txt", 1)
        seen.extend([newest, first, await context.load_artifact("b.txt"), await context.list_artifacts()])
        return "looked"

    steps = iter([call("keep"), say("Done."), call("look"), say("Seen.")])
    plays = ScriptedProvider({"model": lambda request: next(steps)})
    keep = make_tool("keep", Keeps(("a.txt", "one"), ("a.txt", "two")))
    talk = await Conversation(clerk(tools=("keep", "look")), plays, keep, make_tool("look", look)).open()
    await talk.tell()
    await talk.tell("And now?")
    newest, first, missing, names = seen
    assert (newest.data, first.data, missing, list(names)) == (b"two", b"one", None, ["a.txt"])
