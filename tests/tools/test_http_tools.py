"""Tools that are requests: what they send, what they make of answers, where they can't go, and whose secrets stay."""

import ipaddress
import json
from typing import Any

import pytest
from pydantic import ValidationError

from app.errors import ConfigurationError, ToolExecutionError
from app.policy import Effect
from app.ports.tools import Tool
from app.tools.addresses import IpNetwork
from app.tools.http import HttpTool, HttpToolDefinition
from app.tools.outgoing import OutgoingClient
from app.tools.secrets import Secret, ToolSecrets
from tests.tools.receivers import Answer, Names, Receiver, receive, reset, say, say_for_ever, say_nothing
from tests.tools.support import make_context

LOOPBACK: tuple[IpNetwork, ...] = (ipaddress.ip_network("127.0.0.0/8"),)
TOKEN = 's3cr3t"token/1'
SECRETS = ToolSecrets({"crm": Secret(value=TOKEN, hosts=frozenset({"crm.test"}))})
BY_ID = {"type": "object", "properties": {"id": {}}, "required": ["id"]}
ANYTHING = {"type": "object", "properties": {}}


def answer(body: str, *, status: str = "200 OK", kind: str = "application/json", more: str = "") -> Answer:
    packed = body.encode()
    head = f"HTTP/1.1 {status}\r\ncontent-type: {kind}\r\n{more}content-length: {len(packed)}\r\n\r\n"
    return say(head.encode() + packed)


def tool(url: str, *, names: Names | None = None, secrets: ToolSecrets = SECRETS, **said: Any) -> Tool:
    request: dict[str, Any] = {"url": url}
    request |= {name: said.pop(name) for name in ("method", "headers") if name in said}
    definition = HttpToolDefinition.model_validate({"description": "Asks.", "request": request, **said})
    sender = OutgoingClient(LOOPBACK, resolve=(names or Names([["127.0.0.1"]])).resolve)
    return HttpTool(name="ask", definition=definition, sender=sender, secrets=secrets).to_tool()


async def failure(asked: Tool, **arguments: Any) -> ToolExecutionError:
    with pytest.raises(ToolExecutionError) as raised:
        await asked.call(arguments, make_context())
    return raised.value


def line(receiver: Receiver) -> str:
    return receiver.heads[-1].partition("\r\n")[0]


# --- what is sent ----------------------------------------------------------------------------------------------------


async def test_an_argument_fills_its_place_in_the_path_and_nothing_around_it() -> None:
    async with receive(answer('{"name":"Ada"}')) as receiver:
        asked = tool(receiver.url("crm.test", "/customers/{id}/mail"), parameters=BY_ID)
        told = await asked.call({"id": "../admin?x=1#é"}, make_context())
    assert told == '{"name":"Ada"}'
    assert line(receiver) == "GET /customers/..%2Fadmin%3Fx%3D1%23%C3%A9/mail HTTP/1.1"


async def test_what_a_get_has_no_place_for_becomes_its_query() -> None:
    async with receive(answer("[]")) as receiver:
        asked = tool(receiver.url("crm.test", "/find?by=mail"), parameters=ANYTHING)
        await asked.call({"q": "a&b=c", "tags": ["x", "y"], "deep": {"a": 1}, "all": True}, make_context())
    assert line(receiver) == "GET /find?by=mail&q=a%26b%3Dc&tags=x&tags=y&deep=%7B%22a%22%3A1%7D&all=true HTTP/1.1"


async def test_what_a_post_has_no_place_for_becomes_its_body() -> None:
    async with receive(answer("", status="204 No Content")) as receiver:
        asked = tool(receiver.url("crm.test", "/orders/{id}"), method="POST", parameters=BY_ID)
        told = await asked.call({"id": 7, "note": "é"}, make_context())
    assert (told, line(receiver)) == ("", "POST /orders/7 HTTP/1.1")
    assert json.loads(receiver.bodies[0]) == {"note": "é"}
    assert receiver.header("content-type") == "application/json"


async def test_all_but_a_get_carries_the_calls_idempotency_key() -> None:
    async with receive(answer("{}")) as receiver:
        await tool(receiver.url("crm.test"), method="PUT").call({}, make_context())
        assert receiver.header("idempotency-key") == "k" * 32
        await tool(receiver.url("crm.test")).call({}, make_context())
    assert "idempotency-key" not in receiver.heads[-1].lower()


@pytest.mark.parametrize("value", ["", ".", ".."])
async def test_no_argument_leads_elsewhere_in_the_path(value: str) -> None:
    asked = tool("https://crm.test/customers/{id}", parameters=BY_ID)
    assert (await failure(asked, id=value)).code == "http_invalid_argument"


@pytest.mark.parametrize(
    ("method", "effect"),
    [
        ("GET", Effect.READ),
        ("PUT", Effect.IDEMPOTENT),
        ("DELETE", Effect.IDEMPOTENT),
        ("POST", Effect.ONCE),
        ("PATCH", Effect.ONCE),
    ],
)
def test_the_method_says_what_a_second_call_would_do(method: str, effect: Effect) -> None:
    assert tool("https://crm.test/", method=method).effect is effect


