"""Which addresses are of the public internet, and how a URL names one."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.tools.addresses import MAX_URL_CHARS, InvalidUrl, is_public, is_within, read_url

NAT64 = int(ipaddress.IPv6Address("64:ff9b::"))
LOCAL_NAT64 = int(ipaddress.IPv6Address("64:ff9b:1::"))
MAPPED = int(ipaddress.IPv6Address("::ffff:0:0"))
TEREDO = int(ipaddress.IPv6Address("2001::"))
SIX_TO_FOUR = int(ipaddress.IPv6Address("2002::"))

# First and last address of each range, and some that are known by name.
CLOSED = [
    "0.0.0.0", "0.255.255.255", "10.0.0.0", "10.255.255.255", "100.64.0.0", "100.100.100.200", "100.127.255.255",
    "127.0.0.0", "127.0.0.1", "127.255.255.255", "168.63.129.16", "169.254.0.0", "169.254.169.254", "169.254.255.255",
    "172.16.0.0", "172.31.255.255", "192.0.0.0", "192.0.0.192", "192.0.0.255", "192.0.2.0", "192.0.2.255",
    "192.88.99.1", "192.168.0.0", "192.168.255.255", "198.18.0.0", "198.19.255.255", "198.51.100.1", "203.0.113.255",
    "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255",
    "::", "::1", "::ffff:127.0.0.1", "::ffff:8.8.8.8", "::127.0.0.1", "64:ff9b::7f00:1", "64:ff9b:1::a00:1", "100::1",
    "2001::1", "2001:0:7f00:1::", "2001:2::1", "2001:db8::1", "2002:7f00:1::", "2002:a00:1::1", "3fff::1", "5f00::1",
    "fc00::1", "fd00:ec2::254", "fdff::1", "fe80::1", "fe80::1%lo", "2606:4700::1%lo", "fec0::1", "ff02::1", "4000::1",
]  # fmt: skip
OPEN = [
    "1.1.1.1", "8.8.8.8", "9.255.255.255", "11.0.0.0", "93.184.216.34", "100.63.255.255", "100.128.0.0",
    "126.255.255.255", "128.0.0.0", "169.253.255.255", "169.255.0.0", "172.15.255.255", "172.32.0.0",
    "192.167.255.255", "192.169.0.0", "198.17.255.255", "198.20.0.0", "223.255.255.255",
    "2001:200::1", "2001:4860:4860::8888", "2003::1", "2606:4700:4700::1111", "2a00:1450:4001:80b::200e", "2000::1",
]  # fmt: skip


@pytest.mark.parametrize("address", CLOSED)
def test_an_address_of_a_special_range_is_not_public(address: str) -> None:
    assert not is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize("address", OPEN)
def test_an_ordinary_address_is_public_also_beside_a_special_range(address: str) -> None:
    assert is_public(ipaddress.ip_address(address))


@given(address=st.ip_addresses())
def test_nothing_is_public_that_the_standard_library_calls_private(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> None:
    """Its list is somebody else's reading of the same registries."""
    assert not is_public(address) or (address.is_global and not address.is_multicast and not address.is_reserved)


@given(network=st.sampled_from(["10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12",
                                "192.168.0.0/16", "198.18.0.0/15", "224.0.0.0/4", "240.0.0.0/4", "fc00::/7",
                                "fe80::/10", "ff00::/8", "64:ff9b::/96", "2002::/16", "2001::/32"]),
       data=st.data())  # fmt: skip
def test_no_address_of_a_private_range_is_public(network: str, data: st.DataObject) -> None:
    assert not is_public(data.draw(st.ip_addresses(network=network)))


@given(inner=st.ip_addresses(v=4))
def test_no_ipv4_address_inside_an_ipv6_address_is_public(inner: ipaddress.IPv4Address) -> None:
    number = int(inner)
    outer = [
        MAPPED | number,
        number,
        NAT64 | number,
        LOCAL_NAT64 | number,
        SIX_TO_FOUR | number << 80,
        TEREDO | number << 64,
        TEREDO | (number ^ 0xFFFFFFFF),
    ]
    assert [address for address in map(ipaddress.IPv6Address, outer) if is_public(address)] == []


