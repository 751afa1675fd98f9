"""What a fold gathers is a tuple to its readers, grows from any version, and is not copied for each event."""

import copy
import pickle
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.events import AnyEvent
from app.run import State, fold
from app.run.sequence import Appended
from tests.builders import (
    build_call,
    dispatched,
    fold_bodies,
    model_called,
    ready_log,
    responded,
    returned,
    settled_turn,
    turn_cleared,
)

_LONG = 300


@dataclass(frozen=True, kw_only=True)
class _Version:
    """A version, and the tuple that it has to look like."""

    grown: Appended[int]
    plain: tuple[int, ...]


@st.composite
def histories(draw: st.DrawFn) -> list[_Version]:
    """Versions that each came of any of those before it, short ones and ones of several blocks."""
    begun = draw(st.lists(st.integers(), max_size=3))
    versions = [_Version(grown=Appended(begun), plain=tuple(begun))]
    for _ in range(draw(st.integers(1, 12))):
        versions.append(_grow(draw, draw(st.sampled_from(versions))))
    return versions


def _grow(draw: st.DrawFn, version: _Version) -> _Version:
    items = tuple(range(draw(st.sampled_from([0, 1, 2, 31, 32, 33, 64, 100]))))
    if draw(st.booleans()):
        return _Version(grown=version.grown.plus(*items), plain=version.plain + items)
    place = draw(st.integers(0, len(version.plain)))
    return _Version(grown=version.grown.with_end(place, *items), plain=version.plain[:place] + items)


_slices = st.slices(200)


@given(versions=histories())
def test_every_version_stays_what_it_was_whatever_grew_from_it(versions: list[_Version]) -> None:
    assert [tuple(version.grown) for version in versions] == [version.plain for version in versions]


@given(versions=histories())
def test_it_looks_like_the_tuple_of_its_items(versions: list[_Version]) -> None:
    newest = versions[-1]
    grown, plain = newest.grown, newest.plain
    assert (len(grown), repr(grown), hash(grown)) == (len(plain), repr(plain), hash(plain))


@given(versions=histories())
def test_it_equals_the_tuple_of_its_items_from_either_side(versions: list[_Version]) -> None:
    newest = versions[-1]
    assert newest.grown == newest.plain
    assert newest.plain == newest.grown


@given(versions=histories())
def test_versions_are_equal_where_their_items_are_however_they_came_about(versions: list[_Version]) -> None:
    newest, other = versions[-1], versions[len(versions) // 2]
    assert newest.grown == Appended(newest.plain)
    assert (newest.grown == other.grown) == (newest.plain == other.plain)


@given(versions=histories(), part=_slices)
def test_a_slice_is_the_tuples(versions: list[_Version], part: slice) -> None:
    newest = versions[-1]
    assert newest.grown[part] == newest.plain[part]
    assert isinstance(newest.grown[part], tuple)


@given(versions=histories())
def test_each_place_holds_the_tuples_item_from_either_end(versions: list[_Version]) -> None:
    grown, plain = versions[-1].grown, versions[-1].plain
    places = range(-len(plain), len(plain))
    assert [grown[place] for place in places] == [plain[place] for place in places]


@pytest.mark.parametrize("place", [3, -4])
def test_a_place_outside_is_an_index_error(place: int) -> None:
    with pytest.raises(IndexError):
        Appended("abc")[place]


@pytest.mark.parametrize("other", [["a", "b"], "ab", ("a",), ("a", "c"), None])
def test_it_differs_from_what_a_tuple_differs_from(other: object) -> None:
    assert Appended("ab") != other


def test_it_is_a_sequence_and_no_tuple() -> None:
    assert isinstance(Appended("ab"), Sequence)
    assert not isinstance(Appended("ab"), tuple)


@pytest.mark.parametrize("change", ["append", "extend", "insert", "pop", "sort", "__setitem__", "__iadd__"])
def test_it_has_nothing_that_changes_it(change: str) -> None:
    assert not hasattr(Appended("ab"), change)


@pytest.mark.parametrize("give_back", [copy.copy, copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))])
def test_a_copy_of_a_very_long_one_is_equal_to_it(give_back: Callable[[Any], Any]) -> None:
    long = Appended(range(100_000))
    assert give_back(long) == long


@pytest.mark.parametrize(
    "grow",
    [lambda old: old.plus(1), lambda old: old.with_end(999, 1), lambda old: old.with_end(998, 1, *old[998:])],
    ids=["an item more", "another last item", "one before the last"],
)
def test_a_version_shares_all_but_its_last_items_with_the_one_that_it_grew_from(
    grow: Callable[[Appended[int]], Appended[int]],
) -> None:
    old = Appended(range(1000))
    assert old._kept is not None
    assert grow(old)._kept is old._kept


# --- states ----------------------------------------------------------------------------------------------------------


def _turns(first: int, last: int) -> list[AnyEvent]:
    """Turns of four events: a model call, its answer with one call, the call, its result."""
    calls = (build_call("pay", iteration=number, arguments={"n": number}) for number in range(first, last + 1))
    return [body for number, call in enumerate(calls, start=first) for body in settled_turn(number, call)]


def _gated_turns(first: int, last: int) -> list[AnyEvent]:
    """The same where hooks are asked about each turn, and each asks for two calls whose results come in last first."""
    bodies: list[AnyEvent] = []
    for number in range(first, last + 1):
        one, two = (build_call("pay", number=place, iteration=number, arguments={"n": number}) for place in (1, 2))
        bodies += [model_called(iteration=number), responded("", one, two, iteration=number), turn_cleared(one, two)]
        bodies += [dispatched(one), dispatched(two), returned(two), returned(one)]
    return bodies


def test_states_are_equal_where_the_same_was_gathered_in_another_way() -> None:
    ahead = fold_bodies(*ready_log(), *_turns(1, _LONG))
    begun = fold_bodies(*ready_log(), *_turns(1, _LONG - 1))
    fold_bodies(*_gated_turns(_LONG, _LONG), state=begun)
    assert fold_bodies(*_turns(_LONG, _LONG), state=begun) == ahead


def test_states_differ_where_a_single_old_message_does() -> None:
    one, other = (
        fold_bodies(*ready_log(), *_turns(1, 1)[:-1], returned(build_call("pay"), said), *_turns(2, _LONG))
        for said in ("yes", "no")
    )
    assert one != other


def _peak_bytes(state: State, bodies: Sequence[AnyEvent]) -> int:
    """The most that folding these takes at any moment beside what stood before."""
    tracemalloc.start()
    try:
        for body in bodies:
            fold(state, body, at=1.0)
            state = fold(state, body, at=1.0)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("turns", [_turns, _gated_turns], ids=["plain", "gated"])
def test_a_turn_takes_no_more_memory_at_the_end_of_a_long_log(turns: Callable[[int, int], list[AnyEvent]]) -> None:
    short, long = fold_bodies(*ready_log(), *turns(1, 40)), fold_bodies(*ready_log(), *turns(1, 2_000))
    coming = turns(5_000, 5_003)
    _peak_bytes(short, coming)
    # A copy of what the long one holds would take ten times as much.
    assert _peak_bytes(long, coming) < _peak_bytes(short, coming) + 2_000
