"""What the runs of a crashing world are about: what the model says, what the tools are, and who has to be asked."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from app.agents import Agent
from app.execution.memory import MemoryWorkStore
from app.policy import (
    ApprovalDenial,
    BudgetLimits,
    ConcurrencyConfig,
    Effect,
    Indeterminate,
    Outcome,
    RepairConfig,
)
from app.ports.callbacks import CallbackPoint
from app.providers import ScriptedCall, ScriptedError, ScriptedStep
from tests.execution.crash_desk import Word
from tests.execution.crash_people import Say

EFFECTS: Final = {"look": Effect.READ, "put": Effect.IDEMPOTENT, "pay": Effect.ONCE}

_LOOK: Final = ScriptedCall(name="look", arguments={"at": "account"})
_PUT: Final = ScriptedCall(name="put", arguments={"key": "a", "value": 1})
_PAY: Final = ScriptedCall(name="pay", arguments={"amount": 3})
_ACTS: Final = ScriptedStep(text="Let me see.", delta_chars=6, calls=(_LOOK, _PUT, _PAY))
_BROKEN: Final = ScriptedStep(error=ScriptedError(message="overloaded", status=503))
_CLUMSY: Final = ScriptedStep(calls=(_LOOK, ScriptedCall(name="pay", arguments={"wrong": 3})))
_VAGUE: Final = ScriptedStep(text="All is paid.")
_GOOD: Final = ScriptedStep(text='```json\n{"paid": 3}\n```')
_FORM: Final = {"type": "object", "properties": {"paid": {"type": "integer"}}, "required": ["paid"]}


@dataclass(frozen=True, kw_only=True)
class Scene:
    """``scripts`` are what each model says. ``gated`` names the tools that the agent lists for approval,
    ``gated_by_hook`` those for which only the policy wants one. ``flaky`` ones fail at their first dispatch. ``route``
    names the models in their order. ``says`` is what the callbacks answer, ``actions`` what a tool asks of the loop
    beside its result, ``keeping`` names those that save an artifact."""

    scripts: Mapping[str, Sequence[ScriptedStep]]
    agent: Mapping[str, Any] = field(default_factory=dict)
    parallel_safe: frozenset[str] = frozenset()
    gated: tuple[str, ...] = ()
    gated_by_hook: tuple[str, ...] = ()
    flaky: frozenset[str] = frozenset()
    route: tuple[str, ...] = ()
    attempts: int = 3
    says: Mapping[CallbackPoint, Callable[[Mapping[str, Any]], Any]] = field(default_factory=dict)
    actions: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    keeping: frozenset[str] = frozenset()

    @property
    def asked_about(self) -> frozenset[str]:
        """The tools of which no call may go out unasked."""
        return frozenset({*self.gated, *self.gated_by_hook})


PLAIN: Final = Scene(
    scripts={
        "model": [
            ScriptedStep(text="Let me see.", delta_chars=6, calls=(_LOOK, _PAY, _PUT)),
            ScriptedStep(
                error=ScriptedError(message="overloaded", status=503, attempts=1),
                calls=(ScriptedCall(name="pay", arguments={"amount": 4}),),
            ),
            _VAGUE,
        ]
    }
)
# The first model is away: the second one acts, answers in no form, is told so, and answers well.
WHOLE: Final = Scene(
    scripts={"away": [_BROKEN], "stands_in": [_ACTS, _VAGUE, _GOOD]},
    agent={
        "task_class": "clerical",
        "concurrency": ConcurrencyConfig(max_concurrent_tools=2),
        "output_schema": _FORM,
        "repair": RepairConfig(max_attempts=2),
        "idempotent_tools": ("put",),
    },
    parallel_safe=frozenset({"look", "put"}),
    gated=("put", "pay"),
    route=("scripted:away", "scripted:stands_in"),
    attempts=2,
)
# Another model may go on only where nothing was paid.
BREAKS_LATE: Final = replace(
    WHOLE,
    scripts={"acts": [_ACTS, _BROKEN], "answers": [_GOOD, _GOOD]},
    route=("scripted:acts", "scripted:answers"),
)
# The first turn is sent back; then a tool fails where it may be tried again, with an approval of its own.
CLUMSY: Final = replace(
    WHOLE, scripts={"away": [_BROKEN], "stands_in": [_CLUMSY, _ACTS, _VAGUE, _GOOD]}, flaky=frozenset({"put"})
)
# Only the policy wants somebody to be asked about one of the calls.
WATCHED: Final = replace(WHOLE, gated=("pay",), gated_by_hook=("put",))


@dataclass(frozen=True, kw_only=True)
class Setting:
    """The parts of a life that don't change by fate. The person at the desk says ``words`` about one question after
    the other, and the last of them about all that follow; of what was put off one visit decides so many.
    ``runs_of_session``: how many runs of one session were submitted; 0: one run, of none. ``is_kept``: the store keeps
    the questions, and people answer them there: ``says`` about calls, ``outcomes`` about those that were lost.
    ``resumptions``: so often somebody goes on from a run that failed with something open, and says ``resolutions`` of
    its calls in turn."""

    scene: Scene = PLAIN
    on_indeterminate: Indeterminate = Indeterminate.SURFACE
    with_hooks: bool = False
    declared: Mapping[str, Effect] = field(default_factory=lambda: EFFECTS)
    store: type[MemoryWorkStore] = MemoryWorkStore
    words: tuple[Word, ...] = (Word.GRANT,)
    decided_per_visit: int = 1
    ttl_seconds: float | None = None
    denial: ApprovalDenial = ApprovalDenial.REFUSE_CALL
    limits: BudgetLimits = field(default_factory=BudgetLimits)
    deadline_seconds: float | None = None
    max_llm_calls: int = 100
    runs_of_session: int = 0
    is_kept: bool = False
    says: tuple[Say, ...] = (Say.GRANT,)
    outcomes: tuple[Outcome, ...] = (Outcome.SUCCEEDED,)
    resumptions: int = 0
    resolutions: tuple[Outcome, ...] = (Outcome.SUCCEEDED,)

    def agent(self) -> Agent:
        fields = {
            "name": "clerk",
            "instructions": "Pay.",
            "tools": tuple(sorted(EFFECTS)),
            "on_indeterminate": self.on_indeterminate,
            "approval_required_tools": self.scene.gated,
            "approval_denial": self.denial,
            "approval_ttl_seconds": self.ttl_seconds,
        }
        return Agent(**{**fields, **self.scene.agent})


def problems_of(arguments: Mapping[str, Any]) -> Sequence[str]:
    """What is wrong with a call's arguments. Compiling schemas is not what is tested here."""
    return ("/wrong: there is no such field",) if "wrong" in arguments else ()
