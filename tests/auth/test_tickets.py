"""What was sealed is opened as it was, in any process of the deployment; nothing else is a ticket."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.auth import Scope, Ticket, Tickets
from app.ids import KeyId, TenantId

TICKET = Ticket(
    tenant_id=TenantId("ten_1"),
    key_id=KeyId("key_1"),
    scope=Scope.RUNS_READ,
    resource="/runs/run_1/events",
    until_ms=1_700_000_000_123,
)
SEALER = Tickets(b"k" * 32)
TEXT = SEALER.seal(TICKET)


def test_a_ticket_is_opened_as_it_was_sealed_wherever_the_key_is_the_same() -> None:
    assert Tickets(b"k" * 32).open(TEXT) == TICKET


def test_a_ticket_of_another_deployment_is_none() -> None:
    assert Tickets(b"l" * 32).open(TEXT) is None


def test_a_key_has_to_be_long() -> None:
    with pytest.raises(ValueError, match="31"):
        Tickets(b"k" * 31)


def test_a_ticket_can_stand_in_an_address_as_it_is() -> None:
    assert TEXT.removeprefix("tkt_").replace("-", "a").replace("_", "a").isalnum()


@given(place=st.integers(4, len(TEXT) - 1), character=st.sampled_from("AZaz09-_"))
def test_a_ticket_with_one_other_character_is_none(place: int, character: str) -> None:
    changed = TEXT[:place] + character + TEXT[place + 1 :]
    assert SEALER.open(changed) == (TICKET if changed == TEXT else None)


@given(text=st.one_of(st.text(), st.from_regex(r"tkt_[A-Za-z0-9_-]{80,300}", fullmatch=True)))
def test_no_other_text_is_a_ticket(text: str) -> None:
    assert SEALER.open(text) is None


def test_what_a_ticket_says_can_not_be_replaced() -> None:
    sealed = base64.urlsafe_b64decode(TEXT.removeprefix("tkt_") + "==")
    forged = base64.urlsafe_b64encode(sealed.replace(b"run_1", b"run_2")).rstrip(b"=").decode()
    assert SEALER.open(f"tkt_{forged}") is None


def test_an_endless_text_is_none() -> None:
    assert SEALER.open("tkt_" + "A" * 100_000) is None
