"""Lists of runs and approvals: each filter has an index that leads to its rows, and finds what it should."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

import asyncpg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.events import RunState
from app.ids import ApprovalId, RunId, SessionId, TenantId
from app.ports.desk import Approval, ApprovalFilter, ApprovalStatus
from app.ports.records import RunFilter, RunRecord
from app.store.approvals import approval_list
from app.store.database import Database, DatabaseConfig
from app.store.run_lists import rarest_first, run_list
from app.store.tenant import PostgresTenantStore, PostgresTenantTx
from benchmarks.support.rows import load
from tests.conftest import Cluster, DatabaseUrls

TENANT = TenantId("ten_lists")
RUNS = 3_000
SESSION = SessionId(f"ses_{'5'.rjust(26, '0')}")
RUN_FILTERS: Mapping[str, tuple[RunFilter, str]] = {
    "all": (RunFilter(), "ix_runs_newest"),
    "state": (RunFilter(states=(RunState.FAILED,)), "ix_runs_state"),
    "states": (RunFilter(states=(RunState.FAILED, RunState.COMPLETED)), "ix_runs_state"),
    "agent": (RunFilter(agent="rare"), "ix_runs_agent"),
    "user": (RunFilter(user="rare"), "ix_runs_caller"),
    "session": (RunFilter(session_id=SESSION), "ix_runs_session"),
    "parent": (RunFilter(parent_run_id=RunId("run_1")), "ix_runs_parent"),
    "after": (RunFilter(created_after=1.0), "ix_runs_newest"),
    "before": (RunFilter(created_before=1.0), "ix_runs_newest"),
    "metadata": (RunFilter(metadata={"case": "rare"}), "ix_run_metadata_newest"),
}
APPROVAL_FILTERS: Mapping[str, tuple[ApprovalFilter, str]] = {
    "all": (ApprovalFilter(), "ix_approvals_newest"),
    "pending": (ApprovalFilter(statuses=(ApprovalStatus.PENDING,)), "ix_approvals_pending"),
    "denied": (ApprovalFilter(statuses=(ApprovalStatus.DENIED,)), "ix_approvals_closed"),
    "expired": (ApprovalFilter(statuses=(ApprovalStatus.EXPIRED,)), "ix_approvals_closed"),
    "agent": (ApprovalFilter(agent="rare"), "ix_approvals_agent"),
    "tool": (ApprovalFilter(tool="rare"), "ix_approvals_tool"),
    "run": (ApprovalFilter(run_id=RunId("run_1")), "ix_approvals_run"),
}


@pytest.fixture(scope="module")
def lists_urls(cluster: Cluster, template_database: str) -> Iterator[DatabaseUrls]:
    """A database with many rows, of which what is rare is old."""
    name = cluster.create_database(template=template_database)
    urls = cluster.database(name)
    asyncio.run(load(urls.superuser_url, TENANT, first=0, count=RUNS))
    yield urls
    cluster.drop_database(name)


@pytest.fixture
async def tx(lists_urls: DatabaseUrls) -> AsyncIterator[PostgresTenantTx]:
    database = Database(DatabaseConfig(url=lists_urls.app_url, pool_size=1))
    async with PostgresTenantStore(database).begin(TENANT) as tx:
        yield tx
    await database.close()


async def explain(urls: DatabaseUrls, statement: str, arguments: list[Any]) -> str:
    """As the application's role, under row security, is shown it."""
    connection: asyncpg.Connection = await asyncpg.connect(urls.app_url)
    try:
        async with connection.transaction():
            await connection.execute(f"SET LOCAL app.tenant_id = '{TENANT}'")
            return "\n".join(row[0] for row in await connection.fetch(f"EXPLAIN {statement}", *arguments))
    finally:
        await connection.close()


@pytest.mark.parametrize(("where", "index"), RUN_FILTERS.values(), ids=RUN_FILTERS)
async def test_each_filter_of_runs_is_read_along_its_index(
    lists_urls: DatabaseUrls, where: RunFilter, index: str
) -> None:
    plan = await explain(lists_urls, *run_list(TENANT, where, limit=51, before=(2e9, RunId("run_z"))))
    assert (index in plan, "Seq Scan" in plan) == (True, False), plan


@pytest.mark.parametrize(("where", "index"), APPROVAL_FILTERS.values(), ids=APPROVAL_FILTERS)
async def test_each_filter_of_approvals_is_read_along_its_index(
    lists_urls: DatabaseUrls, where: ApprovalFilter, index: str
) -> None:
    plan = await explain(lists_urls, *approval_list(TENANT, where, limit=51, before=(2e9, ApprovalId("apr_z"))))
    assert (index in plan, "Seq Scan on approvals" in plan) == (True, False), plan


