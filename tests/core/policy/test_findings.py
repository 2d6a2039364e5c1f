"""What ready names of `redact` find, and what only looks like it."""

from __future__ import annotations

import time

import pytest

from proxy.core.policy.findings import NAMES, find_named, has_luhn_sum

TOKEN = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxIn0.c2ln_-x"
SECRET = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
KEY = "-----BEGIN {0}-----\nMIIE\n-----END {0}-----"

FOUND = {
    "email": [
        ("write to bob@example.com, please", "write to X, please"),
        ("'a.b+c@sub.example.co.uk'", "'X'"),
        ("<bob@example.com>;eve@example.org.", "<X>;X."),
        ("mailto:o'neil@example.org?subject=1", "mailto:X?subject=1"),
        ("jürgen@müller.de", "X"),
        ("git@example.com, kim@example.com:x", "X, X:x"),
    ],
    "phone": [
        ("+49 30 1234567, or later", "X, or later"),
        ("tel:+4930123456789", "tel:X"),
        ("call +1 (212) 555-0100.", "call X."),
        ("(555) 123-4567 and 555-123-4567", "X and X"),
        ("030 1234567, 0171/1234567, 020 7946 0958", "X, X, X"),
        ("+49 (0)30 12345-67", "X"),
        ("06 12 34 56 78 or 06.12.34.56.78", "X or X"),
        ("0049 171 1234567, 0033 6 12 34 56 78", "X, X"),
        ("1-800-555-0199, 1 (212) 555-0100", "X, X"),
        ("+49\u00a0171\u00a01234567 and 030\u20111234567", "X and X"),
        ("at\u00a0555-123-4567\u00a0now", "at\u00a0X\u00a0now"),
    ],
    "creditCard": [
        ("paid with 4111111111111111, ok", "paid with X, ok"),
        ("4111 1111 1111 1111 12/29", "X 12/29"),
        ("2024 4111 1111 1111 1111 2025", "2024 X 2025"),
        ("5500-0000-0000-0004;378282246310005", "X;X"),
        ("3782 822463 10005 and 30569309025904", "X and X"),
        ('{"card":4111111111111111}', '{"card":X}'),
        ("4111\u00a01111\u00a01111\u00a01111 4111\u20111111\u20111111\u20111111", "X X"),
    ],
    "iban": [
        ("DE89 3704 0044 0532 0130 00 USD", "X USD"),
        ("to DE89370400440532013000.", "to X."),
        ("GB82WEST12345698765432 NO9386011117947", "X X"),
        ("gb82-west-1234-5698-7654-32", "X"),
        ("FR1420041010050500013M02606", "X"),
        ("DE89\u00a03704\u00a00044\u00a00532\u00a00130\u00a000 USD", "X USD"),
        ("GB82\u2011WEST\u20111234\u20115698\u20117654\u201132", "X"),
    ],
    "ipAddress": [
        ("at 10.0.0.1.", "at X."),
        ("10.0.0.1:8080, [::1]:80", "X:8080, [X]:80"),
        ("2001:db8:85a3::8a2e:370:7334/64", "X/64"),
        ("::ffff:1.2.3.4 fe80::1", "X X"),
        ("fe80::", "X"),
        ("hosts: 192.168.1.1,192.168.1.2", "hosts: X,X"),
        ("from fe80::1: no answer", "from X: no answer"),
        ("the server 10.0.0.1", "the server X"),
    ],
    "jwt": [
        (f"Bearer {TOKEN} x", "Bearer X x"),
        (f'{{"token":"{TOKEN}"}}', '{"token":"X"}'),
        ("eyJhbGciOiJkaXIiLCJlbmMiOiJBMTI4R0NNIn0.a2V5.aXY.Y3Q.dGFn", "X"),
    ],
    "awsKey": [
        ("AKIAIOSFODNN7EXAMPLE:x", "X:x"),
        ("ASIAIOSFODNN7EXAMPLE", "X"),
        (f"aws_secret_access_key = {SECRET}", "aws_secret_access_key = X"),
        (f'"SecretAccessKey": "{SECRET}",', '"SecretAccessKey": "X",'),
    ],
    "privateKey": [
        (f"a\n{KEY.format('RSA PRIVATE KEY')}\nb", "a\nX\nb"),
        (f"{KEY.format('PRIVATE KEY')}{KEY.format('OPENSSH PRIVATE KEY')}", "XX"),
        (KEY.format("PGP PRIVATE KEY BLOCK"), "X"),
        ("cut: -----BEGIN EC PRIVATE KEY-----\nMHcCAQ", "cut: X"),
    ],
}
MISSED = {
    "email": [
        "user@host",
        "v1@2.0",
        "a@b.c",
        "@example.com",
        "bob@.com",
        "bob at example.com",
        "a@b.com_x",
        "git@github.com:org/repo.git",
    ],
    "phone": [
        *("2024-01-15", "10.0.0.1", "12345678901", "order 0815 4711", "+1234", "+12345678901234567", "1,234,567"),
        *("555-123-45678", "x555-123-4567", "12.555-123-4567", "version 555.123.45678", "ISO 9001:2015"),
        *("06 12 34 56 7", "00 12 34", "0049", "01.02.2024", "2-800-555-01990"),
        *("+49 30 1234567x", "555-123-4567-89"),
    ],
    "creditCard": [
        *("4111111111111112", "4111 1111 1111 1112", "41111111111111111111", "1700000000000", "x4111111111111111"),
        *("4111111111111111x", "4222222222", "9111111111111111", "1 2 3 4 5 6 7 8", "2024-01-15"),
    ],
    "iban": [
        "DE88370400440532013000",
        "DE8937040044053201300",
        "XX12 3456",
        "DE893704004405320130001",
        "xDE89370400440532",
    ],
    "ipAddress": [
        *("256.1.1.1", "1.2.3.4.5", "v1.2.3.4", "1.2.3", "12:30:45", "std::vector", "00:1a:2b:3c:4d:5e", "::", "x::"),
        *("1.2.3.4x", "a.b.c.d", "1..2.3", "0001.2.3.4"),
        *("version 1.2.3.4", "Ver. 10.0.0.1", "v: 1.2.3.4", "a::b", "std::abc"),
    ],
    "jwt": [
        "eyJub3QiOiJhIn0.eyJzdWIiOiIxIn0.sig",  # its head names no algorithm
        *("eyJhbc.def.ghi", f"x{TOKEN}", "a.b.c", TOKEN.partition(".")[0]),
    ],
    "awsKey": [
        *("XAKIAIOSFODNN7EXAMPLE", "AKIAIOSFODNN7EXAMPLEX", "akiaiosfodnn7example", SECRET),
        *(f"secret_key={SECRET}x", f"secret_key={SECRET}/", f"access_key={SECRET}"),
    ],
    "privateKey": [KEY.format("PUBLIC KEY"), KEY.format("CERTIFICATE"), "BEGIN PRIVATE KEY", "-----BEGIN PRIVATE KEY"],
}


