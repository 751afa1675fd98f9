"""What is asked of a tenant's rows outside of any transaction: a statement each, or one for several (groups.py)."""

from collections.abc import Sequence
from operator import itemgetter
from typing import Any, Final

import asyncpg

from app.ids import ApprovalId, RunId, TenantId
from app.ports.records import AdmissionFacts, NewRun, RunNow, RunRecord
from app.ports.tenancy import TenantRules
from app.store.agents import to_version
from app.store.database import Database
from app.store.groups import Group
from app.store.rows import new_root_columns, new_run_columns, to_run_record
from app.store.tenancy import load_rules

SUBMIT: Final = (
    "SELECT * FROM submit_run($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19,"
    " $20, $21, $22, $23, $24, $25)"
)
FACTS: Final = "SELECT * FROM admission_facts($1, $2, $3, $4)"
_SUBMIT_ALL: Final = (
    "SELECT * FROM submit_runs($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18)"
)
_FACTS_ALL: Final = (
    "SELECT f.*, c.place FROM unnest($1::text[], $2::text[], $3::integer[], $4::bigint[])"
    " WITH ORDINALITY AS c (tenant, agent, version, max_queued, place)"
    " CROSS JOIN LATERAL admission_facts(c.tenant, c.agent, c.version, c.max_queued) AS f"
)
_LOOK: Final = (
    "SELECT (l.run).*, l.pending, c.place FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS c (tenant, run, place)"
    " CROSS JOIN LATERAL look_at_run(c.tenant, c.run) AS l"
)

# The places in submit_run's arguments of those that submit_runs is told as they are: all but a run's metadata, its
# session, its needs and what it goes on from, and the last one.
_AS_THEY_ARE: Final = (*range(13), 16, 17, 19)
_NEEDS: Final = 20

_Question = tuple[TenantId, str, int | None, int]


class Alone:
    """Equal questions of the same moment are one."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._looks: Group[tuple[TenantId, RunId], RunNow | None] = Group(self._look_one, self._look_all, shares=True)
        self._facts: Group[_Question, AdmissionFacts] = Group(self._facts_one, self._facts_all, shares=True)
        self._runs: Group[NewRun, RunRecord] = Group(self._insert_one, self._insert_all)

    async def look(self, tenant_id: TenantId, run_id: RunId) -> RunNow | None:
        return await self._looks.ask((tenant_id, run_id))

    async def admission_facts(self, question: _Question) -> AdmissionFacts:
        return await self._facts.ask(question)

    async def insert_run(self, run: NewRun) -> RunRecord:
        return await (self._runs.ask(run) if _is_plain(run) else self._insert_one(run))

    async def _look_one(self, question: tuple[TenantId, RunId]) -> RunNow | None:
        [found] = await self._look_all([question])
        return found

    async def _look_all(self, questions: Sequence[tuple[TenantId, RunId]]) -> Sequence[RunNow | None]:
        rows = await self._database.fetch(_LOOK, *_columns(questions))
        found = {row["place"]: _to_run_now(row) for row in rows}
        return [found.get(place) for place in range(1, len(questions) + 1)]

    async def _facts_one(self, question: _Question) -> AdmissionFacts:
        [row] = await self._database.fetch(FACTS, *question)
        return to_facts(row)

    async def _facts_all(self, questions: Sequence[_Question]) -> Sequence[AdmissionFacts]:
        rows = await self._database.fetch(_FACTS_ALL, *_columns(questions))
        return [to_facts(row) for row in sorted(rows, key=lambda row: int(row["place"]))]

    async def _insert_one(self, run: NewRun) -> RunRecord:
        return to_inserted(run, await self._database.fetch(SUBMIT, *to_submission(run)))

    async def _insert_all(self, runs: Sequence[NewRun]) -> Sequence[RunRecord]:
        """One transaction. What no run has needed before is put in in one order, whoever puts it in."""
        ordered = sorted(map(_plain_submission, runs), key=itemgetter(len(_AS_THEY_ARE)))
        rows = await self._database.fetch(_SUBMIT_ALL, *_columns(ordered))
        stored = {row["run_id"]: to_run_record(row) for row in rows}
        return [stored[run.run_id] for run in runs]


def to_submission(run: NewRun) -> tuple[Any, ...]:
    """What submit_run is told."""
    if run.agent_version is None:
        raise ValueError("a stored run names its agent's version")
    if run.parent_run_id is not None:
        raise ValueError("a run below another one is adopted by whoever drives that")
    return (run.tenant_id, *new_run_columns(run), *new_root_columns(run))


def _plain_submission(run: NewRun) -> tuple[Any, ...]:
    """What submit_runs is told."""
    told = to_submission(run)
    return (*itemgetter(*_AS_THEY_ARE)(told), "\n".join(told[_NEEDS]), run.on_ledger_error)


def _columns(rows: Sequence[tuple[Any, ...]]) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)]


def to_inserted(run: NewRun, rows: Sequence[asyncpg.Record]) -> RunRecord:
    if not rows:
        raise ValueError(f"there is no session {run.session_id}, or no run {run.resumes} to go on from (any more)")
    return to_run_record(rows[0])


def to_facts(row: asyncpg.Record) -> AdmissionFacts:
    return AdmissionFacts(
        now=row["now"],
        rules=to_rules(row["rules"]),
        queued=row["queued"],
        version=None if row["version"] is None else to_version(row),
    )


def to_rules(text: str | None) -> TenantRules:
    """The defaults where the tenant has no row, which is so in tests only."""
    return TenantRules() if text is None else load_rules(text)


def _to_run_now(row: asyncpg.Record) -> RunNow:
    return RunNow(record=to_run_record(row), waiting_for=tuple(map(ApprovalId, row["pending"] or ())))


def _is_plain(run: NewRun) -> bool:
    """Whether submit_runs can say it."""
    return not (run.session_id or run.metadata or run.resumes or run.first_run_id or run.resolutions) and not any(
        "\n" in name for name in run.needs
    )
