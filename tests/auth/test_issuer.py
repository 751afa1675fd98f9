"""The issuer's keys: asked for when they are needed, together, and not too often."""

import asyncio
import json

import pytest

from app.auth import IssuerAway, IssuerKeys, IssuerUnavailable
from app.auth.issuer import Issuer, read_keys
from app.testing import FakeClock
from app.wiring.auth import fetch
from tests.auth.issuers import DISCOVERY, JWKS, LocalIssuer, ec_key, ed_key, public, rsa_key


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(auto_advance=False)


@pytest.fixture
def told() -> list[str]:
    """Why the issuer could not be asked, as the log is told."""
    return []


@pytest.fixture
def keys(issuer: LocalIssuer, clock: FakeClock, told: list[str]) -> IssuerKeys:
    return keys_of(issuer, clock, told)


def keys_of(
    issuer: LocalIssuer, clock: FakeClock, told: list[str], *, url: str | None = None, jwks_url: str | None = None
) -> IssuerKeys:
    return IssuerKeys(Issuer(url=url or issuer.url, get=fetch, jwks_url=jwks_url, failed=told.append), clock)


async def kid_of(keys: IssuerKeys, kid: str | None, algorithm: str = "RS256") -> str | None:
    found = await keys.find(kid, algorithm)
    return None if found is None else found.kid


async def test_the_issuer_is_asked_where_its_keys_are(issuer: LocalIssuer, keys: IssuerKeys) -> None:
    assert await kid_of(keys, "rsa") == "rsa"
    assert issuer.asked == [DISCOVERY, JWKS]


async def test_where_the_operator_says_so_the_issuer_is_not_asked(
    issuer: LocalIssuer, clock: FakeClock, told: list[str]
) -> None:
    keys = keys_of(issuer, clock, told, url="https://elsewhere.example", jwks_url=f"{issuer.url}{JWKS}")
    assert await kid_of(keys, "rsa") == "rsa"
    assert issuer.asked == [JWKS]


async def test_an_issuer_whose_address_ends_with_a_slash_is_asked_at_the_same_place(
    issuer: LocalIssuer, clock: FakeClock, told: list[str]
) -> None:
    url = f"{issuer.url}/realm/"
    issuer.documents[f"/realm{DISCOVERY}"] = {"issuer": url, "jwks_uri": f"{issuer.url}{JWKS}"}
    assert await kid_of(keys_of(issuer, clock, told, url=url), "rsa") == "rsa"


async def test_for_ten_minutes_nobody_is_asked_again(issuer: LocalIssuer, keys: IssuerKeys, clock: FakeClock) -> None:
    await kid_of(keys, "rsa")
    clock.advance(599)
    await kid_of(keys, "rsa")
    assert len(issuer.asked) == 2


async def test_after_ten_minutes_a_key_that_was_withdrawn_is_none(
    issuer: LocalIssuer, keys: IssuerKeys, clock: FakeClock
) -> None:
    await kid_of(keys, "rsa")
    issuer.publish(rsa_key("new"))
    clock.advance(600)
    assert await kid_of(keys, "rsa") is None


async def test_all_who_come_at_once_wait_for_one_answer(issuer: LocalIssuer, keys: IssuerKeys) -> None:
    issuer.gate.clear()
    coming = [asyncio.create_task(kid_of(keys, "rsa")) for _ in range(50)]
    await asyncio.sleep(0)
    issuer.gate.set()
    assert await asyncio.gather(*coming) == ["rsa"] * 50
    assert issuer.asked == [DISCOVERY, JWKS]


async def test_who_gives_up_waiting_takes_the_answer_from_nobody(issuer: LocalIssuer, keys: IssuerKeys) -> None:
    issuer.gate.clear()
    given_up, waiting = asyncio.create_task(kid_of(keys, "rsa")), asyncio.create_task(kid_of(keys, "rsa"))
    await asyncio.sleep(0)
    given_up.cancel()
    issuer.gate.set()
    assert await waiting == "rsa"


async def test_a_key_that_is_not_known_is_asked_for(issuer: LocalIssuer, keys: IssuerKeys, clock: FakeClock) -> None:
    await kid_of(keys, "rsa")
    issuer.publish(rsa_key(), rsa_key("new"))
    clock.advance(60)
    assert await kid_of(keys, "new") == "new"


