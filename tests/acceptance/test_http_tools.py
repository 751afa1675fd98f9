"""Tools from the operator's file: an agent's run asks a real service with a secret that nobody is told."""

import json
import secrets
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.acceptance.client import call, say
from tests.acceptance.deployments import Deployment

FILE = """
secrets:
  desk: {{file: desk.token, hosts: [127.0.0.1]}}
tools:
  ask_desk:
    description: Asks the desk about an order.
    request:
      url: http://127.0.0.1:{port}/orders/{{order}}
      headers: {{Authorization: "Bearer {{secret:desk}}"}}
    parameters: {{type: object, properties: {{order: {{type: string}}}}, required: [order]}}
"""


class Echo(BaseHTTPRequestHandler):
    """Answers with what it was asked, secrets included."""

    def do_GET(self) -> None:
        body = json.dumps({"path": self.path, "headers": dict(self.headers)}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@pytest.fixture(scope="module")
def tools_file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("tools")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Echo)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    # Of a shape that the suite's watch for secrets finds wherever it is told.
    (folder / "desk.token").write_text(f"whsec_{secrets.token_urlsafe(32)}\n")
    path = folder / "tools.yaml"
    path.write_text(FILE.format(port=server.server_port))
    yield path
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_run_asks_a_service_and_the_secret_stays_here(deployment: Deployment, tools_file: Path) -> None:
    caller = deployment.call(deployment.start(tools_file=str(tools_file), allowed_networks="127.0.0.0/8"))
    caller.put_agent("clerk", tools=["ask_desk"])

    run_id = caller.play(call("ask_desk", order="A 7/1"), say("It is on its way."), agent="clerk")

    assert caller.end_of(run_id)["state"] == "completed"
    told = caller.event(run_id, "tool_result")["content"]
    assert "/orders/A%207%2F1" in told
    assert "Bearer [secret desk]" in told
    assert "whsec_" not in json.dumps(caller.events(run_id))


def test_a_tool_reaches_no_private_address_that_the_operator_did_not_list(fresh: Deployment, tools_file: Path) -> None:
    # Alone: a worker that may reach the service would have the tool, too.
    caller = fresh.call(fresh.start(tools_file=str(tools_file)))
    caller.put_agent("clerk", tools=["ask_desk"])

    run_id = caller.play(call("ask_desk", order="7"), say("I could not ask."), agent="clerk")

    assert caller.end_of(run_id)["state"] == "completed"
    assert caller.event(run_id, "tool_error")["code"] == "http_private_address"
