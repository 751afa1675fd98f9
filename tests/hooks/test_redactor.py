"""What is personal or secret is replaced by a mark that names its kind, and nothing else is touched."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.hooks import Redactor
from app.ports.hooks import Hook, HookPoint, Verdict
from tests.hooks.subjects import build_subject

_BODY = "\n".join([base64.b64encode(bytes(range(48))).decode()] * 3)
_BLOCK = f"-----BEGIN RSA PRIVATE KEY-----\n{_BODY}\n-----END RSA PRIVATE KEY-----"

SECRETS = {
    "jane.doe+x@mail.example.co.uk": "email",
    "jörg@bücher.example": "email",
    "4111111111111111": "card",
    "4111 1111 1111 1111": "card",
    "5500-0000-0000-0004": "card",
    "3782 822463 10005": "card",
    "DE89370400440532013000": "iban",
    "DE89 3704 0044 0532 0130 00": "iban",
    "gb29 nwbk 6016 1331 9268 19": "iban",
    "NO93 8601 1117 947": "iban",
    "+49 30 1234567": "phone",
    "+1 (555) 010-9999": "phone",
    "sk-proj-abcdefghijklmnop123456": "api_key",
    "sk_live_4eC39HqLyjWDarjtT1zdp7dc": "api_key",
    "ghp_" + "a1" * 18: "api_key",
    "github_pat_" + "a1_" * 10: "api_key",
    "glpat-" + "a1" * 10: "api_key",
    "xoxb-123456789012-abcdef": "api_key",
    "AKIAIOSFODNN7EXAMPLE": "api_key",
    "AIza" + "a1-_x" * 7: "api_key",
    "hf_" + "aB" * 17: "api_key",
    "rw_" + "a" * 43: "api_key",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJlLXg": "api_key",
    "Bearer abcdef0123456789abcdef": "api_key",
    _BLOCK: "private_key",
    _BLOCK.replace("\n", "\\n"): "private_key",
    _BLOCK.replace("RSA ", ""): "private_key",
}

ORDINARY = [
    "",
    "Order 1234567890123456 of 2024-05-01, 12:00:00+02:00, 3 x 19.99",
    "4111 1111 1111 1112 has a wrong check digit",
    "DE88 3704 0044 0532 0130 00 has wrong check digits",
    "user@localhost and @handle, a @ b.c",
    "a task-force-of-many-long-words, sk-learn-and-other-packages-of-python",
    "the bearer of authentication-related news",
    "milliseconds: 1717236000000, id 550e8400-e29b-41d4-a716-446655440000",
    "sha 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "C++11 and x=+12 and 7+12345678901",
    "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
]

_TEXTS = st.lists(
    st.one_of(
        st.text(max_size=8),
        st.sampled_from(sorted(SECRETS)),
        st.text(alphabet="0123456789 -+@.ab[]:DE", max_size=24),
        st.sampled_from(["[redacted:card]", "[redacted:", "-----BEGIN PRIVATE KEY-----", "\n", "."]),
    ),
    max_size=12,
).map("".join)


@pytest.mark.parametrize(("secret", "kind"), SECRETS.items())
def test_a_secret_is_replaced_by_its_kind(secret: str, kind: str) -> None:
    assert Redactor().redact(f"Here: {secret}, thanks.") == f"Here: [redacted:{kind}], thanks."


@pytest.mark.parametrize("text", ORDINARY)
def test_an_ordinary_text_stays_as_it_is(text: str) -> None:
    assert Redactor().redact(text) == text


@pytest.mark.parametrize(
    ("text", "redacted"),
    [
        ("order 12 4111 1111 1111 1111 12", "order 12 [redacted:card] 12"),
        ("4111111111111111 5500000000000004", "[redacted:card] [redacted:card]"),
        ("DE89 3704 0044 0532 0130 00 BIC COBADEFF", "[redacted:iban] BIC COBADEFF"),
        ("XX12 ABCD EFGH DE89370400440532013000", "XX12 ABCD EFGH [redacted:iban]"),
        ("a@b.example,c@d.example", "[redacted:email],[redacted:email]"),
        ("mail jane@example.com.", "mail [redacted:email]."),
        (f"{_BLOCK} and {_BLOCK}", "[redacted:private_key] and [redacted:private_key]"),
    ],
)
def test_what_stands_beside_a_secret_is_kept(text: str, redacted: str) -> None:
    assert Redactor().redact(text) == redacted


def test_a_key_whose_end_was_cut_off_is_replaced_as_far_as_it_goes() -> None:
    text = f"-----BEGIN ENCRYPTED PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\n{_BODY}\n[truncated]"
    assert Redactor().redact(text) == "[redacted:private_key][truncated]"


@given(_TEXTS)
def test_redacting_twice_changes_nothing(text: str) -> None:
    redactor = Redactor({"pin": r"\d{4}", "ninety": "9", "mark": "redacted"})
    once = redactor.redact(text)
    assert redactor.redact(once) == once


@given(_TEXTS, st.sampled_from(sorted(SECRETS)), _TEXTS)
def test_a_secret_on_its_own_line_is_never_left(before: str, secret: str, after: str) -> None:
    assert f"\n;{secret};\n" not in Redactor().redact(f"{before}\n;{secret};\n{after}")


async def test_the_hook_rewrites_and_its_reason_names_only_the_kinds() -> None:
    decision = await Redactor().decide(build_subject("jane@example.com, 4111111111111111, joe@example.com"))
    assert decision.verdict is Verdict.REWRITE
    assert decision.content == "[redacted:email], [redacted:card], [redacted:email]"
    assert decision.reason == "redacted: card, email"


async def test_the_hook_goes_on_where_there_is_nothing_to_redact() -> None:
    decision = await Redactor().decide(build_subject("Hello [redacted:email]"))
    assert (decision.verdict, decision.content) == (Verdict.CONTINUE, None)


def test_text_is_redacted_wherever_it_enters_or_leaves_and_arguments_are_not() -> None:
    hook: Hook = Redactor()
    assert hook.name == "redactor"
    assert hook.points == set(HookPoint) - {HookPoint.BEFORE_TOOL_DISPATCH, HookPoint.ON_TERMINAL}


def test_the_points_can_be_chosen() -> None:
    hook = Redactor(name="arguments", points=[HookPoint.BEFORE_TOOL_DISPATCH])
    assert (hook.name, hook.points) == ("arguments", frozenset({HookPoint.BEFORE_TOOL_DISPATCH}))


@pytest.mark.parametrize("points", [[], [HookPoint.ON_TERMINAL]])
def test_points_at_which_nothing_is_redacted_are_refused(points: list[HookPoint]) -> None:
    with pytest.raises(ValueError, match="redacted"):
        Redactor(points=points)


def test_own_kinds_are_added_and_replace_those_of_their_name() -> None:
    redactor = Redactor({"badge": r"\bB-\d{4}\b", "phone": r"\b030-\d{4}\b"})
    assert redactor.redact("B-1234, 030-1234, +49 30 1234567, a@b.example") == (
        "[redacted:badge], [redacted:phone], +49 30 1234567, [redacted:email]"
    )


def test_an_own_kind_cannot_break_a_mark() -> None:
    assert Redactor({"word": "redacted|email"}).redact("email a@b.example") == "[redacted:word] [redacted:email]"


def test_a_pattern_that_finds_the_empty_text_in_places_changes_nothing() -> None:
    assert Redactor({"gap": "(?=b)"}).redact("abc") == "abc"


@pytest.mark.parametrize(
    ("kind", "pattern", "why"),
    [
        ("Badge", "x", "can't be a kind"),
        ("a-b", "x", "can't be a kind"),
        ("", "x", "can't be a kind"),
        ("badge", "(", "no pattern"),
        ("badge", "x*", "matches the empty text"),
    ],
)
def test_a_kind_or_pattern_that_cannot_be_is_refused(kind: str, pattern: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Redactor({kind: pattern})


@pytest.mark.parametrize(
    "text",
    [
        "a" * 500_000 + "@",
        "1 " * 250_000,
        "-----BEGIN PRIVATE KEY-----" * 20_000,
        "DE89" * 125_000,
        "a@b.cc.x@y" * 50_000,
    ],
    ids=["letters", "digits", "keys", "accounts", "addresses"],
)
def test_half_a_hostile_megabyte_does_not_hang(text: str) -> None:
    Redactor().redact(text)