async def test_a_flood_of_unknown_keys_asks_once_a_minute(
    issuer: LocalIssuer, keys: IssuerKeys, clock: FakeClock
) -> None:
    await kid_of(keys, "rsa")
    clock.advance(60)
    await asyncio.gather(*(kid_of(keys, f"unknown {number}") for number in range(200)))
    clock.advance(59)
    await asyncio.gather(*(kid_of(keys, f"unknown {number}") for number in range(200)))
    assert len(issuer.asked) == 4
    assert await kid_of(keys, "rsa") == "rsa"


async def test_keys_stay_in_use_while_the_issuer_is_away(
    issuer: LocalIssuer, keys: IssuerKeys, clock: FakeClock, told: list[str]
) -> None:
    await kid_of(keys, "rsa")
    issuer.stop()
    clock.advance(86_400)
    assert await kid_of(keys, "rsa") == "rsa"
    issuer.start()
    assert told == ["ConnectError"]


async def test_an_issuer_that_is_away_is_asked_once_a_minute(
    issuer: LocalIssuer, keys: IssuerKeys, clock: FakeClock, told: list[str]
) -> None:
    await kid_of(keys, "rsa")
    issuer.status = 503
    clock.advance(600)
    await asyncio.gather(*(kid_of(keys, "rsa") for _ in range(20)))
    clock.advance(59)
    await asyncio.gather(*(kid_of(keys, "rsa") for _ in range(20)))
    assert told == ["it answers 503"]


async def test_an_issuer_that_comes_back_is_heard_again(
    issuer: LocalIssuer, keys: IssuerKeys, clock: FakeClock
) -> None:
    await kid_of(keys, "rsa")
    issuer.status = 503
    clock.advance(600)
    await kid_of(keys, "rsa")
    issuer.status = 200
    issuer.publish(rsa_key("new"))
    clock.advance(60)
    assert (await kid_of(keys, "rsa"), await kid_of(keys, "new")) == (None, "new")


async def test_without_any_key_nobody_can_tell_and_that_is_said(
    issuer: LocalIssuer, keys: IssuerKeys, clock: FakeClock
) -> None:
    issuer.status = 500
    with pytest.raises(IssuerUnavailable) as refused:
        await kid_of(keys, "rsa")
    assert (refused.value.status, refused.value.retry_after_seconds) == (503, 5.0)
    issuer.status = 200
    clock.advance(5)
    assert await kid_of(keys, "rsa") == "rsa"


