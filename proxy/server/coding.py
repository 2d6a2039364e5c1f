"""Content codings: bodies and answers in gzip, deflate and zstd, decoded piece by piece and within bounds.

What cannot be decoded has a stated outcome: 415 or 400 for a request, an UpstreamError for an answer. No piece
of input may give more than its bound, however well it was packed.
"""

from __future__ import annotations

import zlib
from typing import Protocol

import zstandard

from proxy.errors import RequestError, UpstreamError

READABLE = ("gzip", "x-gzip", "deflate", "zstd")
_WINDOW = 8 << 20  # RFC 9659: what a reader of zstd on the web must take, and may refuse to exceed
_SLICE = 64 << 10
_GZIP = zlib.MAX_WBITS | 16


class Unpacked(Exception):  # noqa: N818  the name says what happened
    """The data is not what its coding says, or it is too much. `too_large` tells which."""

    def __init__(self, *, too_large: bool) -> None:
        super().__init__("too large" if too_large else "not in the coding that it names")
        self.too_large = too_large


class Decoder(Protocol):
    """Decodes one body. `most` is the most bytes that this call may give. Raises Unpacked."""

    def feed(self, data: bytes, *, most: int) -> bytes: ...

    def finish(self) -> None:
        """Raises Unpacked where the body ended too early and that can be seen."""
        ...


class _Zlib:
    """gzip (all members) and deflate (with or without its zlib head, as servers differ)."""

    def __init__(self, *, deflate: bool) -> None:
        self._deflate = deflate
        self._head = b""
        self._begun = False
        self._inner = None if deflate else zlib.decompressobj(_GZIP)

    def feed(self, data: bytes, *, most: int) -> bytes:
        found: list[bytes] = []
        self._begun = self._begun or bool(data)
        if self._inner is None:
            self._head += data
            if len(self._head) < 2:
                return b""
            self._inner, data = zlib.decompressobj(_deflate_bits(self._head)), self._head
        while data:
            if self._inner.eof:
                if self._deflate or not data.strip(b"\0"):
                    break  # padding behind the end
                self._inner = zlib.decompressobj(_GZIP)
            try:
                piece = self._inner.decompress(data, most + 1)
            except zlib.error:
                raise Unpacked(too_large=False) from None
            most -= len(piece)
            if most < 0 or self._inner.unconsumed_tail:
                raise Unpacked(too_large=True)
            found.append(piece)
            data = self._inner.unused_data
        return b"".join(found)

    def finish(self) -> None:
        if self._begun and (self._inner is None or not self._inner.eof):
            raise Unpacked(too_large=False)


def _deflate_bits(head: bytes) -> int:
    """Whether there is a zlib head (RFC 1950) before the deflate data, as zlib takes it."""
    has_head = head[0] & 15 == 8 and head[0] >> 4 <= 7 and (head[0] * 256 + head[1]) % 31 == 0
    return zlib.MAX_WBITS if has_head else -zlib.MAX_WBITS


class _Sink:
    """Takes what a zstd frame gives, and no more than `most`."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.most = 0

    def write(self, data: bytes) -> int:
        self.most -= len(data)
        if self.most < 0:
            raise Unpacked(too_large=True)
        self.pieces.append(bytes(data))
        return len(data)


class _Zstd:
    def __init__(self) -> None:
        self._sink = _Sink()
        self._inner = zstandard.ZstdDecompressor(max_window_size=_WINDOW).stream_writer(self._sink)  # type: ignore[arg-type]  # only write is used

    def feed(self, data: bytes, *, most: int) -> bytes:
        self._sink.pieces, self._sink.most = [], most
        try:
            self._inner.write(data)
        except zstandard.ZstdError:
            raise Unpacked(too_large=False) from None
        return b"".join(self._sink.pieces)

    def finish(self) -> None:
        return None


class _Chain:
    """Several codings, the last applied first."""

    def __init__(self, decoders: list[Decoder]) -> None:
        self._decoders = decoders

    def feed(self, data: bytes, *, most: int) -> bytes:
        for decoder in self._decoders:
            data = decoder.feed(data, most=most)
        return data

    def finish(self) -> None:
        for decoder in self._decoders:
            decoder.finish()


def codings(value: str) -> list[str]:
    """The codings of a `content-encoding`, in the order in which they were applied; `identity` is none."""
    names = [name.strip().lower() for name in value.split(",")]
    return [name for name in names if name not in ("", "identity")]


def open_decoder(value: str) -> Decoder | None:
    """A decoder for a `content-encoding`; None where there is nothing to decode. Raises ValueError for one that
    cannot be read."""
    found = codings(value)
    if not found:
        return None
    if len(found) > 3 or any(name not in READABLE for name in found):
        raise ValueError(f"expected {', '.join(READABLE)}")
    decoders = [_decoder(name) for name in reversed(found)]
    return decoders[0] if len(decoders) == 1 else _Chain(decoders)


def _decoder(name: str) -> Decoder:
    return _Zstd() if name == "zstd" else _Zlib(deflate=name == "deflate")


def decode_request(data: bytes, value: str, *, limit: int) -> bytes:
    """A request's body without its coding. Raises RequestError: 415 for another coding, 413 beyond the limit, 400."""
    try:
        decoder = open_decoder(value)
    except ValueError as error:
        raise RequestError(
            f"this content-encoding cannot be read here: {error}", code="unsupported_encoding", status=415
        ) from None
    if decoder is None:
        return data
    found: list[bytes] = []
    size = 0
    try:
        for at in range(0, len(data), _SLICE):
            piece = decoder.feed(data[at : at + _SLICE], most=limit - size)
            size += len(piece)
            found.append(piece)
        decoder.finish()
    except Unpacked as error:
        if error.too_large:
            message = f"the request's body must not be larger than {limit} bytes"
            raise RequestError(message, code="body_too_large", status=413) from None
        raise RequestError("the body is not in the encoding that it names", code="invalid_request_body") from None
    return b"".join(found)


class AnswerDecoder:
    """An answer's body without its coding, as it comes. `most` bounds what one piece may give."""

    def __init__(self, value: str, *, most: int) -> None:
        """Raises UpstreamError for a coding that cannot be read: such an answer never passes unread."""
        try:
            self._decoder = open_decoder(value)
        except ValueError:
            raise _unreadable() from None
        self._most = most

    @property
    def is_coded(self) -> bool:
        return self._decoder is not None

    def feed(self, data: bytes) -> bytes:
        """Raises UpstreamError."""
        if self._decoder is None:
            return data
        try:
            return self._decoder.feed(data, most=self._most)
        except Unpacked as error:
            raise _unreadable() from error

    def finish(self) -> None:
        """Raises UpstreamError where the body ended too early."""
        try:
            if self._decoder is not None:
                self._decoder.finish()
        except Unpacked as error:
            raise _unreadable() from error


def _unreadable() -> UpstreamError:
    return UpstreamError(
        "the upstream's answer is in an encoding that cannot be read", kind="protocol", code="protocol"
    )


def readable_accept(value: str) -> str:
    """An `accept-encoding` less what cannot be read here; for governed requests. May become `identity`."""
    kept = [part.strip() for part in value.split(",") if part.split(";")[0].strip().lower() in (*READABLE, "identity")]
    return ", ".join(kept) or "identity"
