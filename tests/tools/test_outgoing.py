"""Requests to addresses that strangers named, over real sockets."""

import asyncio
import ipaddress
import ssl
import time
from collections.abc import Sequence

import pytest
import trustme

from app.ports.webhooks import DeliveryError
from app.tools.addresses import IpNetwork
from app.tools.outgoing import Lookups, OutgoingClient
from tests.tools.receivers import OK, Answer, Names, receive, reset, say, say_for_ever, say_nothing

LOOPBACK: tuple[IpNetwork, ...] = (ipaddress.ip_network("127.0.0.0/8"),)
HERE = Names([["127.0.0.1"]])
PUBLIC = "93.184.216.34"


def client(names: Names = HERE, *, allowed: Sequence[IpNetwork] = LOOPBACK) -> OutgoingClient:
    return OutgoingClient(allowed, resolve=names.resolve)


async def post(sender: OutgoingClient, url: str, *, timeout_seconds: float = 5.0) -> int:
    return await sender.post(url, headers={"webhook-id": "dlv_1"}, body=b"{}", timeout_seconds=timeout_seconds)


async def failure(sender: OutgoingClient, url: str, *, timeout_seconds: float = 5.0) -> str:
    with pytest.raises(DeliveryError) as raised:
        await post(sender, url, timeout_seconds=timeout_seconds)
    return raised.value.code


async def test_a_request_arrives_under_the_name_that_it_was_sent_to() -> None:
    async with receive() as receiver:
        status = await client().post(
            receiver.url("hooks.test", "/in/ö?a=b"), headers={"x-a": "b"}, body=b'{"a":1}', timeout_seconds=5
        )
    assert status == 200
    assert receiver.heads[0].startswith("POST /in/%C3%B6?a=b HTTP/1.1\r\n")
    assert receiver.header("host") == f"hooks.test:{receiver.port}"
    assert (receiver.header("x-a"), receiver.bodies) == ("b", [b'{"a":1}'])


async def test_a_request_says_of_its_sender_nothing_but_its_name() -> None:
    async with receive() as receiver:
        await post(client(), receiver.url())
    names = {line.partition(":")[0].lower() for line in receiver.heads[0].split("\r\n")[1:]}
    assert receiver.header("user-agent") == "runwright"
    assert names == {"host", "accept", "accept-encoding", "connection", "content-length", "user-agent", "webhook-id"}


@pytest.mark.parametrize("status", [200, 204, 299, 301, 302, 307, 308, 400, 401, 407, 410, 429, 500, 503])
async def test_every_status_is_told_as_it_is(status: int) -> None:
    async with receive(say(b"HTTP/1.1 %d X\r\ncontent-length: 0\r\n\r\n" % status)) as receiver:
        assert await post(client(), receiver.url()) == status


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_nobody_follows_a_redirect(status: int) -> None:
    async with receive() as elsewhere:
        there = f"HTTP/1.1 {status} X\r\nlocation: {elsewhere.url('127.0.0.1')}\r\ncontent-length: 0\r\n\r\n"
        async with receive(say(there.encode())) as receiver:
            assert await post(client(), receiver.url()) == status
    assert elsewhere.heads == []


async def test_a_cookie_is_not_sent_back() -> None:
    async with receive(say(b"HTTP/1.1 200 OK\r\nset-cookie: a=b\r\ncontent-length: 0\r\n\r\n")) as receiver:
        sender = client()
        await post(sender, receiver.url())
        await post(sender, receiver.url())
    assert "cookie" not in receiver.heads[1].lower()


async def test_no_proxy_of_the_environment_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    async with receive() as proxy, receive() as receiver:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.url("127.0.0.1", ""))
        assert await post(client(), receiver.url()) == 200
    assert proxy.heads == []


async def test_no_password_of_a_netrc_file_is_sent(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pytest.TempPathFactory
) -> None:
    netrc = f"{tmp_path}/netrc"
    with open(netrc, "w", encoding="ascii") as file:  # noqa: ASYNC230 - one line
        file.write("machine hooks.test login u password p\n")
    monkeypatch.setenv("NETRC", netrc)
    async with receive() as receiver:
        await post(client(), receiver.url())
    assert "authorization" not in receiver.heads[0].lower()


async def test_a_name_is_resolved_once_and_what_it_means_later_is_of_no_matter() -> None:
    names = Names([["127.0.0.1"], ["10.0.0.1"]])
    async with receive() as receiver:
        assert await post(client(names), receiver.url()) == 200
    assert names.asked == [("hooks.test", receiver.port)]