async def test_an_issuer_that_does_not_answer_is_waited_for_no_longer_than_five_seconds(
    issuer: LocalIssuer, keys: IssuerKeys, told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.auth.issuer._FETCH_SECONDS", 0.2)
    issuer.gate.clear()
    with pytest.raises(IssuerUnavailable):
        await kid_of(keys, "rsa")
    assert told == ["timeout"]


@pytest.mark.parametrize(
    ("path", "document", "reason"),
    [
        pytest.param(DISCOVERY, {"issuer": "https://evil.example", "jwks_uri": "x"}, "another name", id="impostor"),
        pytest.param(DISCOVERY, {}, "another name", id="nameless"),
        pytest.param(DISCOVERY, b"<html>", "no JSON", id="page"),
        pytest.param(DISCOVERY, b"[]", "no object", id="list"),
        pytest.param(DISCOVERY, b"[" * 200_000, "no JSON", id="deep"),
        pytest.param(JWKS, {"keys": {}}, "no set of keys", id="no list"),
        pytest.param(JWKS, {"keys": []}, "none of its keys", id="empty"),
        pytest.param(JWKS, b" " * 300_000, "too large", id="large"),
        pytest.param(JWKS, b"\xff", "no JSON", id="no text"),
    ],
)
async def test_what_is_no_answer_is_told_by_its_reason(
    issuer: LocalIssuer, keys: IssuerKeys, told: list[str], path: str, document: object, reason: str
) -> None:
    issuer.documents[path] = document
    with pytest.raises(IssuerUnavailable):
        await kid_of(keys, "rsa")
    [said] = told
    assert reason in said


async def test_an_address_of_keys_that_is_none_is_no_answer(
    issuer: LocalIssuer, keys: IssuerKeys, told: list[str]
) -> None:
    issuer.documents[DISCOVERY]["jwks_uri"] = "http://xn--/"
    with pytest.raises(IssuerUnavailable):
        await kid_of(keys, "rsa")
    assert told == ["IDNAError"]


async def test_no_redirect_is_followed(issuer: LocalIssuer, keys: IssuerKeys, told: list[str]) -> None:
    issuer.status = 302
    with pytest.raises(IssuerUnavailable):
        await kid_of(keys, "rsa")
    assert (issuer.asked, told) == ([DISCOVERY], ["it answers 302"])


async def test_an_issuer_without_an_address_of_its_keys_is_refused(
    issuer: LocalIssuer, keys: IssuerKeys, told: list[str]
) -> None:
    issuer.documents[DISCOVERY]["jwks_uri"] = 5
    with pytest.raises(IssuerUnavailable):
        await kid_of(keys, "rsa")
    assert told == ["it does not say where its keys are"]


async def test_keys_of_an_encrypted_issuer_are_not_fetched_in_the_clear(clock: FakeClock, told: list[str]) -> None:
    asked: list[str] = []

    async def get(url: str) -> bytes:
        asked.append(url)
        return json.dumps({"issuer": "https://issuer.example", "jwks_uri": "http://issuer.example/keys"}).encode()

    keys = IssuerKeys(Issuer(url="https://issuer.example", get=get, failed=told.append), clock)
    with pytest.raises(IssuerUnavailable):
        await kid_of(keys, "rsa")
    assert asked == [f"https://issuer.example{DISCOVERY}"]


async def test_a_token_without_a_keys_name_is_of_the_only_key_that_fits(issuer: LocalIssuer, keys: IssuerKeys) -> None:
    assert [await kid_of(keys, None, algorithm) for algorithm in ("RS256", "ES256", "EdDSA")] == ["rsa", "ec", "ed"]


async def test_a_token_without_a_keys_name_is_of_none_where_two_fit(issuer: LocalIssuer, keys: IssuerKeys) -> None:
    issuer.publish(rsa_key(), rsa_key("other"))
    assert await kid_of(keys, None) is None


@pytest.mark.parametrize(
    ("kid", "algorithm"), [("rsa", "ES256"), ("ec", "RS256"), ("ed", "ES256"), ("rsa", "EdDSA"), ("ec", "EdDSA")]
)
async def test_a_key_is_of_its_own_kind_of_algorithm_only(keys: IssuerKeys, kid: str, algorithm: str) -> None:
    assert await kid_of(keys, kid, algorithm) is None


async def test_a_key_that_names_its_algorithm_is_for_that_only(issuer: LocalIssuer, keys: IssuerKeys) -> None:
    issuer.documents[JWKS]["keys"][0]["alg"] = "PS256"
    assert (await kid_of(keys, "rsa", "RS256"), await kid_of(keys, "rsa", "PS256")) == (None, "rsa")


@pytest.mark.parametrize(
    "entry",
    [
        pytest.param("rsa", id="no object"),
        pytest.param({}, id="empty"),
        pytest.param({"kty": "oct", "k": "c2VjcmV0", "kid": "rsa"}, id="a shared secret"),
        pytest.param({**public(rsa_key())["keys"][0], "use": "enc"}, id="for encryption"),
        pytest.param({**public(rsa_key())["keys"][0], "n": "v" * 171}, id="a short modulus"),
        pytest.param({**public(rsa_key())["keys"][0], "n": "v" * 2_000}, id="a long modulus"),
        pytest.param({**public(rsa_key())["keys"][0], "n": "!" * 342}, id="no number"),
        pytest.param({**public(rsa_key())["keys"][0], "e": "AQAAAAAAAQ"}, id="a long exponent"),
        pytest.param({**public(rsa_key())["keys"][0], "kid": 5}, id="a number for a name"),
        pytest.param({**public(ec_key("ec", "P-384"))["keys"][0], "kid": "rsa"}, id="another curve"),
        pytest.param({**public(ec_key())["keys"][0], "x": "AAAA"}, id="a point that is none"),
        pytest.param({"kty": "OKP", "crv": "X25519", "x": "A" * 43}, id="a key for agreement"),
        pytest.param({**public(ed_key())["keys"][0], "x": "AA"}, id="a short key"),
        pytest.param({"kty": "AKP", "alg": "ML-DSA-44", "pub": "AA"}, id="a kind of later days"),
    ],
)
def test_a_key_that_can_sign_no_token_is_left_out(entry: object) -> None:
    [key] = read_keys({"keys": [entry, *public(ed_key("good"))["keys"]]})
    assert key.kid == "good"


def test_of_a_private_key_that_an_issuer_lets_out_only_the_public_part_is_kept() -> None:
    [key] = read_keys({"keys": [rsa_key().as_dict(private=True)]})
    assert not key.is_private


def test_a_set_of_keys_that_cant_be_used_is_no_answer() -> None:
    with pytest.raises(IssuerAway):
        read_keys({"keys": [{"kty": "oct", "k": "c2VjcmV0"}]})


def test_of_a_flood_of_keys_a_hundred_are_read() -> None:
    assert len(read_keys(public(*[ed_key()] * 150))) == 100
