"""Webhooks that would reach inside: private addresses in every notation, redirects, and names that change."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tests.acceptance.client import Caller
from tests.acceptance.deployments import Deployment
from tests.acceptance.service import until
from tests.hostile.targets import Target

HOSTS = [
    "127.0.0.1",
    "127.1",
    "127.0.1",
    "127.255.255.254",
    "0177.0.0.1",
    "0x7f.0.0.1",
    "0x7f000001",
    "2130706433",
    "017700000001",
    "00000177.0.0.1",
    "127.0.0.1.",
    "1２7.0.0.1",
    "①②⑦.⓪.⓪.①",
    "127。0。0。1",
    "127%2e0%2e0%2e1",
    "%31%32%37.0.0.1",
    "0.0.0.0",
    "0",
    "localhost",
    "LOCALHOST.",
    "localhost.localdomain",
    "ｌｏｃａｌｈｏｓｔ",
    "ip6-localhost",
    "10.0.0.1",
    "172.16.0.1",
    "172.31.255.255",
    "192.168.0.1",
    "169.254.169.254",
    "100.64.0.1",
    "192.0.0.170",
    "198.18.0.1",
    "192.0.2.1",
    "224.0.0.1",
    "240.0.0.1",
    "255.255.255.255",
    "[::1]",
    "[::]",
    "[0:0:0:0:0:0:0:1]",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "[::ffff:0:127.0.0.1]",
    "[::127.0.0.1]",
    "[64:ff9b::7f00:1]",
    "[64:ff9b::169.254.169.254]",
    "[64:ff9b:1::7f00:1]",
    "[2002:7f00:1::]",
    "[2001:0:7f00:1::1]",
    "[fe80::1]",
    "[fe80::1%25lo]",
    "[fc00::1]",
    "[fd00:ec2::254]",
    "[ff02::1]",
    "[2001:db8::1]",
    "[::1]x",
    "a@127.0.0.1",
    "example.com@127.0.0.1",
    "127.0.0.1#@example.com",
    "127.0.0.1\\@example.com",
    "127.0.0.1:80@example.com",
    "example.com:80:80",
    "",
]


@pytest.mark.parametrize("scheme", ["https", "http"])
@pytest.mark.parametrize("host", HOSTS, ids=repr)
def test_no_webhook_leads_inside(target: Target, scheme: str, host: str) -> None:
    body = {"url": f"{scheme}://{host}/", "events": ["run.terminated"]}
    answer = target.send("POST", "/webhooks", key=target.keys.service, json=body)
    assert answer.status == 422, answer.told
    assert answer.code in ("invalid_url", "private_address"), answer.told


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd",
        "gopher://127.0.0.1:5432/_x",
        "dict://127.0.0.1:11211/",
        "unix:///var/run/docker.sock",
        "javascript:alert(1)",
        "https:/127.0.0.1",
        "https:127.0.0.1",
        "HTTPS://127.0.0.1/",
        "https://93.184.216.34/\r\nHost: 127.0.0.1",
        "https://93.184.216.34/ HTTP/1.1",
        " https://127.0.0.1/",
        "//127.0.0.1/",
        "\x00https://127.0.0.1/",
    ],
    ids=repr,
)
def test_nothing_but_a_plain_url_is_taken(target: Target, url: str) -> None:
    body = {"url": url, "events": ["run.terminated"]}
    answer = target.send("POST", "/webhooks", key=target.keys.service, json=body)
    assert answer.is_refusal, answer.told


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_receiver_that_sends_on_to_the_inside_is_not_followed(
    reaching: Caller, inside: "Receiver", status: int
) -> None:
    with Receiver("127.0.0.1", status, Location=inside.url) as outside:
        hook = reaching.http.post("/webhooks", json={"url": outside.url, "events": ["run.terminated"]}).json()["id"]
        reaching.http.post(f"/webhooks/{hook}/test")
        until(lambda: _last(reaching, hook)["attempts"] > 0)
        reaching.http.delete(f"/webhooks/{hook}")
    assert (len(outside.asked), inside.asked) == (1, [])


def _last(caller: Caller, hook: str) -> dict[str, Any]:
    return dict(caller.http.get(f"/webhooks/{hook}/deliveries").json()["items"][0])


@pytest.fixture(scope="module")
def reaching(deployment: Deployment) -> Iterator[Caller]:
    """A caller of a service whose operator lets webhooks go to one address of this machine."""
    with ExitStack() as stack:
        yield deployment.visit(deployment.start(allowed_networks="127.0.0.1/32"))
        stack.close()


@pytest.fixture
def inside() -> Iterator["Receiver"]:
    """At another address, where nothing may go."""
    with Receiver("127.0.0.2", 200) as receiver:
        yield receiver


class Receiver:
    """A server that answers everything alike and remembers what it was asked."""

    def __init__(self, host: str, status: int, **headers: str) -> None:
        asked: list[str] = []

        class Answering(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                asked.append(self.path)
                self.send_response(status)
                for name, value in {**headers, "Content-Length": "0"}.items():
                    self.send_header(name, value)
                self.end_headers()

            do_GET = do_POST  # noqa: N815 - the library's names

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.asked = asked
        self._server = ThreadingHTTPServer((host, 0), Answering)
        self.url = f"http://{host}:{self._server.server_port}/"

    def __enter__(self) -> "Receiver":
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