def test_an_ipv4_mapped_address_is_within_no_ipv4_network() -> None:
    mapped, loopback = ipaddress.ip_address("::ffff:127.0.0.1"), ipaddress.ip_network("127.0.0.0/8")
    assert not is_within(mapped, [loopback])
    assert is_within(mapped, [loopback, ipaddress.ip_network("::ffff:127.0.0.0/104")])


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("https://example.com", "example.com", 443),
        ("HTTPS://EXAMPLE.com/", "example.com", 443),
        ("https://example.com:443/x", "example.com", 443),
        ("http://example.com/x?y=z", "example.com", 80),
        ("https://example.com:8443", "example.com", 8443),
        ("https://hooks_in.example.com./", "hooks_in.example.com.", 443),
        ("https://bücher.example/", "xn--bcher-kva.example", 443),
        ("https://xn--bcher-kva.example/", "xn--bcher-kva.example", 443),
        ("https://3com.example", "3com.example", 443),
        ("https://1.2.3.4:65535/", "1.2.3.4", 65535),
        ("https://[2606:4700::1]:8443/", "2606:4700::1", 8443),
    ],
)
def test_a_url_is_read_as_its_host_and_port(text: str, host: str, port: int) -> None:
    target = read_url(text)
    assert (target.host, target.port) == (host, port)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("https://1.2.3.4/", "1.2.3.4"),
        ("https://[::1]/", "::1"),
        ("https://[::ffff:127.0.0.1]/", "::ffff:127.0.0.1"),
        ("https://[0:0:0:0:0:0:0:1]/", "::1"),
        ("https://127。0。0。1/", "127.0.0.1"),
    ],
)
def test_a_host_that_is_an_address_is_known_as_one(text: str, address: str) -> None:
    assert read_url(text).address == ipaddress.ip_address(address)


@pytest.mark.parametrize(
    "host",
    [
        "0x7f.1", "0x7f000001", "0X7F.0.0.1", "2130706433", "017700000001", "0177.0.0.1", "127.1", "127.0.1",
        "1.2.3.4.", "1.2.3.256", "1.2.3.4.5", "example.1", "example.0x1", "127.0.0.01", "１２７.0.0.1", "0", "0x",
    ],
)  # fmt: skip
def test_a_number_that_some_read_as_an_address_is_refused(host: str) -> None:
    with pytest.raises(InvalidUrl):
        read_url(f"https://{host}/")


@pytest.mark.parametrize(
    "text",
    [
        "", "https", "https:", "https://", "https:///x", "//example.com", "/x", "example.com", "https:example.com",
        "https:/example.com", "ftp://example.com", "file:///etc/passwd", "gopher://example.com", "javascript:alert(1)",
        "https://?x", "https://#x", "https://:443/", "https://[]/", "https://[::1", "https://::1/", "https://[v1.x]/",
        "https://[::1]x/", "https://[fe80::1%25lo]/", "https://[fe80::1%lo]/", "https://[1.2.3.4]/",
        "https://a..b/", "https://.a/", "https://a../", "https://-a.b/", "https://a-.b/", "https://a%2eb/",
        "https://a b/", " https://a.b/", "https://a.b/ x", "https://a.b/\n", "https://a.b\\@c.d/", "https://a.b\x00/",
        "https://a.b:0/", "https://a.b:65536/", "https://a.b:99999/", "https://a.b:-1/", "https://a.b:+1/",
        "https://a.b:８０/", "https://a.b:1:2/", "https://a.b:x/", "https://a.b:/", "https://\u00ad/", "https://ex\u00adample.com/",
        f"https://{'a' * 64}.com/", f"https://{'a.' * 127}com/", "https://a.b/\ud800", "https://a*b/", "https://a,b/",
    ],
)  # fmt: skip
def test_what_is_no_plain_url_is_refused(text: str) -> None:
    with pytest.raises(InvalidUrl):
        read_url(text)


@pytest.mark.parametrize(
    "text",
    [
        "https://u@a.b/",
        "https://u:p@a.b/",
        "https://:p@a.b/",
        "https://@a.b/",
        "https://a.b@127.0.0.1/",
        "https://a@b@c/",
    ],
)
def test_a_url_with_a_name_or_a_password_is_refused(text: str) -> None:
    with pytest.raises(InvalidUrl, match="password"):
        read_url(text)


def test_an_at_sign_behind_the_host_is_no_password() -> None:
    assert read_url("https://a.b/@x?y=@z").host == "a.b"


@pytest.mark.parametrize("text", ["https://a.b/#x", "https://a.b#", "https://a.b/?x#y"])
def test_a_url_with_a_fragment_is_refused(text: str) -> None:
    with pytest.raises(InvalidUrl, match="fragment"):
        read_url(text)


def test_the_longest_url_is_read_and_a_longer_one_refused() -> None:
    longest = "https://a.b/".ljust(MAX_URL_CHARS, "x")
    assert str(read_url(longest).url) == longest
    with pytest.raises(InvalidUrl):
        read_url(longest + "x")


@given(text=st.text(max_size=60).map("https://{}".format) | st.text(max_size=60))
def test_any_text_is_a_url_or_refused(text: str) -> None:
    """Nothing else comes out of it, and what is read names one host."""
    try:
        target = read_url(text)
    except InvalidUrl:
        return
    assert target.host.isascii()
    assert 1 <= target.port <= 65535
