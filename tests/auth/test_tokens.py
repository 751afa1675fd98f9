"""A token of the issuer makes a person; whatever else looks like one makes nothing."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from joserfc.jwk import Key, RSAKey

from app.auth import Scope, TokenRules, Tokens
from app.auth.issuer import Issuer, IssuerKeys
from app.auth.tokens import Person
from app.errors import Unauthenticated
from app.testing import FakeClock
from app.wiring.auth import fetch
from tests.auth.issuers import (
    AUDIENCE,
    JWKS,
    LocalIssuer,
    by_hand,
    ec_key,
    ed_key,
    encode,
    public,
    rsa_key,
    sign,
    sign_content,
    sign_with_text,
)

Claims = Callable[..., dict[str, Any]]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(auto_advance=False)


@pytest.fixture
def tokens(issuer: LocalIssuer, clock: FakeClock) -> Tokens:
    keys = IssuerKeys(Issuer(url=issuer.url, get=fetch), clock)
    return Tokens(TokenRules(issuer=issuer.url, audience=AUDIENCE), keys, clock)


@pytest.fixture
def claims(issuer: LocalIssuer, clock: FakeClock) -> Claims:
    """Those of a good token, with changes."""
    return lambda **changes: issuer.claims(now=clock.now(), **changes)


async def refuse(tokens: Tokens, text: str) -> None:
    with pytest.raises(Unauthenticated, match=r"^the token is not valid$"):
        await tokens.read(text)


@pytest.mark.parametrize(
    ("key", "algorithm"),
    [
        (rsa_key(), "RS256"),
        (rsa_key(), "PS256"),
        (ec_key(), "ES256"),
        (ed_key(), "EdDSA"),
        (ed_key(), "Ed25519"),
    ],
)
async def test_a_good_token_makes_the_person_that_it_tells_of(
    tokens: Tokens, claims: Claims, key: Key, algorithm: str
) -> None:
    person = await tokens.read(sign(claims(groups=["finance"]), key, algorithm))
    assert person == Person(
        subject="ada",
        tenant="acme",
        scopes=frozenset({Scope.RUNS_READ, Scope.RUNS_WRITE}),
        groups=frozenset({"finance"}),
        good_until=claims()["exp"] + 60,
    )


async def test_a_token_without_its_keys_name_is_read(tokens: Tokens, claims: Claims) -> None:
    assert (await tokens.read(sign(claims(), ec_key(), "ES256", kid=None))).subject == "ada"


async def test_a_token_of_a_new_key_without_a_name_is_read(
    issuer: LocalIssuer, tokens: Tokens, claims: Claims, clock: FakeClock
) -> None:
    await tokens.read(sign(claims(), rsa_key(), "RS256", kid=None))
    issuer.publish(rsa_key("new"))
    clock.advance(60)
    assert (await tokens.read(sign(claims(), rsa_key("new"), "RS256", kid=None))).subject == "ada"


async def test_the_same_subject_is_always_the_same_key(tokens: Tokens, claims: Claims) -> None:
    one = await tokens.read(sign(claims(jti="1"), rsa_key(), "RS256"))
    again = await tokens.read(sign(claims(jti="2"), ec_key(), "ES256"))
    other = await tokens.read(sign(claims(sub="bob"), rsa_key(), "RS256"))
    assert one.key_id == again.key_id != other.key_id
    assert one.key_id.startswith("oidc:")


@pytest.mark.parametrize(
    ("scope", "read"),
    [
        pytest.param(["runs:read"], {Scope.RUNS_READ}, id="a list"),
        pytest.param("  runs:read   agents:read ", {Scope.RUNS_READ, Scope.AGENTS_READ}, id="a text"),
        pytest.param("openid runs:read", {Scope.RUNS_READ}, id="one that is nothing here"),
        pytest.param("operator runs:read", {Scope.RUNS_READ}, id="an operator's"),
        pytest.param(["operator"], set(), id="an operator's alone"),
        pytest.param(None, set(), id="none"),
        pytest.param("", set(), id="an empty text"),
        pytest.param("RUNS:READ", set(), id="another case"),
    ],
)
async def test_scopes_are_those_of_the_claim_and_never_an_operators(
    tokens: Tokens, claims: Claims, scope: object, read: set[Scope]
) -> None:
    assert (await tokens.read(sign(claims(scope=scope), rsa_key(), "RS256"))).scopes == read


@pytest.mark.parametrize(
    ("groups", "read"), [("domain users", {"domain users"}), (["a", "b"], {"a", "b"}), ([], set())]
)
async def test_groups_are_a_list_or_one_name(tokens: Tokens, claims: Claims, groups: object, read: set[str]) -> None:
    assert (await tokens.read(sign(claims(groups=groups), rsa_key(), "RS256"))).groups == read


async def test_claims_go_by_the_names_that_the_operator_gave(
    issuer: LocalIssuer, claims: Claims, clock: FakeClock
) -> None:
    rules = TokenRules(
        issuer=issuer.url,
        audience=AUDIENCE,
        tenant_claim="https://acme.example/org",
        scopes_claim="roles",
        groups_claim="teams",
    )
    tokens = Tokens(rules, IssuerKeys(Issuer(url=issuer.url, get=fetch), clock), clock)
    named = {"https://acme.example/org": "globex", "roles": ["runs:read"], "teams": ["ops"]}
    person = await tokens.read(sign(claims(**named), rsa_key(), "RS256"))
    assert (person.tenant, person.scopes, person.groups) == ("globex", frozenset({Scope.RUNS_READ}), frozenset({"ops"}))


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"iss": "https://evil.example"}, id="another issuer"),
        pytest.param({"iss": None}, id="no issuer"),
        pytest.param({"iss": ["http://127.0.0.1"]}, id="issuers"),
        pytest.param({"aud": "another"}, id="for another"),
        pytest.param({"aud": ["another", "runwright-too"]}, id="for others"),
        pytest.param({"aud": None}, id="for nobody"),
        pytest.param({"aud": []}, id="for an empty list"),
        pytest.param({"aud": {"runwright": 1}}, id="for an object"),
        pytest.param({"sub": None}, id="about nobody"),
        pytest.param({"sub": ""}, id="about an empty name"),
        pytest.param({"sub": 5}, id="about a number"),
        pytest.param({"sub": "a" * 256}, id="about a long name"),
        pytest.param({"sub": "a\x00b"}, id="about a name with a zero"),
        pytest.param({"sub": "a\ud800"}, id="about half a character"),
        pytest.param({"sub": "ada\n"}, id="about a name of two lines"),
        pytest.param({"exp": None}, id="for ever"),
        pytest.param({"exp": "1999999999"}, id="an end that is a text"),
        pytest.param({"exp": True}, id="an end that is true"),
        pytest.param({"exp": float("nan")}, id="an end that is no number"),
        pytest.param({"exp": float("inf")}, id="an end that never comes"),
        pytest.param({"nbf": "0"}, id="a beginning that is a text"),
        pytest.param({"iat": "0"}, id="made at a text"),
        pytest.param({"tenant": None}, id="of no tenant"),
        pytest.param({"tenant": ["acme"]}, id="of tenants"),
        pytest.param({"tenant": "a\x00"}, id="of a tenant with a zero"),
        pytest.param({"scope": {"runs:read": True}}, id="scopes that are an object"),
        pytest.param({"scope": ["runs:read", 5]}, id="scopes with a number"),
        pytest.param({"groups": {"finance": True}}, id="groups that are an object"),
        pytest.param({"groups": [["finance"]]}, id="groups of groups"),
    ],
)
async def test_a_signed_token_with_wrong_claims_is_refused(
    tokens: Tokens, claims: Claims, changes: dict[str, Any]
) -> None:
    await refuse(tokens, sign(claims(**changes), rsa_key(), "RS256"))


async def test_a_token_for_several_is_taken_by_each_of_them(tokens: Tokens, claims: Claims) -> None:
    assert (await tokens.read(sign(claims(aud=["other", AUDIENCE]), rsa_key(), "RS256"))).subject == "ada"


@pytest.mark.parametrize("claim", ["exp", "nbf", "iat"])
async def test_clocks_may_differ_by_less_than_a_minute(
    tokens: Tokens, claims: Claims, clock: FakeClock, claim: str
) -> None:
    seconds = -59 if claim == "exp" else 60
    token = sign(claims(**{claim: int(clock.now()) + seconds}), rsa_key(), "RS256")
    assert (await tokens.read(token)).subject == "ada"


@pytest.mark.parametrize("claim", ["exp", "nbf", "iat"])
async def test_clocks_may_differ_no_further(tokens: Tokens, claims: Claims, clock: FakeClock, claim: str) -> None:
    seconds = -60 if claim == "exp" else 61
    await refuse(tokens, sign(claims(**{claim: int(clock.now()) + seconds}), rsa_key(), "RS256"))


async def test_a_token_that_ends_in_a_year_that_no_clock_has_is_read(tokens: Tokens, claims: Claims) -> None:
    assert (await tokens.read(sign(claims(exp=10**400), rsa_key(), "RS256"))).subject == "ada"


@pytest.mark.parametrize("algorithm", ["none", "None", "NONE", "HS256", "HS384", "RS512", "ES256K", "dir", "", 5, None])
async def test_no_other_algorithm_is_admitted_with_or_without_a_signature(
    tokens: Tokens, claims: Claims, algorithm: object
) -> None:
    header = {"alg": algorithm, "kid": "rsa", "typ": "JWT"}
    await refuse(tokens, by_hand(header, claims()))
    await refuse(tokens, by_hand(header, claims(), b"signature"))


async def test_a_public_key_is_no_shared_secret(tokens: Tokens, claims: Claims) -> None:
    await refuse(tokens, sign_with_text(claims(), rsa_key().as_pem(private=False), "rsa"))
    await refuse(tokens, sign_with_text(claims(), json.dumps(public(rsa_key())["keys"][0]).encode(), "rsa"))


async def test_a_secret_that_the_issuer_publishes_signs_nothing(
    issuer: LocalIssuer, tokens: Tokens, claims: Claims
) -> None:
    issuer.documents[JWKS]["keys"].insert(0, {"kty": "oct", "k": encode(b"x" * 32), "kid": "shared"})
    await refuse(tokens, sign_with_text(claims(), b"x" * 32, "shared"))


async def test_a_token_with_a_signature_of_another_key_is_refused(tokens: Tokens, claims: Claims) -> None:
    await refuse(tokens, sign(claims(), RSAKey.generate_key(2048), "RS256", kid="rsa"))


async def test_a_token_that_was_changed_is_refused(tokens: Tokens, claims: Claims) -> None:
    head, _, signature = sign(claims(), rsa_key(), "RS256").split(".")
    await refuse(tokens, f"{head}.{encode(json.dumps(claims(sub='bob')).encode())}.{signature}")


async def test_a_signature_made_for_one_algorithm_serves_no_other(tokens: Tokens, claims: Claims) -> None:
    _, body, signature = sign(claims(), rsa_key(), "RS256").split(".")
    head = encode(json.dumps({"alg": "PS256", "kid": "rsa"}).encode())
    await refuse(tokens, f"{head}.{body}.{signature}")


@pytest.mark.parametrize(
    "header",
    [
        pytest.param({"jwk": public(rsa_key("mine"))["keys"][0], "kid": None}, id="the key itself"),
        pytest.param({"jku": "http://127.0.0.1:1/keys", "kid": "mine"}, id="the key's address"),
    ],
)
async def test_a_token_does_not_bring_its_own_key(
    issuer: LocalIssuer, tokens: Tokens, claims: Claims, header: dict[str, Any]
) -> None:
    await refuse(tokens, sign(claims(), rsa_key("mine"), "RS256", **header))


@pytest.mark.parametrize(
    "header",
    [
        pytest.param({"typ": "logout+jwt"}, id="a token for something else"),
        pytest.param({"typ": 5}, id="a type that is a number"),
        pytest.param({"crit": ["exp"], "exp": 1}, id="something critical"),
        pytest.param({"crit": ["kid"]}, id="something critical that is known"),
        pytest.param({"b64": False}, id="another form of the content"),
        pytest.param({"x": "y" * 3_000}, id="long"),
    ],
)
async def test_a_signed_token_with_a_header_that_says_more_than_it_may_is_refused(
    tokens: Tokens, claims: Claims, header: dict[str, Any]
) -> None:
    await refuse(tokens, sign(claims(), rsa_key(), "RS256", **header))


async def test_what_a_header_says_beside_is_nobodys_business(tokens: Tokens, claims: Claims) -> None:
    token = sign(claims(), rsa_key(), "RS256", typ="at+JWT", ver="2.0", x5t="abc")
    assert (await tokens.read(token)).subject == "ada"


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="nothing"),
        pytest.param("..", id="empty parts"),
        pytest.param("a.b", id="two parts"),
        pytest.param("a.b.c.d.e", id="five parts"),
        pytest.param("a" * 1_000_000 + ".b.c", id="a megabyte"),
        pytest.param("!.b.c", id="no base64"),
        pytest.param(f"{encode(b'{')}.b.c", id="no JSON"),
        pytest.param(f"{encode(b'[]')}.b.c", id="a list"),
        pytest.param(f"{encode(b'null')}.b.c", id="nothing in JSON"),
        pytest.param(encode(b"\xff\xfe") + ".b.c", id="no text"),
        pytest.param(f"{encode(b'[' * 1_500)}.b.c", id="a deep header"),
        pytest.param(encode(b'{"alg":"RS256","kid":' + b"9" * 1_400 + b"}") + ".b.c", id="a long number"),
        pytest.param(encode(b'{"alg":"RS256","kid":["rsa"]}') + ".b.c", id="names for a name"),
        pytest.param(encode(b'{"alg":"RS256","kid":"rsa"}') + ".b.c", id="no claims"),
        pytest.param("é.b.c", id="no ASCII"),
        pytest.param(f"{encode(b'{}')}.b.c\n", id="a line end"),
    ],
)
async def test_what_is_no_token_is_refused_and_the_issuer_learns_nothing_of_it(
    issuer: LocalIssuer, tokens: Tokens, text: str
) -> None:
    await refuse(tokens, text)
    assert set(issuer.asked) <= {"/.well-known/openid-configuration", "/keys"}


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"[" * 10_000, id="deep"),
        pytest.param(b"[]", id="a list"),
        pytest.param(b"null", id="nothing"),
        pytest.param(b'{"exp":' + b"9" * 6_000 + b"}", id="a number that is too long to read"),
        pytest.param(b"\xff", id="no text"),
    ],
)
async def test_a_signed_token_whose_claims_cant_be_read_is_refused(tokens: Tokens, content: bytes) -> None:
    await refuse(tokens, sign_content(content, ed_key(), "EdDSA", {"alg": "EdDSA", "kid": "ed"}))


async def test_a_token_of_sixteen_kib_is_read_and_a_larger_one_is_not(tokens: Tokens, claims: Claims) -> None:
    assert (await tokens.read(sign(claims(x="y" * 11_000), rsa_key(), "RS256"))).subject == "ada"
    await refuse(tokens, sign(claims(x="y" * 12_000), rsa_key(), "RS256"))


async def test_a_flood_of_tokens_with_unknown_keys_asks_the_issuer_once(
    issuer: LocalIssuer, tokens: Tokens, claims: Claims
) -> None:
    await _refuse_many(tokens, claims())
    assert len(issuer.asked) == 2


async def _refuse_many(tokens: Tokens, claims: dict[str, Any]) -> None:
    for number in range(100):
        await refuse(tokens, by_hand({"alg": "RS256", "kid": f"unknown {number}"}, claims, b"signature"))
