"""What one process knows of a run beside its log."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from app.agents import Agent
from app.events import AnyEvent
from app.execution.answers import AnswerForm
from app.policy import RunBudget


@dataclass(frozen=True, kw_only=True, slots=True)
class Start:
    """What a run was started with in this process. ``budgets``: those that it spends of beside its own, and ``holder``
    its name in their books. ``notes`` are told with its start. ``form`` reads its answer.

    Of a run that another one called: ``agent`` stands for the stored one, with the caller's rules; ``is_flagged``: the
    caller has read what looks like an instruction; ``state`` is what its tools find of their caller's.
    """

    budgets: tuple[RunBudget, ...] = ()
    holder: str | None = None
    notes: tuple[AnyEvent, ...] = ()
    form: AnswerForm | None = None
    agent: Agent | None = None
    is_flagged: bool = False
    state: Mapping[str, Any] = field(default_factory=dict)