async def test_questions_that_nobody_has_swept_are_found_by_when_they_expire(lists_urls: DatabaseUrls) -> None:
    where = ApprovalFilter(statuses=(ApprovalStatus.EXPIRED,))
    plan = await explain(lists_urls, *approval_list(TENANT, where, limit=1, before=None))
    assert ("ix_approvals_expiry" in plan, "ix_approvals_pending" in plan) == (True, False), plan


async def _all_runs(tx: PostgresTenantTx, where: RunFilter, *, limit: int) -> list[RunRecord]:
    """Page by page."""
    found: list[RunRecord] = []
    before: tuple[float, RunId] | None = None
    while page := await tx.list_runs(where, limit=limit, before=before):
        found += page
        before = page[-1].created_at, page[-1].run_id
    return found


async def _all_approvals(tx: PostgresTenantTx, where: ApprovalFilter, *, limit: int) -> list[Approval]:
    found: list[Approval] = []
    before: tuple[float, ApprovalId] | None = None
    while page := await tx.list_approvals(where, limit=limit, before=before):
        found += page
        before = page[-1].requested_at, page[-1].approval_id
    return found


@pytest.mark.parametrize("pairs", [{"group": "g7", "case": "rare"}, {"case": "rare", "group": "g7"}])
async def test_several_pairs_hold_together_in_any_order(tx: PostgresTenantTx, pairs: dict[str, str]) -> None:
    found = await tx.list_runs(RunFilter(metadata=pairs), limit=9, before=None)
    assert [int(run.run_id.removeprefix("run_")) for run in found] == [7]


def test_a_list_is_read_along_the_rarest_of_its_pairs() -> None:
    pairs = {"env": "prod", "case": "7", "group": "g"}
    assert list(rarest_first(pairs, [1000, 1, 50])) == ["case", "group", "env"]


async def test_the_other_pairs_are_looked_up_for_each_run(lists_urls: DatabaseUrls) -> None:
    where = RunFilter(metadata={"case": "rare", "env": "prod"})
    plan = await explain(lists_urls, *run_list(TENANT, where, limit=51, before=None))
    assert ("SubPlan" in plan, "Join" in plan) == (True, False), plan


_RUN_FILTER = st.builds(
    RunFilter,
    states=st.lists(st.sampled_from([RunState.FAILED, RunState.COMPLETED, RunState.QUEUED]), unique=True).map(tuple),
    agent=st.sampled_from([None, "rare", "bench"]),
    user=st.sampled_from([None, "rare", "user1"]),
    session_id=st.sampled_from([None, SESSION]),
    metadata=st.dictionaries(st.sampled_from(["env", "case", "group"]), st.sampled_from(["prod", "rare", "g7", "g8"])),
)


def _matches(run: RunRecord, where: RunFilter, pairs: Mapping[str, str]) -> bool:
    return (
        (not where.states or run.state in where.states)
        and where.agent in {None, run.agent}
        and where.user in {None, run.user}
        and where.session_id in {None, run.session_id}
        and all(pairs.get(key) == value for key, value in where.metadata.items())
    )


def _pairs(run: RunRecord) -> Mapping[str, str]:
    """As the rows were loaded."""
    number = int(run.run_id.removeprefix("run_"))
    return {"env": "prod", "case": "rare" if number < 60 else f"c{number}", "group": f"g{number % 100}"}


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(where=_RUN_FILTER, limit=st.sampled_from([199, 500, 5_000]))
async def test_pages_of_any_filter_together_are_what_matches_newest_first(
    tx: PostgresTenantTx, where: RunFilter, limit: int
) -> None:
    everything = await tx.list_runs(RunFilter(), limit=RUNS, before=None)
    matching = [run.run_id for run in everything if _matches(run, where, _pairs(run))]
    assert [run.run_id for run in await _all_runs(tx, where, limit=limit)] == matching


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(statuses=st.lists(st.sampled_from(ApprovalStatus), unique=True).map(tuple), limit=st.sampled_from([3, 500]))
async def test_pages_of_any_statuses_together_are_what_matches_newest_first(
    tx: PostgresTenantTx, statuses: tuple[ApprovalStatus, ...], limit: int
) -> None:
    where = ApprovalFilter(statuses=statuses, agent="rare")
    everything = await tx.list_approvals(ApprovalFilter(agent="rare"), limit=RUNS, before=None)
    matching = [one.approval_id for one in everything if not statuses or one.status in statuses]
    assert [one.approval_id for one in await _all_approvals(tx, where, limit=limit)] == matching
