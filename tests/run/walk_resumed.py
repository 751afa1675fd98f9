"""Walks that go on from other ones, which failed with something open."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from random import Random

from hypothesis import strategies as st

from app.events import RunEvent
from app.ids import CallId
from app.policy import Outcome
from app.run.reopen import unresolved
from tests.run.walks import Walk, walk_from


def resumed_walks() -> st.SearchStrategy[Walk]:
    """Walks that go on from another one."""
    return st.integers(min_value=0, max_value=2**64 - 1).map(resumed_from)


def resumed_from(seed: int) -> Walk:
    """Goes on from the first walk of this seed and those behind it that somebody may resume."""
    first = next(walk for walk in map(walk_from, count(seed)) if walk.may_be_resumed)
    random = Random(~seed)
    words = {call_id: random.choice(list(Outcome)) for call_id in unresolved_calls(first.logs)}
    walk = Walk(seed, random, replace(first.spec, resolutions=words), before=first)
    walk.go()
    return walk


def unresolved_calls(logs: Sequence[Sequence[RunEvent]]) -> tuple[CallId, ...]:
    """Calls of which somebody has to say what became."""
    return tuple(progress.call.call_id for progress in unresolved(logs))
