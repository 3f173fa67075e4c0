"""Functions of URLs and IP addresses."""

from __future__ import annotations

import functools
import ipaddress
import re
import socket
from collections.abc import Sequence
from urllib.parse import quote_plus, unquote_plus

import polars as pl
from headrace_columnar.registry import Call, function
from headrace_columnar.rowwise import map_rows, map_values

#: RFC 3986, appendix B.
_URL = re.compile(r"^(?:([^:/?#]+):)?(?://([^/?#]*))?([^?#]*)(?:\?([^#]*))?(?:#(.*))?$", re.DOTALL)
_PARTS = ("HOST", "PATH", "QUERY", "REF", "PROTOCOL", "FILE", "AUTHORITY", "USERINFO")


@function(
    "parse_url",
    signature="url string, part constant string, [key string] -> string",
    summary="A part of a URL: HOST, PATH, QUERY (with a key: that parameter's value), REF, PROTOCOL, FILE, AUTHORITY or "
    "USERINFO; NULL if it is missing.",
    examples=[
        ("parse_url('http://facebook.com/path/p1.php?query=1', 'QUERY', 'query')", "1"),
        ("parse_url('http://facebook.com/path/p1.php?query=1', 'HOST')", "facebook.com"),
        ("parse_url('http://facebook.com/path/p1.php?query=1', 'FILE')", "/path/p1.php?query=1"),
        ("parse_url('http://facebook.com/path/p1.php?query=1', 'REF')", None),
    ],
)
def parse_url(call: Call) -> pl.Expr:
    part = str(call.constant(1)).upper()
    if part not in _PARTS:
        raise call.error(1, f"unknown part {call.constant(1)!r}", hint=f"parts: {', '.join(_PARTS)}")
    if len(call) == 3:
        if part != "QUERY":
            raise call.error(2, "a key can be given only with QUERY")
        return map_rows([call[0], call[2]], _parameter, pl.String())
    return map_values(call[0], functools.partial(_url_part, part), pl.String())


def _url_part(part: str, url: str) -> str | None:
    found = _URL.match(url)
    if found is None or found[1] is None or " " in url:
        return None
    protocol, authority, path, query, reference = found.groups()
    if part == "FILE":
        return path + ("" if query is None else f"?{query}")
    userinfo, at, host_and_port = (authority or "").rpartition("@")
    host = re.sub(r":\d*$", "", host_and_port)
    values = {"HOST": host or None, "PATH": path, "QUERY": query, "REF": reference, "PROTOCOL": protocol}
    values |= {"AUTHORITY": authority or None, "USERINFO": userinfo if at else None}
    return values[part]


def _parameter(url: str, key: str) -> str | None:
    query = _url_part("QUERY", url)
    for pair in (query or "").split("&"):
        name, found, value = pair.partition("=")
        if found and name == key:
            return value
    return None


@function(
    "url_encode",
    signature="text string -> string",
    summary="The text as a form sends it: a space becomes +, other characters %XX.",
    examples=[("url_encode('https://a.b/c d')", "https%3A%2F%2Fa.b%2Fc+d"), ("url_encode('~*')", "%7E*")],
)
def url_encode(call: Call) -> pl.Expr:
    return map_values(call[0], _url_encoded, pl.String())


def _url_encoded(text: str) -> str:
    # Java's URLEncoder keeps * and encodes ~, Python's the other way round.
    return quote_plus(text, safe="*").replace("~", "%7E")


@function(
    "url_decode",
    signature="text string -> string",
    summary="The text that a form sent; NULL if a % is not followed by two hexadecimal digits or the bytes are no UTF-8.",
    examples=[("url_decode('https%3A%2F%2Fa.b%2Fc+d')", "https://a.b/c d"), ("url_decode('%zz')", None)],
)
def url_decode(call: Call) -> pl.Expr:
    return map_values(call[0], _url_decoded, pl.String())


def _url_decoded(text: str) -> str | None:
    if re.search(r"%(?![0-9A-Fa-f]{2})", text):
        return None
    try:
        return unquote_plus(text, errors="strict")
    except UnicodeDecodeError:
        return None


@functools.lru_cache(maxsize=4096)
def _network(cidr: str) -> tuple[int, int, int] | None:
    """Return (bytes of an address, network, mask) of ``10.0.0.0/8``; None if it is not a network."""
    try:
        network = ipaddress.ip_network(cidr.strip(), strict=False)
    except ValueError:
        return None
    return network.max_prefixlen // 8, int(network.network_address), int(network.netmask)


@functools.lru_cache(maxsize=65_536)
def _packed(address: str) -> bytes | None:
    try:
        return socket.inet_pton(socket.AF_INET6 if ":" in address else socket.AF_INET, address)
    except (OSError, ValueError):
        return None


