"""Requests to addresses that a tenant or a tool's declaration named.

A name is resolved once, every address that it has is checked, and the connection goes to one of them: what the name
means a moment later is of no matter. Nothing is followed, no proxy is asked, and nothing is kept between two requests.
"""

import asyncio
import codecs
import concurrent.futures
import contextlib
import ipaddress
import re
import socket
import ssl
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import httpx

from app.ports.webhooks import DeliveryError
from app.tools.addresses import InvalidUrl, IpAddress, IpNetwork, Target, is_public, is_within, read_url

# What an answer's type has to begin with to be read as text.
_TEXT_TYPES: Final = ("text/", "application/json", "application/xml", "application/x-ndjson")
_STRUCTURED: Final = ("+json", "+xml")
# Charsets of texts, as Python names them.
_CHARSETS: Final = re.compile(
    r"ascii|utf-(?:8|16|32).*|iso8859-.*|cp\d+|koi8-.*|mac-.*|big5.*|gb.*|shift_jis.*|euc_.*|iso2022_.*|johab|tis-620"
)

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""The addresses of a name, for a port, best first. Raises OSError."""

# A lookup can hang for as long as a stranger's name server likes, and a thread can't be stopped.
_MAX_LOOKUPS: Final = 64
_LOOKUP_SECONDS: Final = 5.0
# All are checked; so many are tried.
_MAX_TRIED: Final = 4
# Answers come as they are: a packed one could be of any size.
_OWN_HEADERS: Final = {"User-Agent": "runwright", "Accept-Encoding": "identity"}


class Lookups:
    """The system's resolver, in threads that keep neither the process nor other work waiting."""

    def __init__(self, limit: int = _MAX_LOOKUPS) -> None:
        self._free = threading.BoundedSemaphore(limit)

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        """Raises OSError, also where too many lookups hang."""
        if not self._free.acquire(blocking=False):
            raise OSError("too many lookups hang")
        answer: concurrent.futures.Future[Sequence[str]] = concurrent.futures.Future()
        try:
            threading.Thread(target=self._look_up, args=(host, port, answer), name="lookup", daemon=True).start()
        except RuntimeError as error:
            self._free.release()
            raise OSError("the system has no thread left") from error
        return await asyncio.wrap_future(answer)

    def _look_up(self, host: str, port: int, answer: "concurrent.futures.Future[Sequence[str]]") -> None:
        found: Sequence[str] = ()
        failure: Exception | None = None
        try:
            found = [str(entry[4][0]) for entry in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
        except (OSError, UnicodeError) as error:
            failure = OSError(str(error))
        finally:
            self._free.release()
        # Nobody may wait any more.
        if answer.set_running_or_notify_cancel():
            if failure is None:
                answer.set_result(found)
            else:
                answer.set_exception(failure)


@dataclass(frozen=True, kw_only=True, slots=True)
class Order:
    """A request to be sent."""

    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes = b""


@dataclass(frozen=True, kw_only=True, slots=True)
class Reply:
    """What came back."""

    status: int
    text: str


class OutgoingClient:
    """Satisfies ``Carrier``. Addresses that are no ordinary ones of the internet are refused unless they lie in
    ``allowed_networks``; there http is allowed too."""

    def __init__(
        self,
        allowed_networks: Sequence[IpNetwork] = (),
        *,
        resolve: Resolve | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._allowed_networks = tuple(allowed_networks)
        self._resolve = Lookups().resolve if resolve is None else resolve
        self._tls = ssl.create_default_context() if tls is None else tls

    async def check_url(self, url: str) -> str | None:
        """A name that leads nowhere now is an ``invalid_url`` too."""
        try:
            await self._find(url)
        except DeliveryError as error:
            return "private_address" if error.code == "private_address" else "invalid_url"
        return None

    async def post(self, url: str, *, headers: Mapping[str, str], body: bytes, timeout_seconds: float) -> int:
        """``timeout_seconds`` is for all of it, however slowly the answer trickles. Of the answer only the status is
        read."""
        order = Order(method="POST", url=url, headers=headers, body=body)
        return (await self.send(order, timeout_seconds=timeout_seconds, max_bytes=None)).status

    async def send(self, order: "Order", *, timeout_seconds: float, max_bytes: int | None) -> "Reply":
        """Sends a request and reads at most ``max_bytes`` of the answer's text; None: nothing of it.

        Raises DeliveryError, with one of its codes; ``too_large`` where there is more, ``not_text`` where the answer is
        none or is packed.
        """
        reply: Reply | None = None
        try:
            async with asyncio.timeout(timeout_seconds):
                target, addresses = await self._find(order.url)
                tried = addresses[:_MAX_TRIED]
                # Connecting and encrypting are bounded apart. A slow address leaves time for the next.
                connect_seconds = timeout_seconds / (2 * len(tried) + 1)
                async with self._client(timeout_seconds, connect_seconds=connect_seconds) as client:
                    response = await self._ask(client, target, tried, order)
                    text = "" if max_bytes is None else await _read_text(response, max_bytes)
                    reply = Reply(status=response.status_code, text=text)
                    with contextlib.suppress(httpx.HTTPError):
                        await response.aclose()
        except TimeoutError:
            # An answer was an answer, also where its connection would not close.
            if reply is None:
                raise DeliveryError("timeout") from None
        assert reply is not None
        return reply

    async def _find(self, url: str) -> tuple[Target, Sequence[IpAddress]]:
        """Where to connect to. Raises DeliveryError."""
        try:
            target = read_url(url)
        except InvalidUrl:
            raise DeliveryError("invalid_url") from None
        addresses = [target.address] if target.address is not None else await self._look_up(target)
        inside = [is_within(address, self._allowed_networks) for address in addresses]
        # One forbidden address among others is refused with them: it is put there on purpose.
        if not all(here or is_public(address) for here, address in zip(inside, addresses, strict=True)):
            raise DeliveryError("private_address")
        if not target.is_encrypted and not all(inside):
            raise DeliveryError("invalid_url")
        return target, addresses

    async def _look_up(self, target: Target) -> Sequence[IpAddress]:
        try:
            async with asyncio.timeout(_LOOKUP_SECONDS):
                found = await self._resolve(target.host, target.port)
            addresses = list(dict.fromkeys(ipaddress.ip_address(text) for text in found))
        except (OSError, ValueError):
            raise DeliveryError("dns_failed") from None
        if not addresses:
            raise DeliveryError("dns_failed")
        return addresses

    def _client(self, timeout_seconds: float, *, connect_seconds: float) -> httpx.AsyncClient:
        # One for each request: a connection that was opened for one name must not serve another that shares its
        # address, and no cookie goes from one tenant to the next.
        return httpx.AsyncClient(
            verify=self._tls,
            trust_env=False,
            follow_redirects=False,
            timeout=httpx.Timeout(timeout_seconds, connect=connect_seconds),
            limits=httpx.Limits(max_connections=1, max_keepalive_connections=0),
        )

    async def _ask(
        self, client: httpx.AsyncClient, target: Target, addresses: Sequence[IpAddress], order: "Order"
    ) -> httpx.Response:
        """Asks the first address that takes the connection. Raises DeliveryError."""
        failure = DeliveryError("connect_failed")
        for address in addresses:
            request = client.build_request(
                order.method,
                target.url.copy_with(host=str(address)),
                content=order.body or None,
                headers={**_OWN_HEADERS, **order.headers, "Host": _authority(target), "Connection": "close"},
                extensions={"sni_hostname": target.host.rstrip(".")},
            )
            try:
                return await client.send(request, stream=True)
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                failure = DeliveryError(_name_failure(error))
            except httpx.TimeoutException:
                raise DeliveryError("timeout") from None
            except httpx.HTTPError:
                # Reset, ended too soon, or no HTTP.
                raise DeliveryError("connection_lost") from None
        raise failure


async def _read_text(response: httpx.Response, max_bytes: int) -> str:
    """Raises DeliveryError."""
    parts, count = [], 0
    try:
        async for part in response.aiter_raw():
            count += len(part)
            if count > max_bytes:
                raise DeliveryError("too_large")
            parts.append(part)
    except httpx.TimeoutException:
        raise DeliveryError("timeout") from None
    except httpx.HTTPError:
        raise DeliveryError("connection_lost") from None
    body = b"".join(parts)
    if not body:
        return ""
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    is_text = kind.startswith(_TEXT_TYPES) or kind.endswith(_STRUCTURED)
    if not is_text or response.headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise DeliveryError("not_text")
    charset = _find_charset(response.charset_encoding or "utf-8")
    if charset is None:
        raise DeliveryError("not_text")
    return body.decode(charset, errors="replace")


def _find_charset(name: str) -> str | None:
    """None for one that is not known, or that no text in the world is in: Python knows some that take minutes to
    read, and some that make what is no text."""
    try:
        known = codecs.lookup(name).name
    except (LookupError, ValueError):
        return None
    return known if _CHARSETS.fullmatch(known) else None


def _authority(target: Target) -> str:
    """The Host header (RFC 9110): the port only where it is not the scheme's own."""
    host = f"[{target.host}]" if ":" in target.host else target.host
    return host if target.port == (443 if target.is_encrypted else 80) else f"{host}:{target.port}"


def _name_failure(error: httpx.TransportError) -> str:
    if isinstance(error, httpx.TimeoutException):
        return "timeout"
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLError):
            return "tls_failed"
        cause = cause.__cause__ or cause.__context__
    return "connect_failed"
