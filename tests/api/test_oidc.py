"""People come with tokens of the operator's issuer, and are nobody but themselves."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace

import httpx
import pytest

from app.api import ApiConfig, ApiDeps
from app.auth import IssuerKeys, TokenRules, Tokens
from app.auth.issuer import Issuer
from app.events import RunState
from app.ports.tenancy import OperatorStore
from app.testing import FakeClock
from app.wiring.auth import fetch
from tests.api.contract import check_answer
from tests.api.harness import AS_STREAM, TENANT_SCOPES, Service, read_frames, with_key
from tests.api.lost_runs import lose
from tests.auth.issuers import AUDIENCE, LocalIssuer, by_hand, ed_key, rsa_key, sign

SCOPES = " ".join(TENANT_SCOPES)
Token = Callable[..., str]


@pytest.fixture
def issuer() -> Iterator[LocalIssuer]:
    issuer = LocalIssuer()
    issuer.publish(rsa_key())
    issuer.start()
    yield issuer
    issuer.stop()


@pytest.fixture
def tokens_clock() -> FakeClock:
    """By which tokens begin and end."""
    return FakeClock(auto_advance=False)


@pytest.fixture
def config() -> ApiConfig:
    return ApiConfig(ping_seconds=0.02)


@pytest.fixture
def deps(deps: ApiDeps, issuer: LocalIssuer, tokens_clock: FakeClock) -> ApiDeps:
    keys = IssuerKeys(Issuer(url=issuer.url, get=fetch), tokens_clock)
    return replace(deps, tokens=Tokens(TokenRules(issuer=issuer.url, audience=AUDIENCE), keys, tokens_clock))


@pytest.fixture
def token(issuer: LocalIssuer, service: Service, tokens_clock: FakeClock) -> Token:
    """A good one, of the first tenant and with all its scopes, with changes."""

    def make(**changes: object) -> str:
        given = {"tenant": service.keys.tenant_id, "scope": SCOPES, **changes}
        return sign(issuer.claims(now=tokens_clock.now(), **given), rsa_key(), "RS256")

    return make


@pytest.fixture
async def ada(service: Service, token: Token) -> AsyncIterator[httpx.AsyncClient]:
    """Asks with a token of her own."""
    transport, hooks = httpx.ASGITransport(service.app), {"response": [check_answer]}
    async with httpx.AsyncClient(
        transport=transport, base_url="http://test", headers=with_key(token()), event_hooks=hooks
    ) as client:
        yield client


async def test_a_token_makes_its_subject_a_caller_of_its_tenant(service: Service, ada: httpx.AsyncClient) -> None:
    me = (await ada.get("/me")).json()
    assert (me["tenant_id"], me["subject"], set(me["scopes"])) == (service.keys.tenant_id, "ada", set(TENANT_SCOPES))
    assert me["key_id"].startswith("oidc:")


async def test_a_tenant_may_be_named_by_its_name(
    service: Service, ada: httpx.AsyncClient, admin: OperatorStore, token: Token
) -> None:
    tenant = await admin.get_tenant(service.keys.tenant_id)
    assert tenant is not None
    me = await ada.get("/me", headers=with_key(token(tenant=tenant.name)))
    assert me.json()["tenant_id"] == service.keys.tenant_id


@pytest.mark.parametrize("tenant", ["nobody", "ten_" + "0" * 26, "' OR true --", "é", "%"])
async def test_a_token_of_a_tenant_that_there_is_not_looks_like_no_token(
    ada: httpx.AsyncClient, token: Token, tenant: str
) -> None:
    refused = await ada.get("/me", headers=with_key(token(tenant=tenant)))
    nothing = await ada.get("/me", headers={"Authorization": ""})
    assert (refused.status_code, refused.json()["detail"]) == (401, nothing.json()["detail"])


async def test_a_token_of_a_tenant_that_is_erased_opens_nothing(
    service: Service, ada: httpx.AsyncClient, admin: OperatorStore
) -> None:
    await admin.erase_tenant(service.keys.tenant_id, actor="tests")
    assert (await ada.get("/me")).status_code == 401


async def test_a_token_does_what_its_scopes_allow(ada: httpx.AsyncClient, token: Token) -> None:
    reader = with_key(token(scope="agents:read"))
    assert (await ada.get("/agents", headers=reader)).status_code == 200
    assert (await ada.get("/runs", headers=reader)).status_code == 403


async def test_no_token_makes_an_operator(ada: httpx.AsyncClient, token: Token) -> None:
    refused = await ada.get("/tenants", headers=with_key(token(scope="operator runs:read")))
    assert (refused.status_code, refused.json()["code"]) == (403, "missing_scope")


async def test_keys_are_taken_beside_tokens(client: httpx.AsyncClient) -> None:
    assert (await client.get("/me")).status_code == 200


async def test_a_tenants_requests_by_token_are_counted_too(
    service: Service, ada: httpx.AsyncClient, admin: OperatorStore
) -> None:
    await admin.set_tenant(service.keys.tenant_id, {"requests_per_minute": 10}, actor="tests")
    assert [(await ada.get("/me")).status_code for _ in range(3)] == [200, 429, 429]


@pytest.mark.parametrize("body", [{}, {"user": "ada"}])
async def test_a_run_is_its_subjects(service: Service, ada: httpx.AsyncClient, body: dict[str, str]) -> None:
    await service.put_agent()
    run = await ada.post("/runs", json={"agent": "planner", "input": "Hello.", **body})
    assert (run.status_code, run.json()["user"]) == (202, "ada")


async def test_a_run_for_somebody_else_is_refused_and_not_stored(service: Service, ada: httpx.AsyncClient) -> None:
    await service.put_agent()
    refused = await ada.post("/runs", json={"agent": "planner", "input": "Hello.", "user": "bob"})
    assert (refused.status_code, refused.json()["code"]) == (403, "user_mismatch")
    assert (await ada.get("/runs")).json()["items"] == []


@pytest.mark.parametrize("body", [{}, {"user": "ada"}])
async def test_a_session_is_its_subjects(ada: httpx.AsyncClient, body: dict[str, str]) -> None:
    session = await ada.post("/sessions", json=body)
    assert (session.status_code, session.json()["user"]) == (201, "ada")


async def test_a_session_for_somebody_else_is_refused_and_not_stored(ada: httpx.AsyncClient) -> None:
    refused = await ada.post("/sessions", json={"user": "bob"})
    assert (refused.status_code, refused.json()["code"]) == (403, "user_mismatch")
    assert (await ada.get("/sessions")).json()["items"] == []


async def test_a_key_speaks_for_any_user(service: Service, client: httpx.AsyncClient) -> None:
    await service.put_agent()
    run = await client.post("/runs", json={"agent": "planner", "input": "Hello.", "user": "bob"})
    assert run.json()["user"] == "bob"


async def test_nobody_speaks_in_somebody_elses_session(service: Service, ada: httpx.AsyncClient) -> None:
    await service.put_agent()
    session_id = await service.create_session(user="bob")
    refused = await ada.post("/runs", json={"agent": "planner", "input": "Hello.", "session_id": session_id})
    assert (refused.status_code, refused.json()["code"]) == (422, "session_mismatch")


async def test_in_a_session_of_nobody_a_run_is_its_subjects(service: Service, ada: httpx.AsyncClient) -> None:
    await service.put_agent()
    session_id = await service.create_session()
    run = await ada.post("/runs", json={"agent": "planner", "input": "Hello.", "session_id": session_id})
    assert (run.status_code, run.json()["user"]) == (202, "ada")


async def test_nobody_runs_somebody_elses_run_once_more(service: Service, ada: httpx.AsyncClient) -> None:
    run_id = await service.submit(user="bob")
    await service.scribe.end(run_id)
    refused = await ada.post(f"/runs/{run_id}/rerun")
    assert (refused.status_code, refused.json()["code"]) == (403, "user_mismatch")
    assert [run["id"] for run in (await ada.get("/runs")).json()["items"]] == [run_id]


async def test_nobody_goes_on_with_somebody_elses_run(service: Service, ada: httpx.AsyncClient) -> None:
    run_id = await service.submit(user="bob")
    await lose(service, run_id)
    refused = await ada.post(f"/runs/{run_id}/resume")
    assert (refused.status_code, refused.json()["code"]) == (403, "user_mismatch")


@pytest.mark.parametrize("body", [{"user": "ada"}, {}])
async def test_whoever_wants_it_runs_his_own_or_nobodys_once_more(
    service: Service, ada: httpx.AsyncClient, body: dict[str, str]
) -> None:
    run_id = await service.submit(**body)
    await service.scribe.end(run_id)
    assert (await ada.post(f"/runs/{run_id}/rerun")).status_code == 202


async def test_a_stream_ends_with_its_token(
    service: Service, live: httpx.AsyncClient, token: Token, tokens_clock: FakeClock
) -> None:
    run_id = await service.submit()
    headers = {**AS_STREAM, **with_key(token())}
    async with live.stream("GET", f"/runs/{run_id}/events", headers=headers) as response:
        frames = read_frames(response)
        assert (await anext(frames)).event == "run_queued"
        tokens_clock.advance(300 + 60)
        comments = [frame.comment async for frame in frames]
    assert comments[-1] == "key no longer valid"


async def test_a_stream_of_a_token_ends_with_its_tenant(
    service: Service, live: httpx.AsyncClient, token: Token, admin: OperatorStore
) -> None:
    run_id = await service.submit()
    headers = {**AS_STREAM, **with_key(token())}
    async with live.stream("GET", f"/runs/{run_id}/events", headers=headers) as response:
        frames = read_frames(response)
        await anext(frames)
        await admin.erase_tenant(service.keys.tenant_id, actor="tests")
        comments = [frame.comment async for frame in frames]
    assert comments[-1] == "key no longer valid"


async def test_a_stream_of_a_token_goes_on_to_its_end(service: Service, live: httpx.AsyncClient, token: Token) -> None:
    run_id = await service.submit()
    headers = {**AS_STREAM, **with_key(token())}
    async with live.stream("GET", f"/runs/{run_id}/events", headers=headers) as response:
        frames = read_frames(response)
        await anext(frames)
        await service.scribe.end(run_id, state=RunState.COMPLETED)
        assert [frame.event async for frame in frames if frame.event] == ["terminated"]


async def test_where_the_issuer_was_never_there_a_token_is_no_wrong_one(
    ada: httpx.AsyncClient, issuer: LocalIssuer
) -> None:
    issuer.status = 500
    unknown = await ada.get("/me")
    assert (unknown.status_code, unknown.json()["code"], unknown.headers["retry-after"]) == (
        503,
        "issuer_unavailable",
        "5",
    )


async def test_requests_go_on_while_the_issuer_is_away(
    ada: httpx.AsyncClient, issuer: LocalIssuer, tokens_clock: FakeClock, token: Token
) -> None:
    await ada.get("/me")
    issuer.status = 500
    tokens_clock.advance(3_600)
    assert (await ada.get("/me", headers=with_key(token()))).status_code == 200


async def test_keys_are_served_while_somebody_waits_for_the_issuer(
    ada: httpx.AsyncClient, client: httpx.AsyncClient, issuer: LocalIssuer
) -> None:
    issuer.gate.clear()
    waiting = asyncio.create_task(ada.get("/me"))
    served = await client.get("/me")
    assert (served.status_code, waiting.done()) == (200, False)
    issuer.gate.set()
    assert (await waiting).status_code == 200


async def test_guesses_at_tokens_are_slowed_as_those_at_keys(
    ada: httpx.AsyncClient, issuer: LocalIssuer, token: Token
) -> None:
    await ada.get("/me")
    forged = [sign({"sub": str(number)}, rsa_key("mine"), "RS256", kid="rsa") for number in range(11)]
    statuses = [(await ada.get("/me", headers=with_key(text))).status_code for text in forged]
    assert statuses == [401] * 10 + [429]
    assert (await ada.get("/me")).status_code == 200


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(by_hand({"alg": "none"}, {"sub": "ada"}), id="unsigned"),
        pytest.param(by_hand({"alg": "EdDSA", "kid": "ed"}, {"sub": "ada"}, b"x" * 64), id="an unknown key"),
        pytest.param("a" * 1_000_000 + ".b.c", id="a megabyte"),
        pytest.param("W1tb" * 300 + ".e30.e30", id="a deep one"),
        pytest.param(sign({"sub": "ada"}, ed_key("mine"), "EdDSA"), id="another's"),
    ],
)
async def test_a_hostile_token_is_told_what_every_wrong_key_is(ada: httpx.AsyncClient, text: str) -> None:
    refused = await ada.get("/me", headers=with_key(text))
    nothing = await ada.get("/me", headers={"Authorization": ""})
    assert (refused.status_code, refused.json()["detail"]) == (401, nothing.json()["detail"])
    assert text not in refused.text


async def test_without_an_issuer_a_token_is_nothing(service: Service, issuer: LocalIssuer, token: Token) -> None:
    service.app.state.deps = replace(service.deps, tokens=None)
    refused = await service.client.get("/me", headers=with_key(token()))
    assert (refused.status_code, issuer.asked) == (401, [])
