"""The budgets that one run spends of: its own, then those of the runs that led to it."""

from collections.abc import Sequence
from decimal import Decimal

from app.policy import RunBudget, Spend
from app.ports.records import ChildSpend
from app.run import State
from app.run.steps.bounds import Shared, spent


class Purse:
    """Keeps the budgets level with the run's fold, and shows the loop what others have spent of them.

    ``holder`` is the run's name in the budgets' books: no other run has it, also none with the same id.
    Everything here is one step of the event loop: between a look and the spending that follows it nobody else spends.
    """

    def __init__(self, holder: str, budgets: Sequence[RunBudget]) -> None:
        self._holder = holder
        self._settled: Spend | None = None
        self.budgets = tuple(budgets)

    def shared(self) -> tuple[Shared, ...]:
        """The budgets as ``decide`` wants them, the run's own first."""
        return tuple(
            Shared(
                limits=budget.limits,
                sources=budget.sources,
                elsewhere=budget.spent_by_others(self._holder),
                seconds=None if place == 0 else budget.elapsed_seconds,
                max_llm_calls=budget.max_llm_calls,
            )
            for place, budget in enumerate(self.budgets)
        )

    def restore(self, children: Sequence[ChildSpend]) -> None:
        """What runs below this one have spent under claims before."""
        for child in children:
            spend = Spend(
                cost=child.cost or Decimal(),
                input_tokens=child.usage.input_tokens,
                output_tokens=child.usage.output_tokens,
                model_calls=child.model_calls,
                tool_calls=child.tool_calls,
                iterations=child.iterations,
                peer_invocations=1,
            )
            for budget in self.budgets:
                budget.settle(child.run_id, spend)

    def settle(self, state: State) -> None:
        """What the run has spent so far. A run that another one started is a peer invocation of its callers'."""
        own = spent(state)
        if own == self._settled:
            return
        self._settled = own
        called = Spend(peer_invocations=1 if state.depth > 0 else 0)
        for place, budget in enumerate(self.budgets):
            budget.settle(self._holder, own if place == 0 else own + called)
