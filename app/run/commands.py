"""What ``decide`` answers: one thing to do. Everything but ``Record`` touches the world and is performed outside."""

from dataclasses import dataclass

from app.events import AnyEvent
from app.ids import ApprovalId, CallId
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
    """Ask the hooks about every call of the turn, and put the questions to people, before any of it goes out."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RequestApproval:
    """Put the question about one call anew: the grant was good for one dispatch."""

    call_id: CallId


@dataclass(frozen=True, kw_only=True, slots=True)
class RequestOutcome:
    """Put the question what became of a call that went out: nobody knows, and it may not be made again unasked."""

    call_id: CallId


@dataclass(frozen=True, kw_only=True, slots=True)
class AskApproval:
    """Wait for a person's answer about one call."""

    call_id: CallId


@dataclass(frozen=True, kw_only=True, slots=True)
class Suspend:
    """Nothing can be done until people have answered: the run gives its worker back."""

    approval_ids: tuple[ApprovalId, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class DispatchTool:
    """``dispatch`` counts from 1: how often this call will then have gone out."""

    call_id: CallId
    dispatch: int


@dataclass(frozen=True, kw_only=True, slots=True)
class DispatchTools:
    """Several calls that may be out at once, in the model's order."""

    dispatches: tuple[DispatchTool, ...]


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


Command = (
    AssemblePrompt
    | CallModel
    | ClearTurn
    | RequestApproval
    | RequestOutcome
    | AskApproval
    | Suspend
    | DispatchTool
    | DispatchTools
    | WaitUntil
    | Record
    | Terminate
)
