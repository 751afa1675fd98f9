"""Limits of the operating system."""

import resource
from collections.abc import Iterator

import pytest

from app.wiring.limits import raise_file_limit


@pytest.fixture
def hard_limit() -> Iterator[int]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(512, before[1]), before[1]))
    yield before[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_as_many_files_as_the_hard_limit_allows_can_be_opened(hard_limit: int) -> None:
    raise_file_limit()
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard_limit, hard_limit)
