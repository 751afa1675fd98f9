import pytest

from app.store.database import Database
from tests.store.conformance.logs import Log, MemoryLog, PostgresLog


@pytest.fixture
def memory_log() -> Log:
    return MemoryLog()


@pytest.fixture
def postgres_log(empty_database: Database) -> Log:
    return PostgresLog(empty_database)


@pytest.fixture(params=["memory_log", "postgres_log"])
def log(request: pytest.FixtureRequest) -> Log:
    """Every implementation of WorkStore, one after the other. Only the one that is asked for is built."""
    log: Log = request.getfixturevalue(request.param)
    return log