async def test_a_name_that_was_public_when_it_was_checked_is_checked_again() -> None:
    names = Names([[PUBLIC], ["127.0.0.1"]])
    sender = client(names, allowed=())
    assert await sender.check_url("https://hooks.test/") is None
    assert await failure(sender, "https://hooks.test/") == "private_address"


async def test_a_name_that_is_no_word_in_any_script_is_sent_to_all_the_same() -> None:
    async with receive() as receiver:
        assert await post(client(), receiver.url("xn--a.test")) == 200


async def test_the_next_address_is_tried_when_nobody_listens_at_the_first() -> None:
    async with receive() as receiver:
        assert await post(client(Names([["127.0.0.9", "127.0.0.1"]])), receiver.url()) == 200


@pytest.mark.parametrize(
    "addresses",
    [["10.0.0.1"], [PUBLIC, "10.0.0.1"], ["10.0.0.1", PUBLIC], [PUBLIC, "::1"], ["fe80::1%lo"], ["::ffff:127.0.0.1"]],
)
async def test_a_name_with_a_private_address_is_refused_whatever_else_it_has(addresses: list[str]) -> None:
    sender = client(Names([addresses]), allowed=())
    assert await sender.check_url("https://hooks.test/") == "private_address"
    assert await failure(sender, "https://hooks.test/") == "private_address"


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "169.254.169.254", "[::1]", "[::ffff:127.0.0.1]", "[64:ff9b::7f00:1]", "[2002:7f00:1::]"]
)
async def test_a_private_address_is_refused_where_the_url_names_it(host: str) -> None:
    sender = client(allowed=())
    assert await sender.check_url(f"https://{host}/") == "private_address"
    assert await failure(sender, f"https://{host}/") == "private_address"


async def test_no_connection_goes_to_a_private_address() -> None:
    async with receive() as receiver:
        await failure(client(allowed=()), receiver.url())
    assert receiver.heads == []


async def test_only_the_network_that_is_allowed_is_open() -> None:
    allowed: Sequence[IpNetwork] = [ipaddress.ip_network("127.0.0.1/32")]
    assert await client(Names([["127.0.0.2"]]), allowed=allowed).check_url("http://hooks.test/") == "private_address"
    assert await client(Names([["127.0.0.1"]]), allowed=allowed).check_url("http://hooks.test/") is None


async def test_without_encryption_nothing_goes_to_the_public_internet() -> None:
    sender = client(Names([[PUBLIC]]))
    assert await sender.check_url("http://hooks.test/") == "invalid_url"
    assert await sender.check_url("https://hooks.test/") is None
    assert await failure(sender, "http://hooks.test/") == "invalid_url"


async def test_without_encryption_each_address_has_to_be_allowed() -> None:
    assert await client(Names([["127.0.0.1", PUBLIC]])).check_url("http://hooks.test/") == "invalid_url"


@pytest.mark.parametrize("url", ["ftp://a.b/", "https://u:p@a.b/", "https://0x7f.1/", "https://2130706433/", "x"])
async def test_what_is_no_url_is_refused_unresolved(url: str) -> None:
    names = Names([[PUBLIC]])
    assert await client(names).check_url(url) == "invalid_url"
    assert await failure(client(names), url) == "invalid_url"
    assert names.asked == []


@pytest.mark.parametrize("answer", [OSError("no such host"), [], ["no address"]])
async def test_a_name_that_leads_nowhere_is_no_url_now_and_a_failure_later(answer: Sequence[str] | OSError) -> None:
    sender = client(Names([answer]))
    assert await sender.check_url("https://hooks.test/") == "invalid_url"
    assert await failure(sender, "https://hooks.test/") == "dns_failed"


async def test_a_name_server_that_never_answers_is_waited_for_no_longer_than_the_request_may_take() -> None:
    async def resolve(host: str, port: int) -> Sequence[str]:
        await asyncio.Event().wait()
        return []

    assert await failure(OutgoingClient(resolve=resolve), "https://hooks.test/", timeout_seconds=0.1) == "timeout"


