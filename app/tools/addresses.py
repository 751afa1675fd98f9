"""Which addresses of the internet a request may go to, and how a URL names one."""

import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import httpx

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
IpNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network

MAX_URL_CHARS: Final = 2000

# The special-purpose registry of IANA (RFC 6890), multicast and what is reserved; and the address at which Azure serves
# its guests, which no registry knows.
_CLOSED_V4: Final[Sequence[IpNetwork]] = tuple(
    map(
        ipaddress.ip_network,
        (
            "0.0.0.0/8",
            "10.0.0.0/8",
            "100.64.0.0/10",
            "127.0.0.0/8",
            "168.63.129.16/32",
            "169.254.0.0/16",
            "172.16.0.0/12",
            "192.0.0.0/24",
            "192.0.2.0/24",
            "192.31.196.0/24",
            "192.52.193.0/24",
            "192.88.99.0/24",
            "192.168.0.0/16",
            "192.175.48.0/24",
            "198.18.0.0/15",
            "198.51.100.0/24",
            "203.0.113.0/24",
            "224.0.0.0/4",
            "240.0.0.0/4",
        ),
    )
)
# Of IPv6 only this part is given out (RFC 4291). Loopback, link-local, unique local, multicast, IPv4-mapped and NAT64
# lie outside; Teredo, 6to4 and the examples lie inside.
_OPEN_V6: Final = ipaddress.IPv6Network("2000::/3")
_CLOSED_V6: Final[Sequence[IpNetwork]] = tuple(
    map(ipaddress.ip_network, ("2001::/23", "2001:db8::/32", "2002::/16", "2620:4f:8000::/48", "3fff::/20"))
)

_UNSAFE: Final = re.compile(r"[\x00-\x20\x7f\\]")
_START: Final = re.compile(r"https?://(?P<authority>[^/?#]+)", re.IGNORECASE)
# A host, and perhaps a port, in digits that are no other script's.
_AUTHORITY: Final = re.compile(r"(?:\[[^\]]*\]|[^:\[\]]+)(?::0*[1-9][0-9]{0,4})?")
_LABEL: Final = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_NAME: Final = re.compile(rf"{_LABEL}(?:\.{_LABEL})*\.?")
# What some resolvers read as an IPv4 address, as inet_aton does: 127.1, 0x7f.1, 2130706433 (WHATWG URL, "ends in a
# number").
_NUMERIC: Final = re.compile(r"(?:.*\.)?(?:[0-9]+|0x[0-9a-f]*)\.?")


class InvalidUrl(ValueError):
    """Says what is wrong with a URL, without repeating it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """Where a URL leads. ``host`` is a name in ASCII, or an address as it is written in URLs without brackets."""

    url: httpx.URL
    host: str
    port: int
    address: IpAddress | None

    @property
    def is_encrypted(self) -> bool:
        return self.url.scheme == "https"


def is_public(address: IpAddress) -> bool:
    """Whether it is an ordinary address of the internet, that belongs to no host's own or neighbouring network."""
    if isinstance(address, ipaddress.IPv4Address):
        return not any(address in network for network in _CLOSED_V4)
    # A scope would make it mean one of our own interfaces.
    return address.scope_id is None and address in _OPEN_V6 and not any(address in network for network in _CLOSED_V6)


def is_within(address: IpAddress, networks: Sequence[IpNetwork]) -> bool:
    """An IPv4-mapped address is within no IPv4 network: it is what it is written as."""
    return any(address in network for network in networks)


def read_url(text: str) -> Target:
    """Reads an absolute http or https URL. Raises InvalidUrl for anything that two readers could understand
    differently, and for what has no place in the address of a receiver: names and passwords, a fragment."""
    if len(text) > MAX_URL_CHARS:
        raise InvalidUrl(f"has more than {MAX_URL_CHARS} characters")
    if _UNSAFE.search(text):
        raise InvalidUrl("holds a blank, a control character or a backslash")
    start = _START.match(text)
    if start is None:
        raise InvalidUrl("is no absolute https URL")
    if "@" in start["authority"]:
        raise InvalidUrl("has a name or a password in it, which all who read it would see")
    if "#" in text:
        raise InvalidUrl("has a fragment, which is never sent")
    if not _AUTHORITY.fullmatch(start["authority"]):
        raise InvalidUrl("has a port that there is not")
    try:
        url = httpx.URL(text)
        host = url.raw_host.decode("ascii").lower()
    except (httpx.InvalidURL, ValueError):
        raise InvalidUrl("is no URL") from None
    port = url.port or (443 if url.scheme == "https" else 80)
    if port > 65535:
        raise InvalidUrl("has a port that there is not")
    return Target(url=url, host=host, port=port, address=_read_host(host))


def _read_host(host: str) -> IpAddress | None:
    """The address where the host is one; None for a name. Raises InvalidUrl."""
    if ":" in host:
        try:
            address = ipaddress.IPv6Address(host)
        except ValueError:
            raise InvalidUrl("has a host that is no IPv6 address") from None
        if address.scope_id is not None:
            raise InvalidUrl("has an address that is good on one host only")
        return address
    if _NUMERIC.fullmatch(host):
        try:
            return ipaddress.IPv4Address(host)
        except ValueError:
            raise InvalidUrl("has a host that is a number and no IPv4 address as it is usually written") from None
    if len(host) > 253 or not _NAME.fullmatch(host):
        raise InvalidUrl("has a host that is no name")
    return None
