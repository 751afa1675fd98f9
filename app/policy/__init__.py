"""Rules that bound a run, as values and pure functions: budgets, deadlines, retries, caps, effects."""

from app.policy.budget import BudgetLimits, ResolvedBudget, Scope, most_restrictive
from app.policy.deadlines import Deadline, DeadlineConfig
from app.policy.effects import Effect, Indeterminate, idempotency_key, is_safe_to_repeat
from app.policy.loop import LoopConfig, call_signature
from app.policy.retry import RetryConfig, RetryPlan

__all__ = [
    "BudgetLimits",
    "Deadline",
    "DeadlineConfig",
    "Effect",
    "Indeterminate",
    "LoopConfig",
    "ResolvedBudget",
    "RetryConfig",
    "RetryPlan",
    "Scope",
    "call_signature",
    "idempotency_key",
    "is_safe_to_repeat",
    "most_restrictive",
]
