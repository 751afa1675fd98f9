"""The run loop without its world: state, transitions, fold, decide.

Promises kept in this room (numbers as in docs/architecture.md):

1.  State is ``fold(log)``. Nothing else is stored about where the loop stands.
6.  ``terminated`` exists exactly once: the ended phase has no arrows out.
8.  A claim abandons the model call that was in flight; an estimate of it is charged.
12. Time and ids come from outside.
"""

from app.run.attribution import CostPart, attribute_costs
from app.run.causes import Cause, state_of
from app.run.commands import (
    AskApproval,
    AssemblePrompt,
    CallModel,
    ClearTurn,
    Command,
    DispatchTool,
    DispatchTools,
    Record,
    RequestApproval,
    RequestOutcome,
    Suspend,
    Terminate,
    WaitUntil,
)
from app.run.decide import Situation, decide
from app.run.fold import fold, fold_all
from app.run.plan import Plan, plan
from app.run.spec import RunSpec
from app.run.state import CallProgress, CallStatus, Phase, State
from app.run.transitions import IllegalEvent

__all__ = [
    "AskApproval",
    "AssemblePrompt",
    "CallModel",
    "CallProgress",
    "CallStatus",
    "Cause",
    "ClearTurn",
    "Command",
    "CostPart",
    "DispatchTool",
    "DispatchTools",
    "IllegalEvent",
    "Phase",
    "Plan",
    "Record",
    "RequestApproval",
    "RequestOutcome",
    "RunSpec",
    "Situation",
    "State",
    "Suspend",
    "Terminate",
    "WaitUntil",
    "attribute_costs",
    "decide",
    "fold",
    "fold_all",
    "plan",
    "state_of",
]
