"""Whose an entry is: the tenant of a caller, which tells two callers apart and names no credential.

With named clients it is the client's name. Where the proxy has the endpoint's key and no clients, callers cannot be
told apart and are one tenant. Otherwise it is an HMAC of the caller's credential, under a random key that lies in
the store, so that all processes of one store agree and nobody without the store can test guesses.

This module must not know what is kept for a tenant, nor who may call.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Iterable
from contextlib import suppress

from proxy.core.calls import Tenant
from proxy.errors import StoreError
from proxy.stores.base import Store, Stored, Write

EVERYONE = Tenant("(everyone)")
ANONYMOUS = Tenant("(anonymous)")

_KEY = "meta:tenant-key"
_KEY_BYTES = 32
_FOR_GOOD = 100 * 365 * 86400.0
_DIGEST_CHARS = 32


def credential_of(headers: Iterable[tuple[str, str]]) -> str:
    """The credential of a request: the token of its authorization header, or its `api-key` header.

    Both, when it has both: one of them may be a placeholder that other callers send too. Empty: it has none.
    """
    found: dict[str, list[str]] = {"authorization": [], "api-key": []}
    for name, value in headers:
        if (values := found.get(name.lower())) is not None and (token := _token(value)):
            values.append(token)
    return "\0".join([*found["authorization"], *found["api-key"]])


def _token(value: str) -> str:
    scheme, _, token = value.strip().partition(" ")
    return token.strip() if scheme.lower() == "bearer" else value.strip()


class Tenants:
    """The tenants of one store. `one_caller`: an `apiKey` is configured and no clients."""

    def __init__(self, store: Store, *, one_caller: bool = False) -> None:
        self._store = store
        self._one_caller = one_caller
        self._key: bytes | None = None

    async def tenant_of(self, *, credential: str, client: str = "") -> Tenant:
        """The tenant of a caller: `client` is its configured name, `credential` what it sent.

        Raises StoreError while the store has not given its key yet; later calls ask the store no more. Ask
        only when something is to be kept or looked up: the first call writes the key where there is none.
        """
        if client:
            return Tenant(client)
        if self._one_caller:
            return EVERYONE
        if not credential:
            return ANONYMOUS
        if self._key is None:
            self._key = await self._load_key()
        digest = hmac.new(self._key, credential.encode("utf-8", "surrogatepass"), "sha256").hexdigest()
        return Tenant(f"key-{digest[:_DIGEST_CHARS]}")

    async def _load_key(self) -> bytes:
        """The key in the store, made when there is none. Of two that make one at once, the first wins."""
        found = (await self._store.load([_KEY])).get(_KEY)
        if found is not None:
            await self._write_again(found)
            return found.value
        await self._store.save([Write(_KEY, secrets.token_bytes(_KEY_BYTES), _FOR_GOOD, version=0)])
        found = (await self._store.load([_KEY])).get(_KEY)
        if found is None:
            raise StoreError("The store did not keep the key that tells callers apart.")
        return found.value

    async def _write_again(self, found: Stored) -> None:
        """Nothing else here lives for good: so that an old encryption key can be taken away some day, the first one
        seals this value anew, once a process."""
        with suppress(StoreError):  # the key was read, and that is enough for now
            await self._store.save([Write(_KEY, found.value, _FOR_GOOD, found.version)])
