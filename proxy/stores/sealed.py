"""A store whose values are encrypted at rest, around any other store.

A value is sealed with AES-256-GCM under a key that HKDF-SHA256 derives from a configured secret; the store's key is
authenticated with it, so that a value that was moved to another key does not open. The first secret writes, all
read: to change it, put the new one in front and take the old one away when nothing lives that it sealed. A
secret should be random (32 bytes or more): HKDF does not make a short password strong. One secret should seal no
more than 2**32 values, since nonces are random.

What events are counted under may hold arguments, so those keys go down as an HMAC; with a new first secret, counts
begin anew. Keys of values are plain. This module must not know what its values mean.
"""

from __future__ import annotations

import hmac
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from proxy.errors import StoreError
from proxy.stores.base import Store, Stored, Write

_FORMAT = b"SC1\0"
_ID_BYTES = 8
_NONCE_BYTES = 12
_HEAD_BYTES = len(_FORMAT) + _ID_BYTES


@dataclass(frozen=True, slots=True)
class _Key:
    """What is derived from one secret. `id` stands in each value and tells nothing about the secret."""

    id: bytes
    cipher: AESGCM
    names: bytes


def _derive(secret: bytes) -> _Key:
    if not secret:
        raise StoreError("An encryption key of the state is empty: expected 32 random bytes or more.")
    parts = HKDF(SHA256(), 32 + 32 + _ID_BYTES, salt=None, info=b"sidecall state 1").derive(secret)
    return _Key(id=parts[64:], cipher=AESGCM(parts[:32]), names=parts[32:64])


class SealedStore:
    def __init__(self, inner: Store, secrets: Sequence[bytes]) -> None:
        keys = [_derive(secret) for secret in secrets]
        self._inner = inner
        self._writer = keys[0]
        self._readers = {key.id: key for key in keys}

    @property
    def evictions(self) -> int:
        found: int = getattr(self._inner, "evictions", 0)
        return found

    @property
    def held_bytes(self) -> int:
        found: int = getattr(self._inner, "held_bytes", 0)
        return found

    async def load(self, keys: Sequence[str]) -> dict[str, Stored]:
        found = await self._inner.load(keys)
        return {key: replace(stored, value=self._unseal(key, stored.value)) for key, stored in found.items()}

    async def save(self, writes: Sequence[Write]) -> bool:
        return await self._inner.save(
            [w if w.value is None else replace(w, value=self._seal(w.key, w.value)) for w in writes]
        )

    async def touch(self, keys: Sequence[str], ttl: float) -> None:
        await self._inner.touch(keys, ttl)

    async def count(self, key: str, limit: int, window: float) -> bool:
        name = hmac.digest(self._writer.names, _bytes(key), "sha256").hex()
        return await self._inner.count(name, limit, window)

    async def scan(self, prefix: str, most: int = 1000) -> list[str]:
        return await self._inner.scan(prefix, most)

    async def ping(self) -> None:
        await self._inner.ping()

    async def is_empty(self) -> bool:
        return await self._inner.is_empty()

    async def close(self) -> None:
        await self._inner.close()

    def _seal(self, key: str, value: bytes) -> bytes:
        head = _FORMAT + self._writer.id
        nonce = os.urandom(_NONCE_BYTES)
        return head + nonce + self._writer.cipher.encrypt(nonce, value, head + _bytes(key))

    def _unseal(self, key: str, sealed: bytes) -> bytes:
        head, nonce, rest = (
            sealed[:_HEAD_BYTES],
            sealed[_HEAD_BYTES:][:_NONCE_BYTES],
            sealed[_HEAD_BYTES:][_NONCE_BYTES:],
        )
        if not head.startswith(_FORMAT):
            raise StoreError("A stored value is not encrypted: expected one that a configured encryption key wrote.")
        reader = self._readers.get(head[len(_FORMAT) :])
        if reader is None:
            raise StoreError("A stored value was encrypted with a key that is not among the configured ones.")
        try:
            return reader.cipher.decrypt(nonce, rest, head + _bytes(key))
        except (InvalidTag, ValueError) as error:
            raise StoreError("A stored value cannot be decrypted: it was changed, moved or cut.") from error


def _bytes(key: str) -> bytes:
    return key.encode("utf-8", "surrogatepass")
