"""Writes the parts of docs/ that are drawn from the code: ``make docs``. A test fails when they are stale.

A drawn part stands between ``<!-- name -->`` and ``<!-- /name -->``.
"""

import inspect
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from app.agents import Agent
from app.cli.settings import render_settings
from app.events import EVENT_CLASSES, EventBody
from app.execution.adk import EVENT_MAP
from app.observability import Metrics
from app.observability.deployment import show_deployment
from app.policy import BudgetLimits, DeadlineConfig, RetryConfig
from app.ports.records import Snapshot
from app.run.causes import STATE_BY_CODE
from app.run.state import Phase
from app.run.transitions import TABLE
from tests.compat.page import draw_differences, draw_scenarios
from tests.isolation.figures import draw_probes

DOCS = Path(__file__).parent


def draw_transitions() -> str:
    """A Mermaid diagram: one arrow for all events that lead from one phase to another."""
    lines = ["```mermaid", "stateDiagram-v2", "    [*] --> new"]
    for phase, moves in TABLE.items():
        for target in Phase:
            labels = sorted(label for label, to in moves.items() if to is target and target is not phase)
            if labels:
                lines.append(f"    {phase.value} --> {target.value}: {', '.join(labels).replace(':', ' ')}")
    lines += ["    ended --> [*]", "```"]
    return "\n".join(lines)


def draw_events() -> str:
    """Every kind with its own fields and what it tells."""
    lines = ["| kind | carries | told when |", "| --- | --- | --- |"]
    for cls in sorted(EVENT_CLASSES, key=lambda cls: str(cls.model_fields["kind"].default)):
        own = [name for name in cls.model_fields if name not in EventBody.model_fields and name != "kind"]
        fields = ", ".join(f"`{name}`" for name in own)
        lines.append(f"| `{cls.model_fields['kind'].default}` | {fields} | {_first_sentence(cls)} |")
    return "\n".join(lines)


def _first_sentence(cls: type[EventBody]) -> str:
    text = inspect.getdoc(cls) if cls.__doc__ else ""
    return " ".join((text or "").split("\n\n")[0].split()).replace("|", "\\|")


def draw_causes() -> str:
    """Error code to terminal state."""
    lines = ["| `error.code` | state |", "| --- | --- |"]
    lines += [
        f"| {'none' if code is None else f'`{code}`'} | `{state.value}` |" for code, state in STATE_BY_CODE.items()
    ]
    return "\n".join(lines)


# Of an agent's fields, those that bound or shape a run.
_BOUNDS = (
    "max_iterations",
    "max_llm_calls",
    "max_tool_result_chars",
    "loop",
    "concurrency",
    "repair",
    "history",
    "on_tool_error",
    "on_indeterminate",
    "approval_denial",
    "approval_ttl_seconds",
)


def draw_defaults() -> str:
    """What holds where nobody says anything."""
    agent = Agent(name="agent", instructions="Help.")
    rows = [row for field in _BOUNDS for row in _default_rows(f"Agent.{field}", getattr(agent, field))]
    rows += _default_rows("deadlines", DeadlineConfig())
    rows += _default_rows("retry", RetryConfig())
    rows += _default_rows("budget", BudgetLimits.conservative())
    return "\n".join(["| setting | default |", "| --- | --- |", *rows])


def _default_rows(name: str, value: Any) -> Iterable[str]:
    if isinstance(value, BaseModel):
        return [row for field, part in value for row in _default_rows(f"{name}.{field}", part)]
    written = f"`{value.value}`" if isinstance(value, StrEnum) else "none" if value is None else f"{value:,g}"
    return [f"| `{name}` | {written} |"]


def draw_event_map() -> str:
    """What each kind becomes as an event of a conversation; kinds that become nothing but bookkeeping share a row."""
    lines = ["| kind | `content` | `actions` | `error_code`, `error_message` |", "| --- | --- | --- | --- |"]
    silent = [kind for kind, shape in sorted(EVENT_MAP.items()) if not (shape.content or shape.actions or shape.error)]
    for kind, shape in sorted(EVENT_MAP.items()):
        if kind not in silent:
            actions = ", ".join(f"`{name}`" for name in shape.actions)
            lines.append(f"| `{kind}` | {_says(shape.content)} | {actions} | {_says(shape.error)} |")
    lines.append(f"| {', '.join(f'`{kind}`' for kind in silent)} | | | |")
    return "\n".join(lines)


def _says(make: Callable[..., Any] | None) -> str:
    return "" if make is None else " ".join((inspect.getdoc(make) or "").split())


def draw_metrics() -> str:
    """Every figure with its type, its labels and what it tells."""
    snapshot = Snapshot(runs_by_state={}, oldest_queued_seconds=0.0)
    shared = {family.name for family in show_deployment(snapshot)} - {"runwright_database_up"}
    metrics = Metrics()
    # What has open labels is there from the first request on.
    metrics.request_answered(method="GET", route="/runs", status=200, seconds=0.0)
    lines = ["| figure | type | labels | of | tells |", "| --- | --- | --- | --- | --- |"]
    for family in sorted(metrics.collect(snapshot), key=lambda family: family.name):
        if family.name.startswith("runwright_"):
            name = f"{family.name}_total" if family.type == "counter" else family.name
            found = dict.fromkeys(label for sample in family.samples for label in sample.labels if label != "le")
            labels = ", ".join(f"`{label}`" for label in found)
            whose = "the deployment" if family.name in shared else "the process"
            lines.append(f"| `{name}` | {family.type} | {labels} | {whose} | {family.documentation} |")
    return "\n".join(lines)


DRAWN: Mapping[str, Mapping[str, Callable[[], str]]] = {
    "compatibility.md": {"differences": draw_differences, "scenarios": draw_scenarios},
    "settings.md": {"settings": render_settings},
    "run-loop.md": {
        "transitions": draw_transitions,
        "events": draw_events,
        "causes": draw_causes,
        "defaults": draw_defaults,
    },
    "metrics.md": {"metrics": draw_metrics},
    "runtime.md": {"event-map": draw_event_map},
    "security.md": {"probes": draw_probes},
}


def redraw(name: str) -> tuple[str, str]:
    """A file's text as it is, and as it should be. Raises ValueError where a marker is missing."""
    before = (DOCS / name).read_text(encoding="utf-8")
    after = before
    for part, draw in DRAWN[name].items():
        pattern = re.compile(rf"(<!-- {part} -->\n).*?(<!-- /{part} -->)", re.DOTALL)
        found = pattern.search(after)
        if found is None:
            raise ValueError(f"{name} has no place for {part}")
        head, tail = found[1], found[2]
        after = f"{after[: found.start()]}{head}\n{draw()}\n\n{tail}{after[found.end() :]}"
    return before, after


def main() -> None:
    for name in DRAWN:
        before, after = redraw(name)
        if before != after:
            (DOCS / name).write_text(after, encoding="utf-8")
            sys.stdout.write(f"{name} was redrawn\n")


if __name__ == "__main__":
    main()