@function(
    "ip_in_cidr",
    "cidr_match",
    signature="address string, network string -> boolean",
    summary="Whether an IPv4 or IPv6 address lies in a network; NULL if the address or the network is not valid.",
    examples=[
        ("ip_in_cidr('10.1.2.3', '10.0.0.0/8')", True),
        ("ip_in_cidr('2001:db8::1', '2001:db8::/32')", True),
        ("ip_in_cidr('11.0.0.1', '10.0.0.0/8')", False),
        ("ip_in_cidr('x', '10.0.0.0/8')", None),
    ],
)
def ip_in_cidr(call: Call) -> pl.Expr:
    if call.is_constant(1) and call.constant(1) is not None:
        if _network(str(call.constant(1))) is None:
            raise call.error(1, f"{call.constant(1)!r} is not a network", hint="write '10.0.0.0/8' or '2001:db8::/32'")
        return map_values(call[0], functools.partial(in_network, str(call.constant(1))), pl.Boolean())
    return map_rows([call[1], call[0]], in_network, pl.Boolean())


def is_network(cidr: str) -> bool:
    """Return whether a text is a network such as ``10.0.0.0/8``."""
    return _network(cidr) is not None


_NO_STARTS: dict[int, set[int]] = {}


class Networks:
    """Several networks: whether an address lies in one of them, as ``ip_in_cidr`` says it of each. Raises ValueError for no network."""

    def __init__(self, networks: Sequence[str]) -> None:
        #: By the number of bytes of an address: masks, and the first addresses of the networks with this mask.
        self._starts: dict[int, dict[int, set[int]]] = {}
        for each in networks:
            found = _network(each)
            if found is None:
                raise ValueError(f"{each!r} is not a network")
            size, start, mask = found
            self._starts.setdefault(size, {}).setdefault(mask, set()).add(start)

    def hold(self, address: str) -> bool | None:
        """Return whether the address lies in one of the networks; None if it is not an address."""
        packed = _packed(address)
        if packed is None:
            return None
        number = int.from_bytes(packed, "big")
        for mask, starts in self._starts.get(len(packed), _NO_STARTS).items():  # noqa: SIM110  any() takes twice as long
            if number & mask in starts:
                return True
        return False


def in_network(cidr: str, address: str) -> bool | None:
    """Return whether an address lies in a network, None if either is not valid: the function ``ip_in_cidr``."""
    network, packed = _network(cidr), _packed(address)
    if network is None or packed is None:
        return None
    size, start, mask = network
    return len(packed) == size and int.from_bytes(packed, "big") & mask == start


@function(
    "is_ipv4",
    signature="text string -> boolean",
    summary="Whether the text is an IPv4 address in dotted form.",
    examples=[("is_ipv4('10.1.2.3')", True), ("is_ipv4('::1')", False)],
)
def is_ipv4(call: Call) -> pl.Expr:
    return map_values(call[0], functools.partial(_is_address, 4), pl.Boolean())


@function(
    "is_ipv6",
    signature="text string -> boolean",
    summary="Whether the text is an IPv6 address.",
    examples=[("is_ipv6('::1')", True), ("is_ipv6('10.1.2.3')", False)],
)
def is_ipv6(call: Call) -> pl.Expr:
    return map_values(call[0], functools.partial(_is_address, 16), pl.Boolean())


def _is_address(size: int, text: str) -> bool:
    packed = _packed(text)
    return packed is not None and len(packed) == size


@function(
    "is_private_ip",
    signature="address string -> boolean",
    summary="Whether an address is one of a private, loopback or link-local network; NULL if it is not an address.",
    examples=[
        ("is_private_ip('192.168.1.1')", True),
        ("is_private_ip('8.8.8.8')", False),
        ("is_private_ip('x')", None),
    ],
)
def is_private_ip(call: Call) -> pl.Expr:
    return map_values(call[0], _is_private, pl.Boolean())


#: RFC 1918, 1122, 3927, 4193, 4291.
_PRIVATE = (
    "10.0.0.0/8",
    "172.16.0.0/12",
    "192.168.0.0/16",
    "127.0.0.0/8",
    "169.254.0.0/16",
    "fc00::/7",
    "fe80::/10",
    "::1/128",
)


def _is_private(address: str) -> bool | None:
    verdicts = [in_network(cidr, address) for cidr in _PRIVATE]
    return None if verdicts[0] is None else any(verdicts)


@function(
    "inet_aton",
    signature="address string -> int64",
    summary="An IPv4 address as a number; NULL if the text is not an address.",
    examples=[("inet_aton('10.0.5.9')", 167773449), ("inet_aton('x')", None)],
)
def inet_aton(call: Call) -> pl.Expr:
    return map_values(call[0], _address_number, pl.Int64())


def _address_number(address: str) -> int | None:
    packed = _packed(address)
    return int.from_bytes(packed, "big") if packed is not None and len(packed) == 4 else None


@function(
    "inet_ntoa",
    signature="number integer -> string",
    summary="The IPv4 address of a number; NULL if there is no such address.",
    examples=[("inet_ntoa(167773449)", "10.0.5.9"), ("inet_ntoa(-1)", None)],
)
def inet_ntoa(call: Call) -> pl.Expr:
    return map_values(call[0], _number_address, pl.String())


def _number_address(number: int) -> str | None:
    return socket.inet_ntoa(number.to_bytes(4, "big")) if 0 <= number < 2**32 else None
