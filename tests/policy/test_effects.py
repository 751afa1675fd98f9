"""What may be dispatched again, and the key by which a tool knows that it is the same call."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.ids import CallId, RunId, TenantId
from app.policy import Effect, idempotency_key, is_safe_to_repeat

_PARTS = st.tuples(st.text(max_size=4), st.text(max_size=4), st.text(max_size=4))
_CLOSE = st.tuples(*[st.sampled_from(["", "1", "11", ":", "1:", "1:1", "0:"])] * 3)


def make_key(tenant_id: str, first_run_id: str, call_id: str) -> str:
    return idempotency_key(tenant_id=TenantId(tenant_id), first_run_id=RunId(first_run_id), call_id=CallId(call_id))


@pytest.mark.parametrize(
    ("effect", "listed", "safe"),
    [
        (Effect.READ, (), True),
        (Effect.IDEMPOTENT, (), True),
        (Effect.ONCE, (), False),
        (Effect.ONCE, ("other",), False),
        (Effect.ONCE, ("tool",), True),
    ],
)
def test_recovery_goes_by_the_effect_or_the_agents_list(effect: Effect, listed: tuple[str, ...], safe: bool) -> None:
    assert is_safe_to_repeat("tool", effect, listed) is safe


def test_a_key_is_the_same_in_every_release() -> None:
    assert make_key("ten_1", "run_1", "call_1_1") == "a1eab516b89ed6b68b5e3a6e2e628a25"


def test_a_key_is_32_hex_digits() -> None:
    assert re.fullmatch("[0-9a-f]{32}", make_key("t", "r", "c"))


@pytest.mark.parametrize("strategy", [_PARTS, _CLOSE])
@given(data=st.data())
def test_two_calls_share_a_key_only_where_all_parts_agree(
    strategy: st.SearchStrategy[tuple[str, str, str]], data: st.DataObject
) -> None:
    one, other = data.draw(strategy), data.draw(strategy)
    assert (make_key(*one) == make_key(*other)) == (one == other)
