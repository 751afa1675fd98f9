"""A page of a list costs what it shows, whatever is asked for: in a tenant with 50,000 of each thing no filter reads
through those that do not fit."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import pytest
import pytest_asyncio

from app.api import ApiDeps
from app.events import RunState
from tests.conftest import Cluster, DatabaseUrls
from tests.contract.large import LargeTenant, load

LIMIT: Final = 10
# A page, the one row that says that there is another, some more for what is sorted, and the tables beside it.
MOST_ROWS: Final = 250
RUN: Final = "run_" + "50000".zfill(26)
NO_RUN: Final = "run_" + "9".zfill(26)


@dataclass(frozen=True, kw_only=True)
class Question:
    """``found``: how many are on the page."""

    path: str
    query: dict[str, str | list[str]] = field(default_factory=dict)
    found: int = LIMIT

    @property
    def label(self) -> str:
        return f"{self.path} {self.query}"


def of_runs(*, found: int = LIMIT, **query: str | list[str]) -> Question:
    return Question(path="/runs", query=query, found=found)


QUESTIONS: Final = [
    of_runs(),
    *(of_runs(state=state.value) for state in RunState),
    of_runs(state=["failed", "cancelled"]),
    of_runs(agent="common"),
    of_runs(agent="rare"),
    of_runs(agent="nobody", found=0),
    of_runs(user="common"),
    of_runs(user="rare"),
    of_runs(user="nobody", found=0),
    of_runs(session_id="ses_" + "1".zfill(26)),
    of_runs(session_id="ses_" + "2".zfill(26), found=0),
    of_runs(parent_run_id=RUN),
    of_runs(parent_run_id=NO_RUN, found=0),
    of_runs(created_after="2000-01-01T00:00:00Z"),
    of_runs(created_after="2100-01-01T00:00:00Z", found=0),
    of_runs(created_before="2100-01-01T00:00:00Z"),
    of_runs(created_before="2000-01-01T00:00:00Z", found=0),
    of_runs(agent="rare", state="completed", found=0),
    of_runs(agent="common", state="failed"),
    Question(path="/runs", query={"metadata.ticket": "common"}),
    Question(path="/runs", query={"metadata.ticket": "rare"}),
    Question(path="/runs", query={"metadata.ticket": "none"}, found=0),
    Question(path="/sessions"),
    Question(path="/sessions", query={"agent": "common"}),
    Question(path="/sessions", query={"agent": "rare"}),
    Question(path="/sessions", query={"agent": "nobody"}, found=0),
    Question(path="/sessions", query={"user": "rare"}),
    Question(path="/sessions", query={"user": "nobody"}, found=0),
    Question(path="/approvals"),
    Question(path="/approvals", query={"status": "approved"}),
    *(
        Question(path="/approvals", query={"status": status}, found=7)
        for status in ("pending", "denied", "expired", "cancelled")
    ),
    Question(path="/approvals", query={"status": ["pending", "denied"]}),
    Question(path="/approvals", query={"run_id": RUN}),
    Question(path="/approvals", query={"run_id": NO_RUN}, found=0),
    Question(path="/approvals", query={"agent": "common"}),
    Question(path="/approvals", query={"agent": "rare"}),
    Question(path="/approvals", query={"tool": "common"}),
    Question(path="/approvals", query={"tool": "rare"}),
    Question(path="/approvals", query={"tool": "none"}, found=0),
]


@pytest.fixture(scope="module")
def large_urls(cluster: Cluster, template_database: str) -> Iterator[DatabaseUrls]:
    name = cluster.create_database(template=template_database)
    yield cluster.database(name)
    cluster.drop_database(name)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def large(large_urls: DatabaseUrls) -> LargeTenant:
    return await load(large_urls)


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.label)
async def test_a_filtered_page_reads_no_more_than_it_shows(
    large: LargeTenant, deps: ApiDeps, question: Question
) -> None:
    rows, page = await large.count_rows(deps, question.path, {**question.query, "limit": LIMIT})
    assert question.found <= len(page["items"]) <= LIMIT
    assert rows < MOST_ROWS


@pytest.mark.parametrize("path", ["/runs", "/sessions", "/approvals"])
async def test_a_page_that_is_deep_in_the_list_reads_no_more_either(
    large: LargeTenant, deps: ApiDeps, path: str
) -> None:
    _, first = await large.count_rows(deps, path, {"limit": 200})
    rows, page = await large.count_rows(deps, path, {"limit": LIMIT, "cursor": first["next_cursor"]})
    assert (len(page["items"]), rows < MOST_ROWS) == (LIMIT, True)