def test_the_declaration_may_say_more_of_its_effect() -> None:
    assert tool("https://crm.test/", method="POST", effect="idempotent").effect is Effect.IDEMPOTENT


# --- what comes back -------------------------------------------------------------------------------------------------


async def test_an_answer_that_is_no_success_is_a_failure_with_what_it_said() -> None:
    async with receive(answer('{"error":"no such customer"}', status="404 Not Found")) as receiver:
        failed = await failure(tool(receiver.url("crm.test")))
    assert (failed.code, str(failed)) == ("http_status", 'the service answered 404: {"error":"no such customer"}')


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_no_redirect_is_followed(status: int) -> None:
    where = "location: http://169.254.169.254/latest/meta-data\r\n"
    async with receive(answer("", status=f"{status} X", more=where)) as receiver:
        failed = await failure(tool(receiver.url("crm.test")))
    assert (failed.code, len(receiver.heads)) == ("http_status", 1)


async def test_a_long_answer_is_not_read_to_its_end() -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n\r\n"
    async with receive(say_for_ever(head, b"x" * 1000)) as receiver:
        failed = await failure(tool(receiver.url("crm.test"), max_response_bytes=10_000))
    assert failed.code == "http_too_large"


@pytest.mark.parametrize("more", ["content-encoding: gzip\r\n", "content-encoding: br\r\n"])
async def test_a_packed_answer_is_not_opened(more: str) -> None:
    async with receive(answer("x" * 100, more=more)) as receiver:
        assert (await failure(tool(receiver.url("crm.test")))).code == "http_not_text"
    assert receiver.header("accept-encoding") == "identity"


@pytest.mark.parametrize("kind", ["image/png", "application/octet-stream", ""])
async def test_what_is_no_text_is_not_told(kind: str) -> None:
    async with receive(answer("\x00\x01", kind=kind)) as receiver:
        assert (await failure(tool(receiver.url("crm.test")))).code == "http_not_text"


async def test_text_is_read_in_the_charset_that_it_says() -> None:
    body = "Müller".encode("latin-1")
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain; charset=iso-8859-1\r\ncontent-length: 6\r\n\r\n"
    async with receive(say(head + body)) as receiver:
        assert await tool(receiver.url("crm.test")).call({}, make_context()) == "Müller"


@pytest.mark.parametrize("value", ["\ud800", float("nan"), pytest.param(10**5000, id="digits"), ["\ud800"]])
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_an_argument_that_can_not_be_written_is_not_sent(method: str, value: object) -> None:
    async with receive(answer("{}")) as receiver:
        failed = await failure(tool(receiver.url("crm.test"), method=method), value=value)
    assert (failed.code, receiver.bodies) == ("http_invalid_argument", [])


@pytest.mark.parametrize("charset", ["punycode", "idna", "unicode_escape", "utf-7", "undefined", "no-such"])
async def test_text_in_a_charset_that_no_service_needs_is_not_read(charset: str) -> None:
    head = f"HTTP/1.1 200 OK\r\ncontent-type: text/plain; charset={charset}\r\ncontent-length: 2\r\n\r\n"
    async with receive(say(head.encode() + b"ok")) as receiver:
        assert (await failure(tool(receiver.url("crm.test")))).code == "http_not_text"


@pytest.mark.parametrize("charset", ["ASCII", "utf8", "UTF-16", "windows-1252", "iso-8859-15", "Shift_JIS", "gb18030"])
async def test_charsets_of_texts_in_the_world_are_read(charset: str) -> None:
    body = "ok".encode(charset)
    head = f"HTTP/1.1 200 OK\r\ncontent-type: text/plain; charset={charset}\r\ncontent-length: {len(body)}\r\n\r\n"
    async with receive(say(head.encode() + body)) as receiver:
        assert await tool(receiver.url("crm.test")).call({}, make_context()) == "ok"


@pytest.mark.parametrize(("does", "code"), [(say_nothing, "http_timeout"), (reset, "http_connection_lost")])
async def test_a_request_that_went_out_without_an_answer_is_told_as_unknown(does: Answer, code: str) -> None:
    async with receive(does) as receiver:
        failed = await failure(tool(receiver.url("crm.test"), method="POST", timeout_seconds=0.3))
    assert failed.code == code
    assert str(failed).endswith("what it did is not known")


# --- where it can't go -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("address", ["10.0.0.1", "169.254.169.254", "::1", "::ffff:10.0.0.1", "100.64.0.1"])
async def test_a_name_that_leads_to_a_private_address_is_not_asked(address: str) -> None:
    asked = tool("https://crm.test/", names=Names([[address]]))
    assert (await failure(asked)).code == "http_private_address"


