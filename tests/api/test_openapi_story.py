"""The examples of openapi.yaml are no dead letters: sent to the app in the order of their story, each one is taken."""

import json
from dataclasses import replace

import pytest

from app.api import ApiDeps
from app.api.schemas import story
from app.events import RunState
from tests.api.contract import load_description
from tests.api.harness import Service
from tests.api.lost_runs import PAY, lose_outcome
from tests.api.questions import DIGEST, ask
from tests.api.storyteller import StoryCatalogue, Storyteller
from tests.api.test_openapi import TAKE_JSON

# Whose name resolves to nothing here, and an address that may be sent to.
HOST, PUBLIC_HOST = "chat.example", "93.184.216.34"
PLAYED_HERE = {
    "createTenant",
    "changeTenant",
    "createKey",
    "rotateKey",
    "createOperatorKey",
    "rotateOperatorKey",
    "addPause",
    "cancelRuns",
    "putAgent",
    "createSession",
    "submitRun",
    "decideApproval",
    "cancelRun",
    "rerunRun",
    "resumeRun",
    "createWebhook",
    "testWebhook",
    "createStreamTicket",
}


@pytest.fixture
def deps(deps: ApiDeps) -> ApiDeps:
    return replace(deps, catalogue=StoryCatalogue())


@pytest.fixture
def storyteller(service: Service) -> Storyteller:
    return Storyteller(service, {HOST: PUBLIC_HOST})


async def begin(storyteller: Storyteller) -> None:
    """Ada's session, and her run in it."""
    await storyteller.play("putAgent")
    (session,) = await storyteller.play("createSession")
    storyteller.real[story.SESSION_ID] = session.json()["id"]
    runs = await storyteller.play("submitRun")
    storyteller.real[story.RUN_ID] = runs[0].json()["id"]


def test_every_example_of_a_body_is_played_here() -> None:
    described = {one["operationId"] for methods in load_description()["paths"].values() for one in methods.values()}
    assert TAKE_JSON & described == PLAYED_HERE


async def test_an_operator_prepares_everything(storyteller: Storyteller) -> None:
    operator = storyteller.service.keys.operator
    storyteller.real['"acme"'] = json.dumps(storyteller.service.deps.ids.new("tenant"))
    (tenant,) = await storyteller.play("createTenant", key=operator)
    storyteller.real[story.TENANT_ID] = tenant.json()["id"]
    (key,) = await storyteller.play("createKey", key=operator)
    storyteller.real[story.KEY_ID] = key.json()["id"]
    of_tenants = await storyteller.statuses("changeTenant", "rotateKey", "cancelRuns", key=operator)
    (pause,) = await storyteller.play("addPause", key=operator)
    storyteller.real[story.PAUSE_ID] = pause.json()["id"]
    ended = await storyteller.statuses("endPause", key=operator)
    (made,) = await storyteller.play("createOperatorKey", key=operator)
    storyteller.real[story.KEY_ID] = made.json()["id"]
    of_operators = await storyteller.statuses("rotateOperatorKey", key=operator)

    assert (tenant.status_code, key.status_code, made.status_code) == (201, 201, 201)
    assert of_tenants == {"changeTenant": [200], "rotateKey": [201], "cancelRuns": [200]}
    assert (pause.status_code, ended) == (201, {"endPause": [204]})
    assert of_operators == {"rotateOperatorKey": [201]}


async def test_agents_sessions_and_runs_are_made(storyteller: Storyteller) -> None:
    agents = await storyteller.statuses("putAgent")
    (session,) = await storyteller.play("createSession")
    storyteller.real[story.SESSION_ID] = session.json()["id"]

    assert agents == {"putAgent": [201, 201]}
    assert session.status_code == 201
    assert await storyteller.statuses("submitRun") == {"submitRun": [202, 202, 202]}


async def test_what_was_made_is_read_back_by_the_paths_that_are_shown(storyteller: Storyteller) -> None:
    await begin(storyteller)

    read = [
        "getRun",
        "getSession",
        "getAgent",
        "getAgentVersion",
        "listRunEvents",
        "listSessionMessages",
        "listRunMessages",
    ]
    assert set(map(tuple, (await storyteller.statuses(*read)).values())) == {(200,)}
    assert await storyteller.statuses("putArtifact", "getArtifact", "getArtifactVersion", "listArtifacts") == {
        "putArtifact": [201],
        "getArtifact": [200],
        "getArtifactVersion": [200],
        "listArtifacts": [200],
    }


async def test_the_booking_is_allowed(storyteller: Storyteller) -> None:
    await begin(storyteller)
    approval_id = await ask(storyteller.service, storyteller.real[story.RUN_ID], tool=story.TOOL, agent=story.AGENT)
    storyteller.real |= {story.APPROVAL_ID: approval_id, story.DIGEST: DIGEST}

    assert await storyteller.statuses("getApproval", "decideApproval", key=storyteller.service.keys.colleague) == {
        "getApproval": [200],
        "decideApproval": [200],
    }


async def test_a_run_is_cancelled_and_comes_once_more(storyteller: Storyteller) -> None:
    await begin(storyteller)

    cancelled = await storyteller.statuses("cancelRun")
    await storyteller.service.scribe.end(storyteller.real[story.RUN_ID], state=RunState.CANCELLED)

    assert cancelled == {"cancelRun": [202]}
    assert await storyteller.statuses("rerunRun") == {"rerunRun": [202]}


async def test_a_run_goes_on_from_a_call_whose_outcome_somebody_knows(storyteller: Storyteller) -> None:
    await begin(storyteller)
    await lose_outcome(storyteller.service, storyteller.real[story.RUN_ID])
    storyteller.real[story.CALL_ID] = PAY.call_id

    assert await storyteller.statuses("resumeRun") == {"resumeRun": [202]}


async def test_a_webhook_is_made_and_tried(storyteller: Storyteller) -> None:
    (made,) = await storyteller.play("createWebhook")
    storyteller.real[story.WEBHOOK_ID] = made.json()["id"]

    assert made.status_code == 201
    assert await storyteller.statuses("testWebhook", "getWebhook") == {"testWebhook": [202], "getWebhook": [200]}


async def test_a_ticket_is_given_for_the_stream_that_is_shown(storyteller: Storyteller) -> None:
    await begin(storyteller)

    assert await storyteller.statuses("createStreamTicket") == {"createStreamTicket": [201]}


async def test_the_key_that_asks_may_be_shown(storyteller: Storyteller) -> None:
    assert await storyteller.statuses("getMe", "listTools", "listModels", "getUsage") == {
        "getMe": [200],
        "listTools": [200],
        "listModels": [200],
        "getUsage": [200],
    }
