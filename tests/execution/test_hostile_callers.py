"""Callers, and parts of a runner, that are not what they should be: refused before anything starts."""

from collections.abc import Sequence
from typing import Any

import pytest
from pydantic import ValidationError

from app import (
    AgentRunner,
    BudgetLimits,
    CheckpointStore,
    ConfigurationError,
    Deadline,
    Message,
    RunState,
    Tool,
    ToolRegistry,
    tool,
)
from app.providers import ScriptedProvider
from app.tools.functions import FunctionTool
from tests.execution.desk import Office, payer, paying
from tests.execution.fakes import Recorder, make_tool, say
from tests.execution.support import clerk

NAN, INFINITE = float("nan"), float("inf")


def speaking(**fields: Any) -> tuple[ScriptedProvider, AgentRunner]:
    provider = ScriptedProvider({"model": [say("Well.")]})
    return provider, AgentRunner(provider=provider, **fields)


async def refused(agent: Any = None, *, runner: dict[str, Any] | None = None, **asked: Any) -> ConfigurationError:
    """The error of a run that was refused before anything started: nothing was kept, and no model was asked."""
    kept = CheckpointStore()
    provider, made = speaking(checkpoints=kept, **(runner or {}))
    with pytest.raises(ConfigurationError) as caught:
        await made.run(agent or clerk(), **{"input": "Go.", "tenant": "acme", **asked})
    assert (kept.run_ids(), len(provider.requests), caught.value.run) == ((), 0, None)
    return caught.value


# --- names -----------------------------------------------------------------------------------------------------------

NO_NAME: dict[str, Any] = {
    "nothing": "",
    "a number": 5,
    "bytes": b"acme",
    "a surrogate": "acme\ud800",
    "a zero": "ac\x00me",
}


@pytest.mark.parametrize("tenant", [*NO_NAME.values(), None], ids=[*NO_NAME, "none"])
async def test_a_tenant_is_a_text_that_can_be_stored(tenant: Any) -> None:
    await refused(tenant=tenant)


@pytest.mark.parametrize("run_id", NO_NAME.values(), ids=NO_NAME)
async def test_a_runs_id_is_a_text_that_can_be_stored(run_id: Any) -> None:
    await refused(run_id=run_id)


async def test_a_tenant_may_be_written_in_any_letters() -> None:
    _, runner = speaking()
    run = await runner.run(clerk(), "Go.", tenant="京都 🚄", run_id="nightly 7")
    assert (run.state, run.run_id) == (RunState.COMPLETED, "nightly 7")


# --- models and tools ------------------------------------------------------------------------------------------------


class Routes:
    """A router that names these models, or raises."""

    def __init__(self, answer: Sequence[str] | Exception) -> None:
        self._answer = answer

    def route(self, task_class: str) -> Sequence[str]:
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


async def test_a_model_that_its_provider_does_not_have_is_refused() -> None:
    error = await refused(clerk(model="scripted:other"))
    assert "other" in str(error)


async def test_a_model_further_down_a_route_that_its_provider_does_not_have_is_refused() -> None:
    router = Routes(["scripted:model", "scripted:other"])
    error = await refused(clerk(task_class="draft"), runner={"router": router})
    assert "other" in str(error)


@pytest.mark.parametrize("failure", [KeyError("draft"), RuntimeError("broken"), TypeError()], ids=repr)
async def test_whatever_a_router_raises_is_a_mistake_of_the_configuration(failure: Exception) -> None:
    await refused(clerk(task_class="draft"), runner={"router": Routes(failure)})


@pytest.mark.parametrize("route", [[], [5], None, [None]], ids=repr)
async def test_a_route_names_models(route: Any) -> None:
    await refused(clerk(task_class="draft"), runner={"router": Routes(route)})


class Doubled(ToolRegistry):
    """Says each of its tools twice."""

    def all(self) -> Sequence[Tool]:
        return (*super().all(), *super().all())


async def test_two_tools_of_one_name_are_refused() -> None:
    tools = Doubled()
    tools.register(make_tool("look", Recorder()))
    error = await refused(clerk(tools=("look",)), runner={"tools": tools})
    assert "look" in str(error)


# --- what a run is given ---------------------------------------------------------------------------------------------

