"""Ready names of `redact`: what is found in a text under the names `email`, `phone`, `creditCard`, `iban`, `ipAddress`,
`jwt`, `awsKey` and `privateKey`.

A pattern finds candidates in linear time; what a pattern cannot say (a check sum, a bound on numbers, what may stand
beside it) is judged by a function that looks at the candidate and the few bytes around it. What is found may be fewer
bytes than the candidate, and more than one finding. Texts are bytes here, and everything that is looked for is ASCII.
"""

from __future__ import annotations

import ipaddress
import re
from base64 import urlsafe_b64decode
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from proxy.core.jsontext import parse
from proxy.core.policy.patterns import Pattern, Span

Judge = Callable[[bytes, Span], Iterator[Span]]
"""The findings in a candidate, in order; the whole text is there to look around."""


@dataclass(frozen=True, slots=True)
class Finder:
    """What is looked for under one name."""

    name: str
    _candidates: Pattern
    _judge: Judge

    def replaced(self, text: str, new: str) -> str:
        """The text with every finding replaced; `new` is taken as it stands."""
        return self._candidates.replaced(text, new, self._judge)


def find_named(name: str) -> Finder:
    """What is looked for under a ready name. Raises KeyError."""
    return _FINDERS[name]


# ---------------------------------------------------------------- what stands around a finding


_WORD = frozenset(byte for byte in range(256) if byte >= 0x80 or byte == 0x5F or bytes((byte,)).isalnum())
"""Bytes of letters, digits and `_`; one beyond ASCII is part of a letter, save in a blank that does not break."""
_NO_BREAK = (b"\xc2\xa0", b"\xe2\x80\xaf")
_DIGITS = frozenset(b"0123456789")


def _word_before(data: bytes, at: int) -> bool:
    return at > 0 and data[at - 1] in _WORD and not data.endswith(_NO_BREAK, 0, at)


def _word_behind(data: bytes, at: int) -> bool:
    return at < len(data) and data[at] in _WORD and not data.startswith(_NO_BREAK, at)


def _whole(data: bytes, span: Span) -> Iterator[Span]:
    """The candidate, where it is no part of a longer word."""
    if not (_word_before(data, span[0]) or _word_behind(data, span[1])):
        yield span


def _mails(data: bytes, span: Span) -> Iterator[Span]:
    """An address, where it is none of the accounts that repositories are copied from (`git@host:owner/name`)."""
    if data.startswith(b"git@", span[0]) and data[span[1] : span[1] + 1] == b":":
        return
    yield from _whole(data, span)


# ---------------------------------------------------------------- numbers of cards


_GROUP = re.compile(rb"[0-9]+")
_CARD_DIGITS = range(13, 20)
_ISSUERS = frozenset(b"23456")  # the first digits of banks, travel and trade; what counts milliseconds begins with 1
_TWICE = bytes.maketrans(b"0123456789", bytes((0, 2, 4, 6, 8, 1, 3, 5, 7, 9)))
_ONCE = bytes.maketrans(b"0123456789", bytes(range(10)))


def has_luhn_sum(digits: bytes) -> bool:
    """Whether the last digit is the check digit of those before it."""
    return (sum(digits[-1::-2].translate(_ONCE)) + sum(digits[-2::-2].translate(_TWICE))) % 10 == 0


def _cards(data: bytes, span: Span) -> Iterator[Span]:
    """Runs of digits in groups: a number is one group, or several beside each other. No group is cut."""
    if _word_before(data, span[0]) or _word_behind(data, span[1]):
        return
    groups = [found.span() for found in _GROUP.finditer(data, *span)]
    first = 0
    while first < len(groups):
        last = _last_group_of_card(data, groups, first)
        if last is None:
            first += 1
        else:
            yield groups[first][0], groups[last][1]
            first = last + 1


def _last_group_of_card(data: bytes, groups: list[Span], first: int) -> int | None:
    """The last group of the longest number that begins with a group."""
    digits, found = b"", None
    if data[groups[first][0]] not in _ISSUERS:
        return None
    for last in range(first, len(groups)):
        digits += data[slice(*groups[last])]
        if len(digits) >= _CARD_DIGITS.stop:
            break
        if len(digits) in _CARD_DIGITS and has_luhn_sum(digits):
            found = last
    return found


