"""A generated client drives the service: everything that openapi.yaml says can be called through it."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.acceptance.client import call, say
from tests.acceptance.conftest import deployment, stage
from tests.acceptance.deployments import Deployment
from tests.acceptance.service import Service
from tests.api.contract import load_description
from tests.clients.generated import Driver, GeneratedClient, generate, imported
from tests.deploy.conftest import find_tool

__all__ = ["deployment", "stage"]

pytestmark = pytest.mark.external
BOOKING = json.dumps([call("mark", id="stay"), say("Booked.")])


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GeneratedClient]:
    folder = tmp_path_factory.mktemp("generated")
    generate(find_tool("openapi-python-client"), folder)
    with imported(folder) as package:
        yield GeneratedClient(package)


@pytest.fixture(scope="module")
def served(deployment: Deployment) -> Service:
    return deployment.start()


@pytest.fixture
def caller(generated: GeneratedClient, deployment: Deployment, served: Service) -> Iterator[Driver]:
    """With the service's key, and two agents stored: the calls of one have to be allowed by a person."""
    with generated.open(served.address, deployment.keys.service) as driver:
        plain = generated.model("AgentDefinition", instructions="Do as you are told.")
        gated = {"tools": ["mark"], "approval_required_tools": ["mark"]}
        driver("put_agent", "planner", body=plain, expect=(200, 201))
        driver(
            "put_agent",
            "booker",
            body=generated.model("AgentDefinition", instructions="Book.", **gated),
            expect=(200, 201),
        )
        yield driver


@pytest.fixture
def approver(generated: GeneratedClient, deployment: Deployment, served: Service) -> Iterator[Driver]:
    with generated.open(served.address, deployment.keys.approver) as driver:
        yield driver


@pytest.fixture
def operator(generated: GeneratedClient, deployment: Deployment, served: Service) -> Iterator[Driver]:
    with generated.open(served.address, deployment.keys.operator) as driver:
        yield driver


def snake(operation_id: str) -> str:
    return re.sub(r"([A-Z])", r"_\1", operation_id).lower()


def submit(driver: Driver, agent: str, *steps: str, expect: int = 200, **more: Any) -> Any:
    script = json.dumps([say(step) for step in steps])
    body = driver.generated.model("SubmitRun", agent=agent, input=script, **more)
    return driver("submit_run", body=body, prefer="wait=30", expect=expect)


def test_every_operation_has_a_function(generated: GeneratedClient) -> None:
    described = {
        operation["operationId"] for methods in load_description()["paths"].values() for operation in methods.values()
    }
    assert set(generated.operations()) == {snake(name) for name in described}


def test_a_run_is_submitted_awaited_and_read_back(caller: Driver) -> None:
    run = submit(caller, "planner", "Stay in Uji.", metadata={"ticket": "T-1"})

    assert (run.state.value, run.output_text, run.metadata.to_dict()) == (
        "completed",
        "Stay in Uji.",
        {"ticket": "T-1"},
    )
    assert caller("get_run", run.id).to_dict() == run.to_dict()


def test_messages_are_an_input_as_well_as_a_text(caller: Driver) -> None:
    script = json.dumps([say("Again.")])
    body = caller.generated.model("SubmitRun", agent="planner", input=[{"role": "user", "content": script}])

    run = caller("submit_run", body=body, prefer="wait=30")

    assert [(message.role.value, message.content) for message in run.input_] == [("user", script)]


def test_lists_are_walked_by_their_cursors(caller: Driver) -> None:
    wanted = [submit(caller, "planner", "One of three.", user="walker").id for _ in range(3)]

    first = caller("list_runs", user="walker", limit=2)
    second = caller("list_runs", user="walker", limit=2, cursor=first.next_cursor)

    assert [run.id for run in [*first.items, *second.items]] == wanted[::-1]
    assert second.next_cursor is None


def test_a_runs_events_are_read_in_pages(caller: Driver) -> None:
    run = submit(caller, "planner", "Told in pages.")

    first = caller("list_run_events", run.id, limit=3)
    rest = caller("list_run_events", run.id, cursor=first.next_cursor)

    events = [*first.items, *rest.items]
    assert [event.seq for event in events] == list(range(1, run.last_seq + 1))
    assert (events[0].kind, events[-1].kind, events[-1]["state"]) == ("run_queued", "terminated", "completed")


