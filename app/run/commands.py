"""What ``decide`` answers: one thing to do. Everything but ``Record`` touches the world and is performed outside."""

from dataclasses import dataclass

from app.events import AnyEvent
from app.ids import CallId
from app.run.causes import Cause


@dataclass(frozen=True, kw_only=True, slots=True)
class AssemblePrompt:
    """Ask the hooks and guardrails about the input, and put the prompt together."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CallModel:
    """``max_output_tokens``: what the budget leaves for this call; None where it leaves that open."""

    iteration: int
    attempt: int
    max_output_tokens: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class ClearTurn:
    """Ask the hooks about every call of the turn, before any of them goes out."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DispatchTool:
    """``dispatch`` counts from 1: how often this call will then have gone out."""

    call_id: CallId
    dispatch: int


@dataclass(frozen=True, kw_only=True, slots=True)
class WaitUntil:
    """A backoff: until ``at`` (epoch seconds) there is nothing to do."""

    at: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Record:
    """Store these events, which settle something without touching the world, and decide again."""

    events: tuple[AnyEvent, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Terminate:
    cause: Cause


Command = AssemblePrompt | CallModel | ClearTurn | DispatchTool | WaitUntil | Record | Terminate
