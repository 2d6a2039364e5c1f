from __future__ import annotations

import gzip
import io
import random
import sys
from pathlib import Path

import pytest

from proxy.authoring.auditfiles import opened
from proxy.errors import ConfigError

TEXT = '{"a": "ä"}\n{"b": 2}\n'
MARK = b"\xef\xbb\xbf"


def lines(path: str) -> list[bytes]:
    with opened(path) as audit:
        found = []
        while line := audit.line(1 << 20):
            found.append(line)
        return found


@pytest.mark.parametrize("mark", [b"", MARK])
@pytest.mark.parametrize("written", [lambda data: data, gzip.compress], ids=["plain", "gzip"])
def test_lines_are_read_from_plain_files_and_from_gzips(written: object, mark: bytes, tmp_path: Path) -> None:
    """By what they begin with, not by their name; a byte-order mark is no part of the first line."""
    assert callable(written)
    path = tmp_path / "audit"
    path.write_bytes(written(mark + TEXT.encode()))
    assert lines(str(path)) == TEXT.encode().splitlines(keepends=True)


def test_standard_input_may_be_compressed_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """How much of it was read is not known."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(gzip.compress(TEXT.encode()))))
    with opened("-") as audit:
        assert audit.line(5) == b'{"a":'
        assert audit.part == 0


def test_it_is_known_how_much_was_read(tmp_path: Path) -> None:
    """Of a compressed file too, where that is a part of its own size."""
    path = tmp_path / "audit.gz"
    text = random.Random(7).randbytes(200_000).hex().encode()
    path.write_bytes(gzip.compress(b"\n".join(text[at : at + 1000] for at in range(0, len(text), 1000))))
    with opened(str(path)) as audit:
        parts = []
        while audit.line(1 << 20):
            parts.append(audit.part)
    assert parts == sorted(parts)
    assert parts[0] < 0.2
    assert parts[-1] == 1


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (TEXT.encode("utf-16"), "UTF-16"),
        (TEXT.encode("utf-16-be"), "no text"),
        (gzip.compress(TEXT.encode("utf-16")), "UTF-16"),
        (b"\x7fELF\x02\x01\x01\x00", "no text"),
        (b"\x28\xb5\x2f\xfd\x04\x58", "no text"),
        (gzip.compress(TEXT.encode())[:-12], "was cut"),
        (gzip.compress(TEXT.encode())[:5], "was cut"),
        (gzip.compress(TEXT.encode())[:-8] + b"12345678", "broken"),
        (b"\x1f\x8bnothing of gzip", "broken"),
    ],
    ids=["utf-16", "no mark", "utf-16 in gzip", "program", "zstd", "cut", "cut head", "wrong sum", "no gzip"],
)
def test_what_cannot_be_read_says_why(data: bytes, why: str, tmp_path: Path) -> None:
    """And is no empty audit."""
    path = tmp_path / "audit.jsonl"
    path.write_bytes(data)
    with pytest.raises(ConfigError, match=rf"audit\.jsonl: the file cannot be read: .*{why}"):
        lines(str(path))


def test_an_empty_file_is_an_audit_without_lines(tmp_path: Path) -> None:
    """As it is before the first call."""
    path = tmp_path / "audit.jsonl"
    path.touch()
    assert lines(str(path)) == []


def test_coloured_logs_are_text(tmp_path: Path) -> None:
    """Records may be among them."""
    path = tmp_path / "log"
    path.write_bytes(b"\x1b[32mready\x1b[0m\n")
    assert lines(str(path)) == [b"\x1b[32mready\x1b[0m\n"]