# ---------------------------------------------------------------- numbers of accounts

_LENGTHS = (
    "AD24 AE23 AL28 AT20 AZ28 BA20 BE16 BG22 BH22 BI27 BR29 BY28 CH21 CR22 CY28 CZ24 DE22 DJ27 DK18 DO28 EE20 EG29 "
    "ES24 FI18 FK18 FO18 FR27 GB22 GE22 GI23 GL18 GR27 GT28 HN28 HR21 HU28 IE22 IL23 IQ23 IS26 IT27 JO30 KW30 KZ20 "
    "LB28 LC32 LI21 LT20 LU20 LV21 LY25 MC27 MD24 ME22 MK19 MN20 MR27 MT31 MU30 NI28 NL18 NO15 OM23 PK24 PL28 PS29 "
    "PT25 QA29 RO24 RS22 RU33 SA24 SC31 SD18 SE24 SI19 SK24 SM27 SO23 ST25 SV28 TL23 TN24 TR26 UA29 VA22 VG24 XK20 YE30"
)
_IBAN_LENGTHS = {entry[:2].encode(): int(entry[2:]) for entry in _LENGTHS.split()}

_BYTES_OF_GAP = rb"[ -]|\xC2\xA0|\xE2\x80[\x87\x89-\x91\xAF]"
"""What `_GAP` is, in UTF-8."""
_NO_LETTERS = re.compile(rb"[^A-Za-z0-9]+")
_IN_GROUPS = {
    length: re.compile(rb"[A-Za-z0-9](?:(?:%s)?[A-Za-z0-9]){%d}" % (_BYTES_OF_GAP, length - 1))
    for length in set(_IBAN_LENGTHS.values())
}


def _ibans(data: bytes, span: Span) -> Iterator[Span]:
    """From country and check digits on: as many characters as the country has, in groups or not, with their sum."""
    length = _IBAN_LENGTHS.get(data[span[0] : span[0] + 2].upper())
    if length is None or _word_before(data, span[0]):
        return
    found = _IN_GROUPS[length].match(data, span[0])
    if found and not _word_behind(data, found.end()) and _has_iban_sum(_NO_LETTERS.sub(b"", found[0])):
        yield found.span()


def _has_iban_sum(taken: bytes) -> bool:
    turned = (taken[4:] + taken[:4]).decode()
    return int("".join(str(int(character, 36)) for character in turned)) % 97 == 1


# ---------------------------------------------------------------- addresses of machines

_PART = re.compile(rb"[^:]+")
_VERSION = re.compile(rb"(?i)\bv(?:er(?:sion)?)?[ .:=]+\Z")


def _addresses(data: bytes, span: Span) -> Iterator[Span]:
    """A run of hexadecimal digits, colons and dots: one address, or several behind each other and ports."""
    start, end = span
    while end > start and data[end - 1] == 0x2E:
        end -= 1  # a dot that ends a sentence
    if _word_before(data, start) or _word_behind(data, end):
        return
    run = data[start:end]
    whole = run if run.endswith(b"::") else run.rstrip(b":")
    if whole.count(b":") >= 2 and _is_ipv6(whole):
        yield start, start + len(whole)
        return
    for part in _PART.finditer(run):
        if _is_ipv4(part[0]) and not (part.start() == 0 and _VERSION.search(data[max(0, start - 12) : start])):
            yield start + part.start(), start + part.end()


def _is_ipv6(text: bytes) -> bool:
    try:
        ipaddress.IPv6Address(text.decode())
    except ValueError:
        return False
    return any(byte in _DIGITS for byte in text)  # a::b is a name in a program


def _is_ipv4(text: bytes) -> bool:
    parts = text.split(b".")
    return len(parts) == 4 and all(part.isdigit() and len(part) <= 3 and int(part) < 256 for part in parts)


# ---------------------------------------------------------------- numbers of telephones


