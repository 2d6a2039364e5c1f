"""Content codings, within bounds."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from proxy.errors import RequestError, UpstreamError
from proxy.server.coding import AnswerDecoder, decode_request, readable_accept


def raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


PACKERS: dict[str, list[Callable[[bytes], bytes]]] = {
    "gzip": [gzip.compress, lambda data: gzip.compress(data[:3]) + gzip.compress(data[3:])],
    "deflate": [zlib.compress, raw_deflate],
    "zstd": [zstandard.compress],
}
CASES = [(name, pack) for name, packs in PACKERS.items() for pack in packs]
TEXT = b'{"model": "m", "messages": []}' * 50


@pytest.mark.parametrize(("name", "pack"), CASES)
def test_a_packed_body_is_read(name: str, pack: Callable[[bytes], bytes]) -> None:
    """Each coding gives back what was packed."""
    assert decode_request(pack(TEXT), name, limit=len(TEXT)) == TEXT


@pytest.mark.parametrize(("name", "pack"), CASES)
def test_a_body_that_unpacks_beyond_the_limit_is_a_413(name: str, pack: Callable[[bytes], bytes]) -> None:
    """A small body that holds a large one is refused before it is unpacked whole."""
    for size in (len(TEXT) + 1, 50 << 20):
        with pytest.raises(RequestError) as caught:
            decode_request(pack(bytes(size)), name, limit=len(TEXT))
        assert caught.value.status == 413


@pytest.mark.parametrize("name", ["gzip", "deflate", "zstd"])
def test_a_body_that_is_not_packed_is_a_400(name: str) -> None:
    """A body must be in the coding that it names."""
    with pytest.raises(RequestError) as caught:
        decode_request(b"\xff not packed", name, limit=100)
    assert caught.value.status == 400


@pytest.mark.parametrize("name", ["gzip", "deflate"])
def test_a_body_that_ends_early_is_a_400(name: str) -> None:
    """A body that was cut off is refused."""
    packed = PACKERS[name][0](TEXT)
    with pytest.raises(RequestError) as caught:
        decode_request(packed[:-6], name, limit=len(TEXT))
    assert caught.value.status == 400


@pytest.mark.parametrize("name", ["br", "odd", "gzip, br", "gzip,gzip,gzip,gzip"])
def test_another_coding_is_a_415(name: str) -> None:
    """What cannot be read is refused."""
    with pytest.raises(RequestError) as caught:
        decode_request(b"x", name, limit=100)
    assert caught.value.status == 415


def test_several_codings_are_taken_off_from_the_last() -> None:
    """Codings stand in the order in which they were applied."""
    assert decode_request(zlib.compress(gzip.compress(TEXT)), "gzip, deflate", limit=9999) == TEXT
    assert decode_request(TEXT, "identity", limit=9999) == TEXT


@given(st.binary(max_size=2000), st.sampled_from(CASES), st.integers(1, 50))
def test_an_answer_is_decoded_however_it_is_cut(
    data: bytes, case: tuple[str, Callable[[bytes], bytes]], step: int
) -> None:
    """Pieces of a packed answer give the answer."""
    name, pack = case
    decoder, packed = AnswerDecoder(name, most=1 << 20), pack(data)
    out = b"".join(decoder.feed(packed[at : at + step]) for at in range(0, len(packed), step))
    decoder.finish()
    assert out == data


def test_an_event_is_there_as_soon_as_it_was_flushed() -> None:
    """A stream that is flushed by event is decoded by event."""
    packer = zlib.compressobj(wbits=zlib.MAX_WBITS | 16)
    decoder = AnswerDecoder("gzip", most=1 << 20)
    for event in (b"data: 1\n\n", b"data: 2\n\n"):
        assert decoder.feed(packer.compress(event) + packer.flush(zlib.Z_SYNC_FLUSH)) == event


def test_an_answer_in_another_coding_is_refused() -> None:
    """What cannot be read does not pass."""
    with pytest.raises(UpstreamError):
        AnswerDecoder("br", most=1)


def test_a_piece_of_an_answer_has_a_bound() -> None:
    """A piece may not unpack to more than its bound."""
    decoder = AnswerDecoder("gzip", most=1000)
    with pytest.raises(UpstreamError):
        decoder.feed(gzip.compress(bytes(100_000)))


def test_an_answer_that_was_cut_off_is_refused() -> None:
    """A packed answer must come to its end."""
    decoder = AnswerDecoder("gzip", most=1000)
    decoder.feed(gzip.compress(b"hello")[:-4])
    with pytest.raises(UpstreamError):
        decoder.finish()


def test_plain_answers_stay() -> None:
    """Without a coding nothing is done."""
    decoder = AnswerDecoder("", most=1)
    assert decoder.feed(b"hello") == b"hello"
    assert not decoder.is_coded
    decoder.finish()


@pytest.mark.parametrize(
    ("asked", "kept"),
    [
        ("gzip, deflate, br, zstd", "gzip, deflate, zstd"),
        ("br", "identity"),
        ("", "identity"),
        ("gzip;q=1", "gzip;q=1"),
    ],
)
def test_governed_requests_ask_for_what_can_be_read(asked: str, kept: str) -> None:
    """Codings that cannot be read are not asked for."""
    assert readable_accept(asked) == kept