def test_an_approval_is_found_and_decided(caller: Driver, approver: Driver) -> None:
    body = caller.generated.model("SubmitRun", agent="booker", input=BOOKING)
    waiting = caller("submit_run", body=body, prefer="wait=30", expect=202)
    assert waiting.state.value == "suspended"

    [approval] = approver("list_approvals", run_id=waiting.id).items
    answer = caller.generated.model(
        "DecideApproval", decision="approve", arguments_digest=approval.arguments_digest, reason="go ahead"
    )
    decided = approver("decide_approval", approval.id, body=answer)

    assert (decided.status.value, decided.decision.decided_by) == ("approved", "approver")
    assert caller("get_run", waiting.id, prefer="wait=30").output_text == "Booked."


def test_a_session_keeps_state_messages_and_artifacts(caller: Driver) -> None:
    body = caller.generated.model("CreateSession", agent="planner", user="ada", state={"nights": 4})
    session = caller("create_session", body=body, expect=201)
    submit(caller, "planner", "Remembered.", session_id=session.id)
    types = caller.generated.package.types
    stored = caller("put_artifact", session.id, "plan.txt", body=types.File(payload=b"four nights"), expect=201)

    assert caller("get_session", session.id).state.to_dict() == {"nights": 4}
    assert caller("list_session_messages", session.id).items[-1].content == "Remembered."
    assert caller("list_artifacts", session.id).items[0].sha256 == stored.sha256
    assert caller("get_artifact", session.id, "plan.txt").payload.read() == b"four nights"
    caller("erase_session", session.id, expect=204)


def test_a_webhook_is_made_tried_and_deleted(caller: Driver) -> None:
    body = caller.generated.model(
        "CreateWebhook", url="https://93.184.216.34/hooks", events=["run.terminated"], description="of a test"
    )
    made = caller("create_webhook", body=body, expect=201)
    notice = caller("test_webhook", made.id, body=caller.generated.model("TestWebhook"), expect=202)

    assert caller("list_deliveries", made.id).items[0].id == notice.id
    assert made.id in [webhook.id for webhook in caller("list_webhooks").items]
    caller("delete_webhook", made.id, expect=204)
    assert caller("get_webhook", made.id, expect=404).code == "not_found"


def test_an_operator_makes_tenants_and_keys(operator: Driver, served: Service) -> None:
    generated = operator.generated
    tenant = operator(
        "create_tenant", body=generated.model("CreateTenant", name="made by a generated client"), expect=201
    )
    changed = operator("change_tenant", tenant.id, body=generated.model("ChangeTenant", weight=3))
    body = generated.model("CreateKey", subject="site", scopes=["runs:read", "runs:write"])
    key = operator("create_key", tenant.id, body=body, expect=201)

    with generated.open(served.address, key.secret) as owner:
        me = owner("get_me")
        operator("revoke_key", tenant.id, key.id, expect=204)
        refused = owner("get_me", expect=401)

    assert refused.code == "unauthenticated"
    assert (me.tenant_id, me.subject, me.limits.weight) == (tenant.id, "site", changed.weight)
    assert [one.id for one in operator("list_keys", tenant.id).items] == [key.id]


def test_a_problem_is_read_with_its_code_and_its_pointers(caller: Driver) -> None:
    body = caller.generated.model("SubmitRun", agent="planner", input=" ")

    problem = caller("submit_run", body=body, expect=422)

    assert (problem.code, [error.pointer for error in problem.errors]) == ("invalid_request", ["/input"])


def test_what_is_left_out_of_a_change_stays(operator: Driver) -> None:
    generated = operator.generated
    tenant = operator("create_tenant", body=generated.model("CreateTenant", name="left as it is"), expect=201)
    operator("change_tenant", tenant.id, body=generated.model("ChangeTenant", max_running=3))

    changed = operator("change_tenant", tenant.id, body=generated.model("ChangeTenant", weight=2))

    assert (changed.max_running, changed.weight) == (3, 2)
