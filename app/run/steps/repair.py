"""Telling the model what was wrong, so that it may do better: an opt-in, and each time is counted."""

from collections.abc import Sequence
from typing import Final

from app.events import RepairRequested
from app.prompt import wrap_untrusted
from app.run.spec import RunSpec
from app.run.state import State

_ASKED: Final = "Your answer does not have the form that was asked for. Answer again, in that form and nothing else."


def may_repair(spec: RunSpec, state: State) -> bool:
    """Whether the agent's author allows one more repair in this run."""
    return spec.agent.repair is not None and state.repairs < spec.agent.repair.max_attempts


def ask_for_repair(spec: RunSpec, state: State, problems: Sequence[str]) -> RepairRequested:
    """The problems are handed over as data: names in them were written by a model."""
    told = f"{_ASKED}\n{wrap_untrusted(chr(10).join(problems), source='schema_violation')}"
    return RepairRequested(attempt=state.repairs + 1, detail=told, iteration=state.iteration, author=spec.agent.name)
