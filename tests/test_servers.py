"""Each process of the tests has a server of its own where servers are named."""

import pytest

from tests.conftest import find_server


@pytest.mark.parametrize(("process", "server"), [("gw0", "postgresql://one"), ("gw1", "postgresql://two")])
def test_a_process_has_the_server_of_its_number(process: str, server: str) -> None:
    assert find_server("postgresql://one postgresql://two ", process) == server


def test_a_process_for_which_no_server_is_named_shares_none() -> None:
    with pytest.raises(pytest.UsageError, match="names 1 servers"):
        find_server("postgresql://one", "gw1")
