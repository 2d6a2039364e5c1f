"""Whose an entry is."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.errors import StoreError
from proxy.stores.base import Write
from proxy.stores.memory import MemoryStore
from proxy.stores.sealed import SealedStore
from proxy.stores.sqlite import SqliteStore
from proxy.stores.tenants import ANONYMOUS, EVERYONE, Tenants, credential_of


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ([("Authorization", "Bearer abc")], "abc"),
        ([("authorization", "bearer  abc ")], "abc"),
        ([("api-key", "abc")], "abc"),
        ([("Api-Key", " abc ")], "abc"),
        ([("Authorization", "Basic abc")], "Basic abc"),
        ([("Authorization", "Bearer unused"), ("api-key", "abc")], "unused\0abc"),
        ([("api-key", "abc"), ("Authorization", "Bearer unused")], "unused\0abc"),
        ([("Authorization", "Bearer "), ("api-key", "")], ""),
        ([("x-other", "abc")], ""),
        ([], ""),
    ],
)
def test_the_credential_of_a_request(headers: list[tuple[str, str]], expected: str) -> None:
    """It is the token, whichever of the two headers carries it; both, when there are both."""
    assert credential_of(headers) == expected


async def test_a_named_client_is_its_own_tenant() -> None:
    """With clients configured, the name is the tenant, whatever the credential."""
    tenants = Tenants(MemoryStore())
    assert await tenants.tenant_of(credential="secret", client="team-a") == "team-a"


async def test_callers_that_cannot_be_told_apart_are_one() -> None:
    """With the proxy's own key and no clients, what a caller sends makes no difference."""
    tenants = Tenants(MemoryStore(), one_caller=True)
    assert {await tenants.tenant_of(credential=c) for c in ("", "a", "b")} == {EVERYONE}


async def test_a_caller_without_credential_is_anonymous() -> None:
    """No credential is a tenant of its own, and needs no store."""
    store = MemoryStore()
    await store.close()
    assert await Tenants(store).tenant_of(credential="") == ANONYMOUS


@given(st.lists(st.text(min_size=1), min_size=2, max_size=6, unique=True))
async def test_credentials_are_told_apart_and_not_shown(credentials: list[str]) -> None:
    """Each credential is one tenant, the same each time, and cannot be read from it."""
    store = MemoryStore()
    tenants, again = Tenants(store), Tenants(store)
    found = [await tenants.tenant_of(credential=c) for c in credentials]
    assert len(set(found)) == len(credentials)
    assert [await again.tenant_of(credential=c) for c in credentials] == found
    assert all(len(tenant) == 36 and tenant.startswith("key-") for tenant in found)


async def test_another_store_gives_another_tenant() -> None:
    """The key is random: nobody who does not have it can test guesses."""
    found = [await Tenants(MemoryStore()).tenant_of(credential="a") for _ in range(2)]
    assert found[0] != found[1]


async def test_processes_of_one_store_agree_from_the_start(tmp_path: Path) -> None:
    """Of two processes that make the key at the same moment, one wins and both use it."""
    stores = [SqliteStore(tmp_path / "state.db") for _ in range(3)]
    found = await asyncio.gather(*(Tenants(s).tenant_of(credential="a") for s in stores for _ in range(3)))
    assert len(set(found)) == 1
    assert await stores[0].is_empty()
    for store in stores:
        await store.close()


async def test_a_store_that_is_down_is_asked_again() -> None:
    """Without the key there is no tenant; once it was seen, the store may go."""
    store = MemoryStore()
    tenants = Tenants(store)
    found = await tenants.tenant_of(credential="a")
    await store.close()
    assert await tenants.tenant_of(credential="a") == found
    for _ in range(2):
        with pytest.raises(StoreError):
            await Tenants(store).tenant_of(credential="a")


async def test_the_key_moves_on_to_a_new_secret() -> None:
    """A process that has both secrets seals the key with the new one; the tenants stay the same."""
    inner = MemoryStore()
    found = [
        await Tenants(SealedStore(inner, keys)).tenant_of(credential="a")
        for keys in ([b"old"], [b"new", b"old"], [b"new"])
    ]
    assert len(set(found)) == 1


class _ReadOnly(MemoryStore):
    async def save(self, writes: Sequence[Write]) -> bool:
        raise StoreError("read only")


async def test_a_key_that_can_be_read_is_enough() -> None:
    """A store that takes no writes just now still tells callers apart."""
    store = _ReadOnly()
    await MemoryStore.save(store, [Write("meta:tenant-key", b"k" * 32, 60)])
    assert (await Tenants(store).tenant_of(credential="a")).startswith("key-")
    with pytest.raises(StoreError):
        await Tenants(_ReadOnly()).tenant_of(credential="a")
