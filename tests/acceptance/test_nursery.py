"""A service that is a fork of the nursery is a process of its own: with its own environment, output and end."""

from collections.abc import Iterator

import psutil
import pytest

from tests.acceptance.deployments import Deployment
from tests.acceptance.nursery import Nursery
from tests.acceptance.service import ROOT, inherited_environment, until


@pytest.fixture
def nursery() -> Iterator[Nursery]:
    made = Nursery(ROOT, {**inherited_environment(), "RUNWRIGHT_ROLE": "none of its business"})
    yield made
    made.close()


def test_a_fork_has_the_environment_that_it_was_given_and_no_other(nursery: Nursery) -> None:
    with nursery.fork(["serve"], {"RUNWRIGHT_PORT": "none"}) as refused:
        told = refused.stderr.read()
    assert refused.returncode == 1
    assert "RUNWRIGHT_PORT" in told
    assert "RUNWRIGHT_ROLE" not in told


def test_forks_end_with_their_nursery(nursery: Nursery, deployment: Deployment) -> None:
    with nursery.fork(["serve"], {**deployment.env, "RUNWRIGHT_PORT": "0"}) as fork:
        assert fork.stdout.readline().startswith("runwright serves on ")
        nursery.close()
    assert fork.returncode == -9
    until(lambda: not psutil.pid_exists(fork.pid))


def test_who_is_killed_takes_no_other_fork_along(deployment: Deployment) -> None:
    first, second = deployment.start(), deployment.start()
    first.kill()
    assert first.process.returncode == -9
    assert deployment.visit(second).http.get("/livez").status_code == 200
    assert second.stop() == 0
