"""Rules that bound a run, as values and pure functions: budgets and the ledger, prices, deadlines, retries, caps,
effects, approvals."""

from app.policy.approvals import (
    ApprovalDecision,
    ApprovalDenial,
    ApprovalKind,
    ApprovalRecord,
    Outcome,
    Verdict,
    arguments_digest,
    judge_decision,
    keyed_digest,
    summarize_arguments,
)
from app.policy.approvers import ApproverRule, Requirement, requirement
from app.policy.budget import BudgetLimits, ResolvedBudget, Scope, most_restrictive
from app.policy.ceilings import (
    STRETCHES,
    CallRoom,
    Ceiling,
    CeilingDimension,
    CeilingRoom,
    room_for_call,
    should_wait,
    tightest,
)
from app.policy.concurrency import ConcurrencyConfig
from app.policy.deadlines import Deadline, DeadlineConfig
from app.policy.effects import Effect, Indeterminate, idempotency_key, is_safe_to_repeat
from app.policy.history import HistoryPolicy
from app.policy.ledger import Reservation, RunBudget, Spend, UnlimitedBudget
from app.policy.loop import LoopConfig, call_signature
from app.policy.prices import Amount, CpuPrice, Price, cost_of, read_amount, write_amount
from app.policy.repair import RepairConfig
from app.policy.retry import RetryConfig, RetryPlan

__all__ = [
    "STRETCHES",
    "Amount",
    "ApprovalDecision",
    "ApprovalDenial",
    "ApprovalKind",
    "ApprovalRecord",
    "ApproverRule",
    "BudgetLimits",
    "CallRoom",
    "Ceiling",
    "CeilingDimension",
    "CeilingRoom",
    "ConcurrencyConfig",
    "CpuPrice",
    "Deadline",
    "DeadlineConfig",
    "Effect",
    "HistoryPolicy",
    "Indeterminate",
    "LoopConfig",
    "Outcome",
    "Price",
    "RepairConfig",
    "Requirement",
    "Reservation",
    "ResolvedBudget",
    "RetryConfig",
    "RetryPlan",
    "RunBudget",
    "Scope",
    "Spend",
    "UnlimitedBudget",
    "Verdict",
    "arguments_digest",
    "call_signature",
    "cost_of",
    "idempotency_key",
    "is_safe_to_repeat",
    "judge_decision",
    "keyed_digest",
    "most_restrictive",
    "read_amount",
    "requirement",
    "room_for_call",
    "should_wait",
    "summarize_arguments",
    "tightest",
    "write_amount",
]
