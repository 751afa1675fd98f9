"""Lists that are walked page by page while things are added and taken away between the pages: nothing comes twice, and
nothing that was there all the time is left out."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.api.harness import Service
from tests.api.questions import ask

URL: Final = "https://93.184.216.34/"


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A list, narrowed to things that belong to ``mark``; ``add`` makes one of them and tells its id."""

    path: str
    query: Callable[[str], dict[str, str]]
    add: Callable[[Service, str], Awaitable[str]]
    take_away: Callable[[Service, str], Awaitable[str]]
    key: str = "id"


async def add_run(service: Service, mark: str) -> str:
    run_id = await service.submit(user=mark)
    await service.scribe.end(run_id)
    return run_id


async def add_session(service: Service, mark: str) -> str:
    return await service.create_session(user=mark)


async def add_agent(service: Service, mark: str) -> str:
    # Where it comes in the list, which is ordered by names, is nobody's choice.
    name = f"{service.deps.ids.new('x')[::-1][:8]}-{mark}"
    return str((await service.put_agent(name))["name"])


async def add_webhook(service: Service, mark: str) -> str:
    response = await service.client.post("/webhooks", json={"url": URL, "events": ["run.terminated"]})
    assert response.status_code == 201, response.text
    return str(response.json()["id"])


async def add_approval(service: Service, mark: str) -> str:
    run_id = await service.submit()
    approval_id = await ask(service, run_id, waits=False, agent=mark)
    await service.scribe.end(run_id)
    return approval_id


async def take_approval_away(service: Service, approval_id: str) -> str:
    run_id = (await service.client.get(f"/approvals/{approval_id}")).json()["run_id"]
    return await delete(service, f"/runs/{run_id}")


async def delete(service: Service, path: str) -> str:
    response = await service.client.delete(path)
    assert response.status_code == 204, response.text
    return path


KINDS: Final = [
    Kind(
        path="/runs",
        query=lambda mark: {"user": mark},
        add=add_run,
        take_away=lambda service, id: delete(service, f"/runs/{id}"),
    ),
    Kind(
        path="/sessions",
        query=lambda mark: {"user": mark},
        add=add_session,
        take_away=lambda service, id: delete(service, f"/sessions/{id}"),
    ),
    Kind(path="/approvals", query=lambda mark: {"agent": mark}, add=add_approval, take_away=take_approval_away),
    Kind(
        path="/agents",
        query=lambda mark: {},
        add=add_agent,
        take_away=lambda service, id: delete(service, f"/agents/{id}"),
        key="name",
    ),
    Kind(
        path="/webhooks",
        query=lambda mark: {},
        add=add_webhook,
        take_away=lambda service, id: delete(service, f"/webhooks/{id}"),
    ),
]


@dataclass(frozen=True, kw_only=True)
class Walk:
    """What a reader saw of a list, and what was there before it began and after it had ended."""

    seen: Sequence[str]
    stood: frozenset[str]
    ever: frozenset[str]


class Walker:
    """Reads a list while it is changed."""

    def __init__(self, service: Service, kind: Kind, *, limit: int) -> None:
        self._service, self._kind, self._limit = service, kind, limit
        self._mark = service.deps.ids.new("mark").replace("_", "-")
        self._there: list[str] = []
        self._ever: set[str] = set()
        self._seen: list[str] = []
        self._cursor: dict[str, str] | None = {}

    async def walk(self, before: int, changes: Sequence[tuple[str, int]]) -> Walk:
        await self._clear()
        for _ in range(before):
            await self._add()
        stood = set(self._there)
        for change, place in changes:
            if change == "page":
                await self._read_page()
            elif change == "add" and len(self._there) < 14:
                await self._add()
            elif change == "take" and self._there:
                stood.discard(await self._take(place % len(self._there)))
        while self._cursor is not None:
            await self._read_page()
        return Walk(seen=self._seen, stood=frozenset(stood), ever=frozenset(self._ever))

    async def _clear(self) -> None:
        items = (await self._get({"limit": 200}))["items"]
        for item in items:
            await self._kind.take_away(self._service, item[self._kind.key])

    async def _add(self) -> None:
        added = await self._kind.add(self._service, self._mark)
        self._there.append(added)
        self._ever.add(added)

    async def _take(self, place: int) -> str:
        taken = self._there.pop(place)
        await self._kind.take_away(self._service, taken)
        return taken

    async def _read_page(self) -> None:
        if self._cursor is None:
            return
        page = await self._get({"limit": self._limit, **self._cursor})
        self._seen += [item[self._kind.key] for item in page["items"] if item[self._kind.key] not in ("planner",)]
        self._cursor = None if page["next_cursor"] is None else {"cursor": page["next_cursor"]}

    async def _get(self, query: dict[str, Any]) -> dict[str, Any]:
        asked = {**self._kind.query(self._mark), **query}
        response = await self._service.client.get(self._kind.path, params=asked)
        assert response.status_code == 200, response.text
        return dict(response.json())


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.path)
@given(
    before=st.integers(min_value=0, max_value=7),
    limit=st.integers(min_value=1, max_value=3),
    changes=st.lists(
        st.tuples(st.sampled_from(["page", "add", "take"]), st.integers(min_value=0, max_value=20)), max_size=12
    ),
)
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture], derandomize=True)
async def test_nothing_comes_twice_and_nothing_that_stayed_is_left_out(
    service: Service, kind: Kind, before: int, limit: int, changes: list[tuple[str, int]]
) -> None:
    walk = await Walker(service, kind, limit=limit).walk(before, changes)
    assert len(set(walk.seen)) == len(walk.seen)
    assert walk.stood <= set(walk.seen) <= walk.ever
