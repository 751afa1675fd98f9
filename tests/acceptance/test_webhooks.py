"""Other services are told, by signed notices that survive the process which owed them."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from standardwebhooks.webhooks import Webhook

from tests.acceptance.client import Caller, call, say
from tests.acceptance.deployments import Deployment
from tests.acceptance.service import Service, until

LOOPBACK = "127.0.0.0/8"


class Receiver:
    """A service that is told. ``status`` is what it answers with."""

    def __init__(self) -> None:
        self.status = 204
        self.heard: list[tuple[dict[str, str], bytes]] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.heard.append(({name.lower(): value for name, value in self.headers.items()}, body))
                self.send_response(receiver.status)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}/hook"

    def told(self, type: str) -> list[tuple[dict[str, str], bytes]]:
        return [(headers, body) for headers, body in self.heard if json.loads(body)["type"] == type]


@contextmanager
def receiving() -> Iterator[Receiver]:
    receiver = Receiver()
    thread = threading.Thread(target=receiver.server.serve_forever)
    thread.start()
    try:
        yield receiver
    finally:
        receiver.server.shutdown()
        receiver.server.server_close()
        thread.join()


def subscribe(caller: Caller, url: str, *events: str) -> dict[str, Any]:
    answer = caller.http.post("/webhooks", json={"url": url, "events": events})
    assert answer.status_code == 201, answer.text
    return dict(answer.json())


def start(deployment: Deployment) -> Service:
    return deployment.start(lease_seconds="2", allowed_networks=LOOPBACK)


def test_a_chat_bot_asks_the_person_and_hears_of_the_end(fresh: Deployment) -> None:
    service = start(fresh)
    caller, approver = fresh.call(service), fresh.approve(service)
    caller.put_agent("payer", tools=["mark"], approval_required_tools=["mark"])
    with receiving() as bot:
        webhook = subscribe(caller, bot.url, "approval.requested", "run.terminated")
        run_id = caller.play(call("mark", id="secret-words"), say("Paid."), agent="payer")
        until(lambda: bot.told("approval.requested"))
        [(headers, body)] = bot.told("approval.requested")
        notice = Webhook(webhook["secret"]).verify(body, headers)
        assert "secret-words" not in body.decode()
        assert approver.decide(notice["data"], "approve").status_code == 200
        until(lambda: bot.told("run.terminated"))
        [(headers, body)] = bot.told("run.terminated")
        ended = Webhook(webhook["secret"]).verify(body, headers)["data"]
    assert (ended["run_id"], ended["state"]) == (run_id, "completed")
    assert "Paid." not in body.decode()


def test_a_notice_outlives_the_process_that_owes_it(fresh: Deployment) -> None:
    service = start(fresh)
    caller = fresh.call(service)
    with receiving() as bot:
        bot.status = 500
        webhook = subscribe(caller, bot.url, "run.terminated")
        deliveries = f"/webhooks/{webhook['id']}/deliveries"
        run_id = caller.play(say("Done."))
        until(lambda: (sent := caller.http.get(deliveries).json()["items"]) and sent[0]["last_status"] == 500)
        service.kill()
        bot.status = 204
        again = fresh.call(start(fresh))
        until(lambda: len(bot.told("run.terminated")) > 1, seconds=30)
        ids = {headers["webhook-id"] for headers, _ in bot.told("run.terminated")}
        until(lambda: again.http.get(deliveries).json()["items"][0]["status"] == "delivered")
    assert len(ids) == 1
    assert json.loads(bot.heard[-1][1])["data"]["run_id"] == run_id


def test_nothing_is_sent_to_a_private_address_unless_it_is_allowed(fresh: Deployment) -> None:
    caller = fresh.call(fresh.start())
    answer = caller.http.post("/webhooks", json={"url": "https://127.0.0.1/hook", "events": ["run.terminated"]})
    assert (answer.status_code, answer.json()["code"]) == (422, "private_address")