async def test_a_name_is_looked_up_once_and_what_it_means_later_does_not_matter() -> None:
    names = Names([["127.0.0.1"], ["10.0.0.1"]])
    async with receive(answer("{}")) as receiver:
        await tool(receiver.url("crm.test"), names=names).call({}, make_context())
    assert len(names.asked) == 1


@pytest.mark.parametrize(
    "url",
    [
        "https://{id}.crm.test/",
        "https://crm.test/find?q={id}",
        "https://crm.test/x{id}",
        "https://crm.test/{id}{id}",
        "https://crm.test/{secret:crm}",
        "https://crm.test/{other}",
    ],
)
def test_a_place_is_a_whole_segment_of_the_path_for_a_required_argument(url: str) -> None:
    with pytest.raises(ValidationError):
        tool(url, parameters=BY_ID)


@pytest.mark.parametrize(
    "url", ["ftp://crm.test/", "https://user:pw@crm.test/", "https://", "/customers", "https://1/"]
)
def test_a_url_that_could_never_work_is_refused_at_the_start(url: str) -> None:
    with pytest.raises(ConfigurationError, match="tool 'ask'"):
        tool(url)


@pytest.mark.parametrize(
    "headers",
    [{"Host": "evil.test"}, {"Content-Length": "3"}, {"X y": "a"}, {"X": "a\r\nB: c"}, {"Idempotency-Key": "mine"}],
)
def test_a_header_that_would_lead_elsewhere_can_not_be_set(headers: dict[str, str]) -> None:
    with pytest.raises(ValidationError):
        tool("https://crm.test/", headers=headers)


# --- secrets ---------------------------------------------------------------------------------------------------------


async def test_a_secret_is_sent_to_its_host() -> None:
    async with receive(answer("{}")) as receiver:
        asked = tool(receiver.url("crm.test"), headers={"Authorization": "Bearer {secret:crm}"})
        await asked.call({}, make_context())
    assert receiver.header("authorization") == f"Bearer {TOKEN}"


def test_a_secret_goes_to_no_other_host() -> None:
    with pytest.raises(ConfigurationError, match=r"secret 'crm' may not be sent to other\.test"):
        tool("https://other.test/", headers={"Authorization": "Bearer {secret:crm}"})


def test_a_secret_that_is_not_there_is_found_at_the_start() -> None:
    with pytest.raises(ConfigurationError, match="no secret 'lost'"):
        tool("https://crm.test/", headers={"Authorization": "{secret:lost}"})


@pytest.mark.parametrize("place", ["{secret:Crm}", "{secret: crm}", "{secret:crm", "{Secret:crm}"])
def test_a_place_for_a_secret_that_is_written_wrong_is_found_at_the_start(place: str) -> None:
    with pytest.raises(ConfigurationError, match="no place for a secret"):
        tool("https://crm.test/", headers={"Authorization": f"Bearer {place}"})


@pytest.mark.parametrize("status", ["200 OK", "400 Bad Request"])
async def test_a_service_that_says_the_secret_again_does_not_tell_it_to_the_model(status: str) -> None:
    said = json.dumps({"you sent": TOKEN, "link": "https://crm.test/?t=s3cr3t%22token%2F1"})
    async with receive(answer(said, status=status)) as receiver:
        asked = tool(receiver.url("crm.test"), headers={"Authorization": "Bearer {secret:crm}"})
        try:
            told = await asked.call({}, make_context())
        except ToolExecutionError as error:
            told = str(error)
    assert "s3cr3t" not in told
    assert told.count("[secret crm]") == 2


@pytest.mark.parametrize(
    "said",
    [
        r"s3cr3t\"token\/1",
        r"s3cr3t\u0022token\u002f1",
        r"s3cr3t\u0022token\u002F1",
        "s3cr3t%22token%2f1",
        "s3cr3t%22token/1",
        "s3cr3t&quot;token/1",
        "s3cr3t&#34;token&#x2F;1",
    ],
)
async def test_a_secret_is_known_in_whatever_way_it_is_written(said: str) -> None:
    async with receive(answer(said)) as receiver:
        asked = tool(receiver.url("crm.test"), headers={"Authorization": "Bearer {secret:crm}"})
        assert await asked.call({}, make_context()) == "[secret crm]"


async def test_what_a_model_writes_is_no_place_for_a_secret() -> None:
    async with receive(answer("{}")) as receiver:
        await tool(receiver.url("crm.test"), method="POST").call({"note": "{secret:crm}"}, make_context())
    assert TOKEN.encode() not in receiver.bodies[0]


@pytest.mark.parametrize("value", ["", "short", "has\nan end", "öffentlich", " padded "])
def test_a_secret_that_no_header_holds_is_refused(value: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        ToolSecrets({"crm": Secret(value=value, hosts=frozenset({"crm.test"}))})
    assert value.strip() == "" or value not in str(raised.value)


def test_a_secret_is_in_no_text_about_it() -> None:
    assert TOKEN not in repr(Secret(value=TOKEN, hosts=frozenset({"crm.test"})))