def _phones(data: bytes, span: Span) -> Iterator[Span]:
    """A number of 7 to 15 digits, 8 at least behind a plus sign; no part of a longer one."""
    start, end = span
    if _word_before(data, start) or data[start - 1 : start] in (b"+", b".", b"-", b"/") or _word_behind(data, end):
        return
    if data[end : end + 1] in (b"-", b".", b"/") and data[end + 1 : end + 2].isdigit():
        return
    digits = sum(byte in _DIGITS for byte in data[start:end])
    if (8 if data[start : start + 1] == b"+" else 9) <= digits <= 15:
        yield span


# ---------------------------------------------------------------- tokens and keys


def _tokens(data: bytes, span: Span) -> Iterator[Span]:
    """A JSON web token: its head is JSON that names an algorithm."""
    if _word_before(data, span[0]):
        return
    head = data[slice(*span)].partition(b".")[0]
    try:
        value = parse(urlsafe_b64decode(head + b"=" * (-len(head) % 4)))
    except ValueError:
        return
    if isinstance(value, dict) and "alg" in value:
        yield span


_SECRET = re.compile(rb"[A-Za-z0-9/+]{40}\Z")


def _aws_keys(data: bytes, span: Span) -> Iterator[Span]:
    """The id of an access key; of a secret key, which is told by its label alone, what stands behind the label."""
    labelled = _SECRET.search(data, *span)
    if labelled is None:
        yield from _whole(data, span)
    elif not _word_behind(data, span[1]) and data[span[1] : span[1] + 1] not in (b"/", b"+"):
        yield labelled.span()


def _blocks(data: bytes, span: Span) -> Iterator[Span]:
    yield span


_GAP = r"(?:[ -]|\x{A0}|[\x{2007}\x{2009}-\x{2011}\x{202F}])"  # a blank or hyphen, one that does not break too
_PEM = "[A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----"
_DOMAIN = r"(?:[\pL\pN](?:[\pL\pN-]*[\pL\pN])?\.)+\pL{2,}"
_NATIONAL = (
    rf"(?:1(?:{_GAP}|\.))?\(?[2-9][0-9]{{2}}(?:\){_GAP}?|{_GAP}|\.)[0-9]{{3}}(?:{_GAP}|\.)[0-9]{{4}}"  # 555-123-4567
    rf"|\(?0[1-9][0-9]{{1,4}}(?:\){_GAP}?|/|{_GAP})[0-9]{{2,4}}(?:{_GAP}?[0-9]{{2,4}}){{1,3}}"  # a zero before the area
    rf"|0[1-9](?:{_GAP}[0-9]{{2}}){{4}}|0[1-9](?:\.[0-9]{{2}}){{4}}"  # in pairs, as in France: 06 12 34 56 78
    rf"|00[1-9][0-9]{{0,2}}(?:(?:/|{_GAP})\(?[0-9]+\)?)+"  # 0049 171 1234567
)
_CHECKED: dict[str, tuple[str, Judge]] = {
    "email": (rf"[\pL\pN_][\pL\pN._%+'-]*@{_DOMAIN}", _mails),
    "phone": (rf"\+[0-9](?:(?:[./]|{_GAP})?\(?[0-9]\)?)+|{_NATIONAL}", _phones),
    "creditCard": (rf"[0-9]{{3,}}(?:{_GAP}[0-9]{{3,}})*", _cards),
    "iban": (r"[A-Za-z]{2}[0-9]{2}", _ibans),
    "ipAddress": (r"[0-9A-Fa-f]*[:.][0-9A-Fa-f:.]+", _addresses),
    "jwt": (r"eyJ[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*(?:\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+)?", _tokens),
    "awsKey": (
        r"(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}"
        r"|(?i:secret_?(?:access_?)?key)(?-i)[\"']?\s{0,9}[:=]\s{0,9}[\"']?[A-Za-z0-9/+]{40}",
        _aws_keys,
    ),
    "privateKey": (rf"(?s)-----BEGIN {_PEM}.*?(?:-----END {_PEM}|\z)", _blocks),
}
_FINDERS = {name: Finder(name, Pattern.compile(pattern), judge) for name, (pattern, judge) in _CHECKED.items()}
NAMES = tuple(_FINDERS)
"""The ready names."""
