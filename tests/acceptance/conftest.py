"""Processes and databases of the acceptance tests. One service serves a module where its tests allow it."""

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.acceptance.deployments import Deployment, Embedded, add_keys
from tests.acceptance.service import Place, Stage
from tests.conftest import Cluster, DatabaseUrls


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with tempfile.TemporaryDirectory(prefix="runwright-stage-") as path:
        yield Stage(Path(path))


@pytest.fixture(scope="module")
def deployment(cluster: Cluster, template_database: str, stage: Stage) -> Iterator[Deployment]:
    """One database for the module: with services that tests share."""
    name = cluster.create_database(template=template_database)
    urls = cluster.database(name)
    with ExitStack() as stack:
        yield Deployment(urls=urls, keys=add_keys(urls), stage=stage, stack=stack)
    cluster.drop_database(name)


@pytest.fixture
def fresh(fresh_urls: DatabaseUrls, stage: Stage) -> Iterator[Deployment]:
    """A database of the test's own: for services that are killed."""
    with ExitStack() as stack:
        yield Deployment(urls=fresh_urls, keys=add_keys(fresh_urls), stage=stage, stack=stack)


@pytest.fixture
def place() -> Iterator[Place]:
    place = Place()
    yield place
    place.remove()


@pytest.fixture
def embedded(place: Place, stage: Stage) -> Iterator[Embedded]:
    with ExitStack() as stack:
        yield Embedded(place=place, stage=stage, stack=stack)


@pytest.fixture
def commands() -> Iterator[ExitStack]:
    """Where a test's own commands are closed."""
    with ExitStack() as stack:
        yield stack