WRONG: dict[str, dict[str, Any]] = {
    "a history of dicts": {"history": [{"role": "user", "content": "Hi."}]},
    "a history of texts": {"history": ["Hi."]},
    "a text for a history": {"history": "Hi."},
    "no history": {"history": None},
    "a text pinned": {"pinned": "a fact"},
    "numbers pinned": {"pinned": [5]},
    "nothing pinned": {"pinned": None},
    "a text retrieved": {"retrieved": "a page"},
    "bytes retrieved": {"retrieved": [b"a page"]},
    "nothing retrieved": {"retrieved": None},
    "a dict for a budget": {"budget": {"max_model_calls": 1}},
    "a number for a budget": {"budget": 3},
}


@pytest.mark.parametrize("asked", WRONG.values(), ids=WRONG)
async def test_what_a_run_is_given_has_to_be_of_its_type(asked: dict[str, Any]) -> None:
    await refused(**asked)


@pytest.mark.parametrize("asked", WRONG.values(), ids=WRONG)
async def test_a_stream_is_refused_for_the_same_reasons(asked: dict[str, Any]) -> None:
    provider, runner = speaking()
    with pytest.raises(ConfigurationError):
        await anext(runner.stream(clerk(), "Go.", tenant="acme", **asked))
    assert len(provider.requests) == 0


async def test_any_iterable_of_the_right_things_will_do() -> None:
    provider, runner = speaking()
    given: dict[str, Any] = {"pinned": iter(["a fact"]), "history": iter([Message.model_validate({"role": "user"})])}
    run = await runner.run(clerk(), "Go.", tenant="acme", **given)
    assert (run.state, len(provider.requests[0].messages)) == (RunState.COMPLETED, 4)


@pytest.mark.parametrize("place", ["pinned", "retrieved"])
async def test_what_no_database_would_take_is_replaced_in_given_text(place: str) -> None:
    provider, runner = speaking()
    given: dict[str, Any] = {place: ["one\ud800two"]}
    run = await runner.run(clerk(), "Go.", tenant="acme", **given)
    sent = "\n".join(message.content for message in provider.requests[0].messages)
    assert (run.state, "one\N{REPLACEMENT CHARACTER}two" in sent) == (RunState.COMPLETED, True)


# --- times -----------------------------------------------------------------------------------------------------------


def test_a_deadline_is_an_instant() -> None:
    with pytest.raises(ValueError, match="instant"):
        Deadline(at=NAN)


NO_TIMEOUT: dict[str, Any] = {"zero": 0, "negative": -1.0, "nan": NAN, "infinite": INFINITE, "a text": "5"}


@pytest.mark.parametrize("seconds", NO_TIMEOUT.values(), ids=NO_TIMEOUT)
def test_a_tools_timeout_is_a_time(seconds: Any) -> None:
    with pytest.raises((ValueError, TypeError, ConfigurationError)):
        ToolRegistry().register(make_tool("look", Recorder(), timeout_seconds=seconds))


@pytest.mark.parametrize("seconds", NO_TIMEOUT.values(), ids=NO_TIMEOUT)
def test_a_functions_timeout_is_a_time(seconds: Any) -> None:
    with pytest.raises((ValueError, TypeError, ConfigurationError)):
        ToolRegistry().register(_timed(seconds))


def _timed(seconds: Any) -> FunctionTool:
    def look() -> str:
        """Looks."""
        return "done"

    return tool(look, timeout_seconds=seconds)


@pytest.mark.parametrize("seconds", [0, -1.0, NAN, INFINITE])
def test_an_approval_stands_for_a_time(seconds: float) -> None:
    with pytest.raises(ConfigurationError):
        speaking(approval_ttl_seconds=seconds)


@pytest.mark.parametrize("seconds", [0, -1.0, NAN, INFINITE])
def test_an_agents_approval_stands_for_a_time(seconds: float) -> None:
    with pytest.raises(ValidationError):
        payer(approval_ttl_seconds=seconds)


async def test_times_that_are_some_are_taken() -> None:
    office: Office = paying(approval_ttl_seconds=900, pay_fields={"timeout_seconds": 5.0})
    with pytest.raises(ConfigurationError, match="gate"):
        await office.run(budget=BudgetLimits(max_seconds=60))
