"""An event as the log holds it."""

from dataclasses import dataclass
from typing import Final

from app.conversation import Usage
from app.events.kinds import AnyEvent
from app.ids import RunId

_NAMES: Final = ("name", "hook", "guardrail", "callback", "model", "to_model", "cap", "dimension")


@dataclass(frozen=True, kw_only=True, slots=True)
class RunEvent:
    """``seq`` counts 1, 2, 3 … without a gap for each run; ``at`` is the store's clock in epoch seconds.

    ``payload`` is the body as it was stored (JSON text), so that what a reader is sent is what was committed.
    """

    run_id: RunId
    seq: int
    at: float
    body: AnyEvent
    payload: str

    @property
    def kind(self) -> str:
        return self.body.kind

    @property
    def name(self) -> str | None:
        """What the event is about: the tool, hook, guardrail or callback, the model, the cap or the budget's dimension;
        None where it is about the run itself."""
        found = (getattr(self.body, field, None) for field in _NAMES)
        return next((str(name) for name in found if name), None)

    @property
    def detail(self) -> str:
        """For people."""
        return self.body.detail

    @property
    def usage(self) -> Usage | None:
        """The tokens that the event accounts for, None where there are none."""
        usage: Usage | None = getattr(self.body, "usage", None)
        return usage
