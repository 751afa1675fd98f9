"""Processes whose feeds speak over a wire that tests hold."""

import pytest

from tests.store.wire import Process, Wire


@pytest.fixture
def wire() -> Wire:
    return Wire(3)


@pytest.fixture
def here(wire: Wire) -> Process:
    return wire.processes[0]


@pytest.fixture
def there(wire: Wire) -> Process:
    return wire.processes[1]
