"""Appends of those who hold a claim. Those of runs that have nothing to do with each other go together (groups.py).

Promise kept here: 4. Every append names its fence, compared in the statement that stores.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final

import asyncpg

from app.errors import LeaseLost
from app.events import AnyEvent, RunEvent, RunState, as_stored, encode_event
from app.ids import RunId
from app.ports.records import Claim, RunRecord, RunUpdate
from app.store.approvals import dump_closed, dump_questions
from app.store.database import Database
from app.store.groups import Group
from app.store.ledger import dump_reservation, ledger_errors, to_refusal
from app.store.rows import dump_input, dump_messages, dump_state
from app.store.types import escape_optional

_APPEND: Final = (
    "SELECT seq, at, refused FROM append_events($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16,"
    " $17, $18, $19, $20, $21, $22, $23, $24, $25, $26, $27, $28, $29, $30, $31, $32, $33, $34)"
)
_APPEND_ALL: Final = (
    "SELECT place, seq, at, refused FROM append_to_runs($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14,"
    " $15, $16, $17, $18, $19, $20, $21, $22, $23, $24)"
)

_LOGS_REMEMBERED: Final = 10_000


@dataclass(frozen=True, kw_only=True, slots=True)
class _Known:
    """What this process knows of a run that it has claimed. ``seq``: of the last event that it knows to be stored."""

    seq: int
    is_alone: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class _Append:
    claim: Claim
    after: int | None
    kinds: list[str]
    payloads: list[str]
    update: RunUpdate


class Appends:
    """Stores events under claims, and remembers how far each log is.

    An append whose answer was lost is sent again with the number of the last event that was known before it, and the
    database tells what it stored the first time instead of storing it twice.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._known: OrderedDict[tuple[RunId, int], _Known] = OrderedDict()
        self._group: Group[_Append, Sequence[asyncpg.Record]] = Group(self._store_one, self._store_all)

    def remember(self, claim: Claim, record: RunRecord) -> None:
        """A run as it was loaded."""
        is_alone = record.session_id is None and claim.root_run_id is None
        self._remember(claim, _Known(seq=record.last_seq, is_alone=is_alone))

    def forget(self, claim: Claim) -> None:
        self._known.pop((claim.run_id, claim.fence), None)

    async def append(self, claim: Claim, bodies: Sequence[AnyEvent], update: RunUpdate) -> tuple[RunEvent, ...]:
        """May be called again with the same events after StoreUnavailable: they are stored once."""
        if not bodies:
            raise ValueError("an append stores at least one event")
        known = self._known.get((claim.run_id, claim.fence))
        wanted = _Append(
            claim=claim,
            after=None if known is None else known.seq,
            kinds=[body.kind for body in bodies],
            payloads=[encode_event(body) for body in bodies],
            update=update,
        )
        may_share = known is not None and known.is_alone and _is_plain(update)
        with ledger_errors():
            rows = await (self._group.ask(wanted) if may_share else self._store_one(wanted))
        if not rows:
            self.forget(claim)
            raise lost(claim)
        if rows[0]["refused"] is not None:
            raise to_refusal(rows[0]["refused"])
        if update.state is not RunState.RUNNING:
            self.forget(claim)
        else:
            self._remember(claim, _Known(seq=rows[-1]["seq"], is_alone=known is not None and known.is_alone))
        return tuple(
            # What was stored and not what was given: memory is never ahead of the log (promise 2).
            RunEvent(
                run_id=claim.run_id,
                seq=row["seq"],
                at=row["at"].timestamp(),
                body=as_stored(body, payload),
                payload=payload,
            )
            for row, body, payload in zip(rows, bodies, wanted.payloads, strict=True)
        )

    async def _store_one(self, wanted: _Append) -> Sequence[asyncpg.Record]:
        claim, update = wanted.claim, wanted.update
        return await self._database.fetch(
            _APPEND,
            claim.tenant_id,
            claim.run_id,
            claim.fence,
            wanted.after,
            wanted.kinds,
            wanted.payloads,
            *_summary(update),
            None if update.rewritten_input is None else dump_input(update.rewritten_input),
            update.cost,
            claim.root_run_id,
            *_leavings(update),
            dump_questions(update.asked),
            *dump_closed(update.closed),
            *dump_reservation(update),
        )

    async def _store_all(self, wanted: Sequence[_Append]) -> Sequence[Sequence[asyncpg.Record]]:
        """One transaction. Locks are taken in one order, whoever asks for them."""
        places = sorted(
            range(len(wanted)), key=lambda place: (wanted[place].claim.tenant_id, wanted[place].claim.run_id)
        )
        ordered = [wanted[place] for place in places]
        rows = await self._database.fetch(
            _APPEND_ALL,
            [one.claim.tenant_id for one in ordered],
            [one.claim.run_id for one in ordered],
            [one.claim.fence for one in ordered],
            [one.after for one in ordered],
            [len(one.kinds) for one in ordered],
            [kind for one in ordered for kind in one.kinds],
            [payload for one in ordered for payload in one.payloads],
            *(list(column) for column in zip(*(_summary(one.update) for one in ordered), strict=True)),
            *(list(column) for column in zip(*map(_FEW, (one.update for one in ordered)), strict=True)),
        )
        told: list[list[asyncpg.Record]] = [[] for _ in wanted]
        for row in rows:
            told[places[row["place"] - 1]].append(row)
        return told

    def _remember(self, claim: Claim, known: _Known) -> None:
        self._known[(claim.run_id, claim.fence)] = known
        if len(self._known) > _LOGS_REMEMBERED:
            self._known.popitem(last=False)


# What append_to_runs is told of an update behind its summary.
_FEW: Final = attrgetter("cost", "iterations", "last_agent", "announces")


def _is_plain(update: RunUpdate) -> bool:
    """Whether append_to_runs can say it."""
    return not (
        update.asked
        or update.closed
        or update.state is RunState.SUSPENDED
        or update.held is not None
        or update.session_items
        or update.state_delta
        or update.rewritten_input is not None
    )


def _leavings(update: RunUpdate) -> tuple[Any, ...]:
    """Parameters of append_events: what goes to the session, or is kept beside it."""
    items = None if not update.session_items else dump_messages(update.session_items)
    keys, values = (None, None) if not update.state_delta else dump_state(update.state_delta)
    return update.iterations, items, update.last_agent, keys, values


def _summary(update: RunUpdate) -> tuple[Any, ...]:
    """The parameters of append_events from the state to the model, in its order."""
    return (
        update.state.value,
        update.usage.input_tokens,
        update.usage.cached_tokens,
        update.usage.output_tokens,
        update.usage.source.value,
        update.model_calls,
        update.tool_calls,
        escape_optional(update.output_text),
        update.error_code,
        escape_optional(update.error_detail),
        update.prompt_version,
        update.prompt_fingerprint,
        escape_optional(update.model),
    )


def lost(claim: Claim) -> LeaseLost:
    """What is told where another claim holds the run."""
    return LeaseLost(f"run {claim.run_id} is no longer held under fence {claim.fence}")
