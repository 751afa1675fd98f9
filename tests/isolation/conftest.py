"""One app and four tenants for all tests of a module: what they are asked is read, or changes nothing that another
test looks at."""

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from tests.conftest import Cluster, DatabaseUrls
from tests.isolation.world import World, open_world


@pytest.fixture(scope="module")
def world_urls(cluster: Cluster, template_database: str) -> Iterator[DatabaseUrls]:
    """A database of the module's own: the hand that writes logs claims every run in it."""
    name = cluster.create_database(template=template_database)
    yield cluster.database(name)
    cluster.drop_database(name)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(world_urls: DatabaseUrls) -> AsyncIterator[World]:
    async with open_world(world_urls) as opened:
        yield opened
