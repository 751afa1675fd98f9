"""Rows to records and back. JSON is stored as ASCII text, which holds U+0000 as JSON's own escape."""

import datetime
import itertools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from operator import itemgetter
from typing import Any, Final

from pydantic import TypeAdapter

from app.agents import Agent
from app.conversation import Message, Usage, UsageSource
from app.events import RunEvent, RunState, decode_event, encode_event
from app.ids import CallId, RunId
from app.policy import BudgetLimits, Outcome, ResolvedBudget, Scope
from app.ports.records import CancelWish, ChildSpend, NewRun, RunContextInput, RunRecord
from app.store.tables import runs
from app.store.types import EscapedText, escape_optional, escape_text, unescape_optional, unescape_text

_MESSAGES: Final = TypeAdapter(tuple[Message, ...])
# What a run's record has as its row has it.
_AS_THEY_ARE: Final = (
    *("run_id", "tenant_id", "agent", "agent_version", "subject", "model", "max_llm_calls", "priority"),
    *("output_text", "error_code", "error_detail", "prompt_version", "prompt_fingerprint"),
    *("cost", "model_calls", "tool_calls", "cancel_reason", "cancel_requested_by"),
    *("last_seq", "recoveries", "iterations", "session_id", "parent_run_id", "root_run_id", "depth"),
    *("resumes", "first_run_id", "on_ledger_error"),
)
_read_as_they_are: Final = itemgetter(*_AS_THEY_ARE)
# But for what their columns escape.
_ESCAPED: Final = tuple(name for name in _AS_THEY_ARE if isinstance(runs.c[name].type, EscapedText))


# Made once: for each text json.dumps would make another one.
dump_json: Final[Callable[[Any], str]] = json.JSONEncoder(ensure_ascii=True, separators=(",", ":")).encode


def dump_input(value: str | tuple[Message, ...]) -> str:
    """A JSON string, or a JSON list of messages."""
    if isinstance(value, str):
        return dump_json(value)
    return dump_messages(value)


def load_input(text: str) -> str | tuple[Message, ...]:
    value = json.loads(text)
    return value if isinstance(value, str) else _MESSAGES.validate_python(value)


def dump_messages(messages: tuple[Message, ...]) -> str:
    """A JSON list of messages."""
    return dump_json([message.model_dump(mode="json", exclude_defaults=True) for message in messages])


def load_messages(text: str) -> tuple[Message, ...]:
    return _MESSAGES.validate_python(json.loads(text))


def dump_state(state: Mapping[str, Any]) -> tuple[list[str], list[str | None]]:
    """Keys and the JSON of their values; None stays None, which deletes a key."""
    return (
        [escape_text(key) for key in state],
        [None if value is None else dump_json(value) for value in state.values()],
    )


def load_state(keys: Sequence[str] | None, values: Sequence[str] | None) -> dict[str, Any]:
    """The state that these entries hold; None for no entry at all."""
    stored = zip(keys or (), values or (), strict=True)
    return {unescape_text(key): json.loads(value) for key, value in stored}


def dump_context(context: RunContextInput, *, deterministic: bool = False) -> str:
    """What was asked of a run beside its input. Only what is not the default: a row is the bytes that it was."""
    asked = {"deterministic": True} if deterministic else {}
    return dump_json({"pinned": context.pinned, "retrieved": context.retrieved, **asked})


def load_context(text: str) -> tuple[RunContextInput, bool]:
    """With whether the run was asked to be deterministic."""
    if text == _NO_CONTEXT:
        return RunContextInput(), False
    value = json.loads(text)
    context = RunContextInput(pinned=tuple(value["pinned"]), retrieved=tuple(value["retrieved"]))
    return context, value.get("deterministic", False) is True


_NO_CONTEXT: Final = dump_context(RunContextInput())


def dump_budget(budget: ResolvedBudget) -> str:
    return dump_json(
        {"limits": budget.limits.model_dump(mode="json", exclude_none=True), "sources": dict(budget.sources)}
    )


# Equal texts have equal values for ever, and most runs of an agent have the same budget.
@lru_cache(maxsize=1024)
def load_budget(text: str) -> ResolvedBudget:
    value = json.loads(text)
    return ResolvedBudget(
        limits=BudgetLimits.model_validate(value["limits"]),
        sources={dimension: Scope(scope) for dimension, scope in value["sources"].items()},
    )


def dump_schema(schema: Mapping[str, Any] | None) -> str | None:
    return None if schema is None else dump_json(schema)


def load_agent(definition: str) -> Agent:
    """A stored definition. Its schema was compiled when it was taken, which may have cost a second: not again."""
    agent, schema = _load_agent(definition)
    # A provider is handed the schema, and gets one of its own.
    return agent if schema is None else agent.model_copy(update={"output_schema": json.loads(schema)})


# A version's definition never changes, and is read for each of its runs.
@lru_cache(maxsize=256)
def _load_agent(definition: str) -> tuple[Agent, str | None]:
    """The agent without its schema, and the schema."""
    fields: dict[str, Any] = json.loads(definition)
    schema = fields.pop("output_schema", None)
    return Agent.model_validate(fields), None if schema is None else dump_json(schema)


