"""The host of a URL, and whether it is private: from the text alone; nobody asks DNS.

Readers of URLs differ: on backslashes, on missing or extra slashes, on which `@` ends the user's name. A text
that they read differently has several hosts, and the caller decides which reading counts. An address has many
spellings (decimal, hexadecimal, octal, short, mapped), which are all read.
"""

from __future__ import annotations

import ipaddress
import re
import unicodedata
from urllib.parse import unquote

_SCHEMES = re.compile(r"(?:[a-z][a-z0-9+.-]*:)+(?=[/\\])", re.IGNORECASE)
_SPECIAL = re.compile(r"(?:https?|wss?|ftp):", re.IGNORECASE)
_BARE = re.compile(
    r"(?:[^\s/\\?#@]*@)?(?:\[[0-9a-f:.%]+\]|localhost|[^\s/\\?#@:]*\.[^\s/\\?#@:]+|0x[0-9a-f]+|\d+)"
    r"(?::\d+)?(?:[/\\?#]|\Z)",
    re.IGNORECASE,
)
"""A host without a scheme, as tools that add one take it; a plain word is none."""
_DROPPED = re.compile("[\t\n\r]")
_FOREIGN = re.compile(r"[\0-$&-,/;-@\\^`{-\x7f\s]")
"""What no host has in it. Some readers (of C's strings and numbers) stop there and take what stands before it."""
_DOTS = re.compile("[。．｡]")
_PRIVATE_ZONES = ("local", "internal", "svc", "cluster.local", "localhost")
_PRIVATE = tuple(
    ipaddress.ip_network(network)
    for network in (
        *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12"),
        *("168.63.129.16/32", "192.0.0.0/24"),  # what clouds tell their machines, beside link-local
        *("192.168.0.0/16", "::/128", "::1/128", "fc00::/7", "fe80::/10", "fec0::/10", "64:ff9b:1::/48"),
    )
)
_EMBEDDED = tuple(map(ipaddress.IPv6Network, ("64:ff9b::/96", "::/96", "::ffff:0:0:0/96")))
"""Networks whose addresses end in an IPv4 address: NAT64, the old compatible ones, and the translated ones."""


def hosts_of(text: str) -> frozenset[str]:
    """The hosts that readers may take from a URL; none where there is no URL."""
    url = _DROPPED.sub("", _trimmed(text))
    found: set[str] = set()
    for authority in _authorities(url):
        parts = authority.split("@")
        for part in (parts[-1], parts[min(1, len(parts) - 1)]):
            found |= _spelled(_without_port(part))
    return frozenset(found - {""})


def _trimmed(text: str) -> str:
    """The text without what readers take off its ends: control characters, blanks and marks that nobody sees."""
    start, end = 0, len(text)
    while start < end and _is_blank(text[start]):
        start += 1
    while end > start and _is_blank(text[end - 1]):
        end -= 1
    return text[start:end]


def _is_blank(character: str) -> bool:
    return character.isspace() or unicodedata.category(character) in ("Cc", "Cf")


def _spelled(host: str) -> set[str]:
    """The readings of a host: the whole, and what stands before a character that no host has, or a second port."""
    found = {_normal(host)}
    plain = _FOREIGN.split(unquote(host), maxsplit=1)[0]
    found.add(_normal(plain))
    if plain.count(":") > 1 and not _from_ipv6(plain.strip("[]").partition("%")[0]):
        found.add(_normal(plain.partition(":")[0]))
    return found


def _authorities(url: str) -> set[str]:
    scheme = _SCHEMES.match(url)
    if special := _SPECIAL.match(url):
        rest = url[special.end() :].lstrip("/\\")
        strict = url[special.end() + 2 :] if url[special.end() :].startswith("//") else rest
        return {re.split(r"[/\\?#]", rest, maxsplit=1)[0], re.split(r"[/?#]", strict, maxsplit=1)[0]}
    if scheme is not None:
        url = url[scheme.end() :]
    if re.match(r"[/\\]{2}", url):
        return {re.split(r"[/\\?#]", url[2:], maxsplit=1)[0], re.split(r"[/?#]", url[2:], maxsplit=1)[0]}
    if scheme is None and _BARE.match(url):
        return {re.split(r"[/\\?#]", url, maxsplit=1)[0]}
    return set()


def _without_port(authority: str) -> str:
    if authority.startswith("["):
        return authority[1:].partition("]")[0]
    host, colon, port = authority.rpartition(":")
    return host if colon and ":" not in host and (not port or port.isdigit()) else authority


def _normal(host: str) -> str:
    """A host's name as it would be looked up: percent signs, full-width letters and dots, case, final dot."""
    host = unicodedata.normalize("NFKC", _DOTS.sub(".", unquote(host)))
    host = "".join(c for c in host if unicodedata.category(c) != "Cf").lower().rstrip(".")
    if not host.isascii():
        try:
            return host.encode("idna").decode("ascii")
        except UnicodeError:
            return host
    return host


def normal_pattern(glob: str) -> str:
    """A glob of hosts in the spelling that hosts are compared in."""
    return glob.lower() if any(mark in glob for mark in "*?[") else _normal(glob)


def is_private(host: str) -> bool:
    """Whether a host (as `hosts_of` gives it) is, or may be, one of the caller's own network."""
    addresses = _addresses(host)
    if addresses:
        return any(address in network for address in addresses for network in _PRIVATE)
    return "." not in host or any(host == zone or host.endswith(f".{zone}") for zone in _PRIVATE_ZONES)


_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def _addresses(host: str) -> list[_Address]:
    """The addresses that a host may spell; none for a name."""
    if ":" in host:
        return _from_ipv6(host.partition("%")[0])
    parts = host.split(".")
    readings = [[_number(part, octal=octal) for part in parts] for octal in (True, False)]
    found: list[_Address] = []
    for numbers in readings:
        if (value := _joined(numbers)) is not None:
            found.append(ipaddress.IPv4Address(value))
    return found


def _number(part: str, *, octal: bool) -> int | None:
    """One part of an IPv4 address; a leading 0 means octal to some readers and nothing to others."""
    try:
        if part[:2] in ("0x", "0X"):
            return int(part[2:] or "0", 16)
        if not (part.isascii() and part.isdigit()) or len(part.lstrip("0")) > 32:
            return None
        return int(part, 8) if octal and len(part) > 1 and part[0] == "0" else int(part)
    except ValueError:
        return None


def _joined(numbers: list[int | None]) -> int | None:
    """An IPv4 address from one to four numbers, of which the last fills what is left."""
    if not 1 <= len(numbers) <= 4:
        return None
    value = 0
    for place, number in enumerate(numbers):
        last = place == len(numbers) - 1
        bits = 8 * (4 - place) if last else 8
        if number is None or number >= 1 << bits:
            return None
        value |= number << (0 if last else 8 * (3 - place))
    return value


def _from_ipv6(text: str) -> list[_Address]:
    try:
        address = ipaddress.IPv6Address(text)
    except ValueError:
        return []
    found: list[_Address] = [address]
    if address.ipv4_mapped is not None:
        found.append(address.ipv4_mapped)
    if address.sixtofour is not None:
        found.append(address.sixtofour)
    if address.teredo is not None:
        found += address.teredo
    if any(address in network for network in _EMBEDDED) and int(address) > 1:
        found.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    return found
