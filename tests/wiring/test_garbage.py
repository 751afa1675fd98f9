"""Garbage that refers to itself is looked for rarely, never in what was there before, and still found."""

import gc
import weakref
from collections.abc import Iterator

import pytest

from app.cli.serve import serve_command
from app.errors import ConfigurationError
from app.wiring.garbage import rarely_collect


class Ring:
    """Refers to itself, so that only the collector frees it."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    """What was left out stays so: the suite leaves out what it has loaded, too."""
    thresholds = gc.get_threshold()
    yield
    gc.set_threshold(*thresholds)


@pytest.fixture
def looks() -> Iterator[list[str]]:
    """Each look of the collector, from when it was told to look rarely."""
    seen: list[str] = []

    def note(phase: str, _: dict[str, int]) -> None:
        seen.append(phase)

    rarely_collect()
    gc.callbacks.append(note)
    yield seen
    gc.callbacks.remove(note)


def test_a_few_requests_worth_of_containers_are_made_without_a_look(looks: list[str]) -> None:
    made = [[number] for number in range(9_000)]
    assert (len(made), looks) == (9_000, [])


def test_what_was_there_before_is_never_looked_through_again() -> None:
    there = Ring()
    assert is_looked_through(there)
    rarely_collect()
    assert not is_looked_through(there)


def is_looked_through(wanted: object) -> bool:
    return any(found is wanted for found in gc.get_objects())


def test_what_comes_later_is_found_in_the_end(looks: list[str]) -> None:
    found = weakref.ref(Ring())
    made = [[number] for number in range(11_000)]
    assert (len(made), found()) == (11_000, None)
    assert looks[0] == "start"


def test_serving_begins_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    gc.set_threshold(700, 10, 10)
    monkeypatch.setenv("RUNWRIGHT_PORT", "none")
    with pytest.raises(ConfigurationError, match="RUNWRIGHT_PORT"):
        serve_command()
    assert gc.get_threshold()[0] > 700