def new_run_columns(run: NewRun) -> tuple[Any, ...]:
    """What submit_run and adopt_run are told of a run, in their order, from its id to the form of its answer."""
    return (
        run.run_id,
        run.agent.name,
        run.agent_version,
        dump_input(run.input),
        dump_context(run.context, deterministic=run.deterministic),
        escape_optional(run.user),
        escape_optional(run.subject),
        escape_optional(run.model),
        to_optional_instant(run.deadline_at),
        dump_budget(run.budget),
        run.max_llm_calls,
        run.priority,
        dump_json(dict(run.metadata)),
        [escape_text(key) for key in run.metadata],
        [escape_text(value) for value in run.metadata.values()],
        encode_event(run.first_event),
        dump_schema(run.output_schema),
    )


def dump_team(team: Mapping[str, int] | None) -> str | None:
    return None if team is None else dump_json(dict(team))


def new_root_columns(run: NewRun) -> tuple[Any, ...]:
    """What submit_run alone is told of a run, in its order, behind ``new_run_columns``."""
    return (
        run.session_id,
        dump_team(run.team),
        [escape_text(name) for name in sorted(run.needs)],
        run.resumes,
        run.first_run_id,
        dump_resolutions(run.resolutions),
        run.on_ledger_error,
    )


def dump_resolutions(resolutions: Mapping[CallId, Outcome]) -> str | None:
    return dump_json({call_id: outcome.value for call_id, outcome in resolutions.items()}) if resolutions else None


def load_resolutions(text: str | None) -> dict[CallId, Outcome]:
    if text is None:
        return {}
    return {CallId(call_id): Outcome(outcome) for call_id, outcome in json.loads(text).items()}


def to_instant(at: float) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(at, tz=datetime.UTC)


def to_optional_instant(at: float | None) -> datetime.datetime | None:
    return None if at is None else to_instant(at)


def to_epoch(instant: datetime.datetime | None) -> float | None:
    """Epoch seconds; the column's microseconds survive the way through a float and back."""
    return None if instant is None else instant.timestamp()


def to_run_record(row: Mapping[str, Any]) -> RunRecord:
    """A row of runs as the driver reads it. Other columns beside the run's don't matter."""
    told = dict(zip(_AS_THEY_ARE, _read_as_they_are(row), strict=True))
    for name in _ESCAPED:
        told[name] = unescape_optional(told[name])
    context, deterministic = load_context(row["context"])
    return RunRecord(
        **told,
        state=RunState(row["state"]),
        input=load_input(row["input"]),
        context=context,
        deterministic=deterministic,
        user=unescape_optional(row["caller"]),
        output_schema=None if row["output_schema"] is None else json.loads(row["output_schema"]),
        deadline_at=to_epoch(row["deadline_at"]),
        budget=load_budget(row["budget"]),
        metadata=json.loads(row["metadata"]),
        usage=Usage(
            input_tokens=row["input_tokens"],
            cached_tokens=row["cached_tokens"],
            output_tokens=row["output_tokens"],
            source=UsageSource(row["usage_source"]),
        ),
        cancel_requested_at=to_epoch(row["cancel_requested_at"]),
        created_at=row["created_at"].timestamp(),
        started_at=to_epoch(row["started_at"]),
        ended_at=to_epoch(row["ended_at"]),
        path=tuple(row["path"] or (row["agent"],)),
        team=None if row["team"] is None else json.loads(row["team"]),
        resolutions=load_resolutions(row["resolutions"]),
    )


def to_event(row: Mapping[str, Any]) -> RunEvent:
    """A row of events, with its run's id."""
    return RunEvent(
        run_id=RunId(row["run_id"]),
        seq=row["seq"],
        at=row["at"].timestamp(),
        body=decode_event(row["kind"], row["payload"]),
        payload=row["payload"],
    )


def to_logs(rows: Iterable[Mapping[str, Any]]) -> tuple[tuple[RunEvent, ...], ...]:
    """The logs of several runs, in the order in which these rows tell them, one after the other."""
    events = map(to_event, rows)
    return tuple(tuple(log) for _, log in itertools.groupby(events, key=lambda event: event.run_id))


def to_children(text: str | None) -> tuple[ChildSpend, ...]:
    """The JSON that load_run tells of the runs below one."""
    return tuple(
        ChildSpend(
            run_id=RunId(child["run_id"]),
            parent_run_id=RunId(child["parent_run_id"]),
            usage=Usage(
                input_tokens=child["input_tokens"],
                cached_tokens=child["cached_tokens"],
                output_tokens=child["output_tokens"],
                source=UsageSource(child["source"]),
            ),
            cost=None if child["cost"] is None else Decimal(child["cost"]),
            model_calls=child["model_calls"],
            tool_calls=child["tool_calls"],
            iterations=child["iterations"],
        )
        for child in json.loads(text or "[]")
    )


def to_cancel_wish(record: RunRecord) -> CancelWish | None:
    if record.cancel_requested_at is None:
        return None
    return CancelWish(reason=record.cancel_reason, requested_by=record.cancel_requested_by)
