"""One service for all attacks of a session: what one of them leaves behind, the next one meets."""

import json
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest

from tests.acceptance.client import TOOLS, Caller, call
from tests.acceptance.conftest import deployment, stage
from tests.acceptance.deployments import Deployment, add_keys, visit
from tests.acceptance.service import Service, Stage
from tests.conftest import Cluster
from tests.hostile.targets import PATIENCE_SECONDS, Target

__all__ = ["deployment", "stage"]

# Public, and nobody is asked for its name.
RECEIVER = "https://93.184.216.34/"


@pytest.fixture(scope="session")
def attacked(cluster: Cluster, template_database: str) -> Iterator[Target]:
    with _attacked(cluster, template_database) as target:
        yield target


@pytest.fixture(scope="module")
def target(attacked: Target) -> Iterator[Target]:
    """A service with one of each thing in it, for all attacks that leave them there. Its agent is as it was, whatever
    became of it in another module: which ones came before is nobody's to say."""
    with ExitStack() as stack:
        visit(stack, attacked.service.address, attacked.keys.service).put_agent("player", tools=TOOLS)
        yield attacked


@pytest.fixture(scope="module")
def sacrifice(cluster: Cluster, template_database: str) -> Iterator[Target]:
    """Such a service of a module's own, whose tenants and keys may be gone at the end."""
    with _attacked(cluster, template_database) as target:
        yield target


@contextmanager
def _attacked(cluster: Cluster, template_database: str) -> Iterator[Target]:
    name = cluster.create_database(template=template_database)
    urls = cluster.database(name)
    with ExitStack() as stack:
        stage = Stage(Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="runwright-stage-"))))
        deployment = Deployment(urls=urls, keys=add_keys(urls), stage=stage, stack=stack)
        service = deployment.start()
        ids = _fill(deployment.call(service), deployment.keys.operator)
        target = Target(service=service, http=_client(stack, service), keys=deployment.keys, ids=ids)
        yield target
        # It lives, and has met no error that it did not expect.
        assert target.http.get("/livez").status_code == 200, service.told()
        assert target.failures() == []
        sys.stdout.write(f"{len(target.tried)} requests and connections\n")
    cluster.drop_database(name)


@pytest.fixture(scope="module")
def quick(deployment: Deployment) -> Iterator[Target]:
    """A service that waits for no request longer than two seconds."""
    service = deployment.start(request_seconds="2", role="api")
    with ExitStack() as stack:
        yield Target(service=service, http=_client(stack, service), keys=deployment.keys, ids={})


def _client(stack: ExitStack, service: Service) -> httpx.Client:
    return stack.enter_context(httpx.Client(base_url=service.address, timeout=2 * PATIENCE_SECONDS))


def _fill(caller: Caller, operator: str) -> dict[str, str]:
    """One of each thing; its id under the name that paths have for it."""
    caller.put_agent("asker", tools=["mark"], approval_required_tools=["mark"])
    waits = caller.submit("asker", json.dumps([call("mark", id="a"), {"text": "Done."}]))
    approval = caller.asked(waits)[0]["id"]
    session = caller.create_session(agent="player", user="ada")["id"]
    stored = caller.http.put(f"/sessions/{session}/artifacts/note.txt", content=b"hi", headers={"Content-Type": "a/b"})
    hook = caller.http.post("/webhooks", json={"url": RECEIVER, "events": ["run.terminated"]})
    assert (stored.status_code, hook.status_code) == (201, 201), (stored.text, hook.text)
    with httpx.Client(base_url=caller.address, headers={"Authorization": f"Bearer {operator}"}) as http:
        tenant = http.post("/tenants", json={"name": "victim"}).json()["id"]
        key = http.post(f"/tenants/{tenant}/keys", json={"subject": "ada", "scopes": ["runs:read"]}).json()
        pause = http.post("/pauses", json={"kind": "agent", "name": "nobody", "tenant_id": tenant})
        assert pause.status_code == 201, pause.text
    return {
        "run_id": waits,
        "approval_id": approval,
        "session_id": session,
        "artifact": "note.txt",
        "name": "player",
        "version": "1",
        "user": "ada",
        "webhook_id": hook.json()["id"],
        "tenant_id": tenant,
        "key_id": key["id"],
        "pause_id": pause.json()["id"],
        "worker_id": "nobody",
    }