def test_every_name_has_its_texts() -> None:
    """No name is without something that it finds and something that it does not."""
    assert set(NAMES) == set(FOUND) == set(MISSED)


@pytest.mark.parametrize(
    ("name", "text", "left"), [(name, text, left) for name, pairs in FOUND.items() for text, left in pairs]
)
def test_what_is_found(name: str, text: str, left: str) -> None:
    """A finding goes whole; what stands beside it stays."""
    assert find_named(name).replaced(text, "X") == left


@pytest.mark.parametrize(("name", "text"), [(name, text) for name, texts in MISSED.items() for text in texts])
def test_what_only_looks_like_it(name: str, text: str) -> None:
    """A near miss stays as it is."""
    assert find_named(name).replaced(text, "X") == text


@pytest.mark.parametrize("name", NAMES)
def test_half_a_character_stays(name: str) -> None:
    """Text that UTF-8 cannot write is no obstacle."""
    assert find_named(name).replaced("\ud800 ü x", "X") == "\ud800 ü x"


def test_a_luhn_sum() -> None:
    """One digit that is off, or two neighbours that changed places, are seen."""
    assert has_luhn_sum(b"79927398713")
    assert not any(has_luhn_sum(b"7992739871" + bytes((digit,))) for digit in b"012456789")
    assert not has_luhn_sum(b"97927398713")


@pytest.mark.parametrize("name", NAMES)
def test_time_grows_with_the_text_alone(name: str) -> None:
    """A text of four times the length takes about four times as long, whatever it repeats."""
    repeated = [
        "1 ",
        "4111 ",
        "a@b.",
        "::",
        "1.",
        "+1",
        "eyJa.a.",
        "-----BEGIN PRIVATE KEY-----",
        "DE89 ",
        "(0123) 45 ",
    ]
    for part in [*repeated, "a", "secret_key = "]:
        took = [_time(name, part * (size // len(part))) for size in (10_000, 40_000)]
        assert took[1] < 12 * max(took[0], 0.002), part


def _time(name: str, text: str) -> float:
    """The shortest of several times, in which nobody else took the machine."""
    found = []
    for _ in range(3):
        began = time.process_time()
        find_named(name).replaced(text, "X")
        found.append(time.process_time() - began)
    return min(found)