async def test_an_answer_without_end_is_not_waited_for() -> None:
    endless = say_for_ever(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", b"3e8\r\n" + b"x" * 1000 + b"\r\n")
    async with receive(endless) as receiver:
        began = time.monotonic()
        assert await post(client(), receiver.url(), timeout_seconds=30) == 200
    assert time.monotonic() - began < 10


@pytest.mark.parametrize(
    "answer",
    [
        say_nothing,
        say_for_ever(b"HTTP/1.1 2", b"0", every_seconds=0.02),
        say_for_ever(b"HTTP/1.1 200 OK\r\n", b"x: y\r\n", every_seconds=0.02),
        say_for_ever(b"", b"HTTP/1.1 103 Early Hints\r\n\r\n", every_seconds=0.02),
    ],
    ids=["nothing", "a long status", "headers without end", "hints without end"],
)
async def test_an_answer_that_does_not_begin_in_time_is_a_timeout(answer: Answer) -> None:
    async with receive(answer) as receiver:
        began = time.monotonic()
        assert await failure(client(), receiver.url(), timeout_seconds=0.3) == "timeout"
    assert time.monotonic() - began < 5


@pytest.mark.parametrize(
    "answer",
    [
        reset,
        say(b""),
        say(b"HTTP/1.1 200"),
        say(b"SSH-2.0-OpenSSH\r\n\r\n"),
        say(b"HTTP/1.1 999999 X\r\n\r\n"),
        say_for_ever(b"HTTP/1.1 200 OK\r\nx: ", b"y" * 10_000),
        say_for_ever(b"", b"y" * 10_000),
    ],
    ids=["reset", "closed", "cut off", "no HTTP", "no status", "a header without end", "a line without end"],
)
async def test_what_is_no_answer_is_a_lost_connection(answer: Answer) -> None:
    async with receive(answer) as receiver:
        assert await failure(client(), receiver.url()) == "connection_lost"


async def test_a_receiver_that_resets_after_its_status_has_answered() -> None:
    async def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n")
        await writer.drain()
        writer.transport.abort()

    async with receive(answer) as receiver:
        assert await post(client(), receiver.url()) == 200


async def test_nobody_at_the_address_is_a_failed_connection() -> None:
    async with receive() as receiver:
        pass
    assert await failure(client(), receiver.url()) == "connect_failed"


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def server_of(authority: trustme.CA, *names: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(*names).configure_cert(context)
    return context


def trusting(authority: trustme.CA) -> OutgoingClient:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return OutgoingClient(LOOPBACK, resolve=HERE.resolve, tls=context)


async def test_an_encrypted_request_names_its_host_and_checks_it(authority: trustme.CA) -> None:
    named: list[str | None] = []
    context = server_of(authority, "hooks.test")
    context.sni_callback = lambda socket, name, context: named.append(name)
    async with receive(tls=context) as receiver:
        assert await post(trusting(authority), receiver.url("hooks.test", scheme="https")) == 200
    assert named == ["hooks.test"]
    assert receiver.header("host") == f"hooks.test:{receiver.port}"


async def test_a_certificate_of_an_address_is_checked_too(authority: trustme.CA) -> None:
    async with receive(tls=server_of(authority, "127.0.0.1")) as receiver:
        assert await post(trusting(authority), receiver.url("127.0.0.1", scheme="https")) == 200


async def test_a_certificate_of_another_name_is_refused(authority: trustme.CA) -> None:
    async with receive(tls=server_of(authority, "other.test", "127.0.0.1")) as receiver:
        assert await failure(trusting(authority), receiver.url("hooks.test", scheme="https")) == "tls_failed"
    assert receiver.heads == []


async def test_a_certificate_that_nobody_known_signed_is_refused(authority: trustme.CA) -> None:
    async with receive(tls=server_of(authority, "hooks.test")) as receiver:
        assert await failure(client(), receiver.url("hooks.test", scheme="https")) == "tls_failed"
    assert receiver.heads == []


async def test_a_connection_to_one_name_serves_no_other_at_the_same_address(authority: trustme.CA) -> None:
    async with receive(tls=server_of(authority, "hooks.test")) as receiver:
        sender = trusting(authority)
        assert await post(sender, receiver.url("hooks.test", scheme="https")) == 200
        assert await failure(sender, receiver.url("other.test", scheme="https")) == "tls_failed"


async def test_a_server_that_does_not_encrypt_is_sent_nothing(authority: trustme.CA) -> None:
    async with receive(say(OK)) as receiver:
        assert await failure(trusting(authority), receiver.url(scheme="https"), timeout_seconds=1) in {
            "tls_failed",
            "timeout",
        }
    assert receiver.heads == []


async def test_the_system_is_asked_for_a_name() -> None:
    assert "127.0.0.1" in await Lookups().resolve("localhost", 80)


@pytest.mark.parametrize("host", ["no-such-host.invalid", "a" * 64 + ".test"])
async def test_a_name_that_the_system_does_not_know_is_an_error(host: str) -> None:
    with pytest.raises(OSError):  # noqa: PT011 - whatever the system calls it
        await Lookups().resolve(host, 80)


async def test_too_many_lookups_that_hang_keep_nobody_waiting() -> None:
    with pytest.raises(OSError, match="hang"):
        await Lookups(limit=0).resolve("localhost", 80)


async def test_a_lookup_gives_its_place_back() -> None:
    lookups = Lookups(limit=1)
    await lookups.resolve("localhost", 80)
    assert await lookups.resolve("localhost", 80)
