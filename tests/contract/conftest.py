"""What the contract's tests stand on: the app in one process, a world with one of everything, and real services."""

from tests.acceptance.conftest import deployment, fresh, stage

# All of them: fixtures stand on each other.
from tests.api.conftest import *  # noqa: F403
from tests.isolation.conftest import world, world_urls

__all__ = ["deployment", "fresh", "stage", "world", "world_urls"]
