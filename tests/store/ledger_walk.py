"""A walk over runs of one tenant, beside an account of it that is kept in Python: what was to be charged, and when."""

import itertools
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Final, Literal

from hypothesis import strategies as st

from app.conversation import UsageSource
from app.errors import CeilingReached
from app.events import RunState
from app.ids import RunId
from app.policy import Spend
from app.ports.records import Claim
from tests.store.ledgers import DAY, HOUR, NOTHING, Books, ceiling
from tests.store.support import new_run, query

RUNS: Final = 3
LIMIT: Final = 60

EVENTS: Final = """
    SELECT r.run_id, r.parent_run_id, e.at, e.fence, e.payload::json ->> 'detail' AS told
    FROM runs r JOIN events e USING (tenant_id, run_day, run_id) WHERE r.tenant_id = $1 ORDER BY r.run_id, e.seq
"""
ROWS: Final = """
    SELECT coalesce(sum(cost), 0), coalesce(sum(input_tokens), 0), coalesce(sum(output_tokens), 0),
        coalesce(sum(model_calls), 0), coalesce(sum(tool_calls), 0), coalesce(sum(active_us), 0)
    FROM {} WHERE tenant_id = $1
"""

amounts: Final = st.builds(
    Spend,
    cost=st.decimals(min_value=0, max_value=2, places=18),
    input_tokens=st.integers(0, 9),
    output_tokens=st.integers(0, 9),
    model_calls=st.integers(0, 2),
    tool_calls=st.integers(0, 2),
)


@dataclass(frozen=True, kw_only=True)
class Step:
    """Something that happens to the nth run. ``kill``: its worker dies before the append. ``again``: the answer to the
    append is lost, and it is sent again. ``below``: it is a run below the nth one that has used it."""

    run: int
    spent: Spend
    held: Spend | None
    announces: bool
    kill: bool
    again: bool
    below: bool
    ends: bool
    source: UsageSource


rarely: Final = st.sampled_from([False, False, False, True])
steps: Final = st.builds(
    Step,
    run=st.integers(0, RUNS - 1),
    spent=amounts,
    held=st.none()
    | st.builds(Spend, cost=st.just(Decimal("0.5")), input_tokens=st.integers(0, 9), output_tokens=st.integers(0, 30)),
    announces=st.booleans(),
    kill=rarely,
    again=rarely,
    below=rarely,
    ends=rarely,
    source=st.sampled_from(UsageSource),
)
walks: Final = st.lists(steps, min_size=1, max_size=14)

Total = tuple[Decimal, ...]


@dataclass(kw_only=True)
class Walk:
    """``output`` and ``holds`` are what the ledger should hold."""

    books: Books
    claims: dict[int, Claim] = field(default_factory=dict)
    children: dict[int, Claim] = field(default_factory=dict)
    output: int = 0
    holds: dict[RunId, Spend] = field(default_factory=dict)
    surprises: list[str] = field(default_factory=list)

    async def go(self, walk: Sequence[Step]) -> None:
        await self.books.set(ceiling(LIMIT), ceiling(10**9, "cost", DAY))
        for step in walk:
            await self.take(step)

    async def take(self, step: Step) -> None:
        claim = self.claims.get(step.run) or await self.books.claim()
        if step.kill:
            claim = await self.books.lose(claim)
            for lost in (claim, self.children.pop(step.run, claim)):
                self._lower(lost.run_id)
        self.claims[step.run] = claim
        acting = await self._below(step.run, claim) if step.below else claim
        ends = step.ends and not step.below and not step.announces
        held = None if ends else step.held
        fits = self._fits(acting, step)
        try:
            await self._append(acting, step, held, RunState.COMPLETED if ends else RunState.RUNNING)
        except CeilingReached:
            self._expect(not fits and step.announces, f"refused: {step}")
            return
        self._expect(fits or not step.announces, f"let out: {step}")
        self.output += step.spent.output_tokens
        self.holds.pop(acting.run_id, None)
        if held is not None:
            self.holds[acting.run_id] = held
        if ends:
            del self.claims[step.run]
            self.children.pop(step.run, None)

    async def _append(self, claim: Claim, step: Step, held: Spend | None, state: RunState) -> None:
        first, late = self.books.work, self.books.work
        await first.load(claim)
        await late.load(claim)
        before = self.books.used.get(claim.run_id, NOTHING)
        told = f"{step.spent.cost} {step.spent.input_tokens} {step.spent.output_tokens} {step.spent.model_calls} "
        for store in (first, late) if step.again else (first,):
            self.books.used[claim.run_id] = before
            await self.books.append(
                claim,
                step.spent,
                held=held,
                announces=step.announces,
                state=state,
                source=step.source,
                store=store,
                told=f"{told}{step.spent.tool_calls}",
            )

    async def _below(self, run: int, root: Claim) -> Claim:
        if run not in self.children:
            child = new_run(self.books.tenant_id, parent_run_id=root.run_id, run_id=f"run_{secrets.token_hex(13)}")
            self.children[run] = (await self.books.work.adopt(root, child)).claim
        return self.children[run]

    def _fits(self, claim: Claim, step: Step) -> bool:
        others = sum(held.output_tokens for run_id, held in self.holds.items() if run_id != claim.run_id)
        reserved = 0 if step.held is None else step.held.output_tokens
        return self.output + others + step.spent.output_tokens + reserved <= LIMIT

    def _lower(self, run_id: RunId) -> None:
        """Of a call whose worker is gone only the prompt stays reserved."""
        if run_id in self.holds:
            self.holds[run_id] = Spend(input_tokens=self.holds[run_id].input_tokens)

    def _expect(self, holds: bool, otherwise: str) -> None:
        if not holds:
            self.surprises.append(otherwise)

    async def total(self, table: Literal["runs", "ledger"]) -> Total:
        """What the table's rows say in all: of the ledger those of an hour's window."""
        statement = ROWS.format(table) + (f" AND window_seconds = {HOUR}" if table == "ledger" else "")
        [row] = await self.books.ask(statement, self.books.tenant_id)
        return tuple(Decimal(value) for value in row)

    async def told(self) -> Total:
        """What the stored events say in all, and how much time lies between those of one claim."""
        rows = await query(self.books.urls.superuser_url, EVENTS, self.books.tenant_id)
        figures = [[Decimal(figure) for figure in row["told"].split()] for row in rows if row["told"]]
        sums = [sum(column, Decimal()) for column in zip(*figures, strict=True)] or [Decimal()] * 5
        driven = sum(
            (later["at"] - before["at"]).total_seconds() * 10**6
            for before, later in itertools.pairwise(rows)
            if before["run_id"] == later["run_id"]
            and before["fence"] == later["fence"]
            and later["parent_run_id"] is None
        )
        return (*sums, Decimal(round(driven)))
