"""One server: credentials, rights and TLS."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from proxy.errors import StoreError
from proxy.stores.base import Write
from proxy.stores.redis import RedisStore
from proxy.stores.redis_address import Trust, parse_redis_address
from tests.server.certificates import Authority
from tests.stores.contract import HOUR
from tests.stores.redis_servers import RedisServer, opened, running, works
from tests.stores.relay import Relay, relaying

# ---------------------------------------------------------------- credentials


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """A server with a password, and a user with the rights that the docs name."""
    rights = "~{sidecall}:* ~sidecall:c:* +@read +@write +@scripting +time"
    folder = tmp_path_factory.mktemp("guarded")
    with running(folder, "requirepass pass@4711", f"user proxy on >own-4711 {rights}") as server:
        yield server


async def test_a_password_and_a_user_are_sent(guarded: RedisServer) -> None:
    """A password alone is that of the default user; a user needs no more rights than the docs say."""
    for who in (":pass%404711", "default:pass%404711", "proxy:own-4711"):
        address = parse_redis_address(f"redis://{who}@127.0.0.1:{guarded.port}")
        await works(RedisStore(address))
        store = RedisStore(address)
        assert await store.count("a", 1000, 60)
        assert await store.scan("") == ["a"]
        await store.touch(["a"], 2 * HOUR)
        assert not await store.is_empty()
        await store.close()


@pytest.mark.parametrize(
    ("who", "said"),
    [
        ("", "needs a user or a password"),
        (":wrong-4711@", "does not accept the user or the password"),
        ("nobody:own-4711@", "does not accept the user or the password"),
    ],
)
async def test_a_wrong_password_is_not_shown(who: str, said: str, guarded: RedisServer, tmp_path: Path) -> None:
    """The error says what is wrong, and neither what was sent nor where to."""
    store = opened(f"redis://{who}127.0.0.1:{guarded.port}", tmp_path)
    for operation in (store.save([Write("a", b"x", HOUR)]), store.load(["a"])):
        with pytest.raises(StoreError, match=said) as caught:
            await operation
        shown = f"{caught.value} {caught.value.__cause__!r}"
        assert "4711" not in shown
        assert "nobody" not in shown
    await store.close()


async def test_a_user_without_rights_keeps_nothing_half(guarded: RedisServer, tmp_path: Path) -> None:
    """What Redis does not permit is a StoreError that says so."""
    store = opened(f"redis://proxy:own-4711@127.0.0.1:{guarded.port}", tmp_path)  # a prefix that is not its own
    with pytest.raises(StoreError, match="its user lacks a permission"):
        await store.save([Write("a", b"x", HOUR)])
    await store.close()


# ---------------------------------------------------------------- TLS


@pytest.fixture
async def secured(redis_server: RedisServer, authority: Authority) -> AsyncIterator[Relay]:
    async with relaying(redis_server.port, authority.issue("localhost").server_context()) as relay:
        yield relay


async def test_tls_with_an_authority_of_ones_own(secured: Relay, authority: Authority, tmp_path: Path) -> None:
    """`caFile` is what the server's certificate is judged by."""
    await works(opened(f"rediss://localhost:{secured.port}", tmp_path, Trust(str(authority.file))))


@pytest.mark.parametrize(("host", "trusted"), [("localhost", False), ("127.0.0.1", True)])
async def test_a_certificate_that_does_not_fit_is_refused(
    host: str, trusted: bool, secured: Relay, authority: Authority, tmp_path: Path
) -> None:
    """Neither an authority that is not trusted nor the name of another host."""
    store = opened(f"rediss://{host}:{secured.port}", tmp_path, Trust(str(authority.file)) if trusted else None)
    with pytest.raises(StoreError, match=r"TLS fails \(CERTIFICATE_VERIFY_FAILED\)"):
        await store.ping()
    await store.close()


async def test_an_authority_of_ones_own_takes_the_place_of_all_others(
    secured: Relay, authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the system trusts is not trusted beside `caFile`."""
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
    await works(opened(f"rediss://localhost:{secured.port}", tmp_path))
    (tmp_path / "other").mkdir()
    other = Authority(tmp_path / "other")
    store = opened(f"rediss://localhost:{secured.port}", tmp_path, Trust(str(other.file)))
    with pytest.raises(StoreError, match="CERTIFICATE_VERIFY_FAILED"):
        await store.ping()
    await store.close()


async def test_a_certificate_is_shown_to_who_asks_for_one(
    redis_server: RedisServer, authority: Authority, tmp_path: Path
) -> None:
    """With `clientCert` it is let in, without it is not."""
    own = authority.issue("sidecall")
    context = authority.issue("localhost").server_context(ask_client_for=authority.file)
    async with relaying(redis_server.port, context) as relay:
        url = f"rediss://localhost:{relay.port}"
        await works(opened(url, tmp_path, Trust(str(authority.file), str(own.cert), str(own.key))))
        store = opened(url, tmp_path, Trust(str(authority.file)))
        with pytest.raises(StoreError, match=r"TLS fails|the connection broke"):
            await store.ping()
        await store.close()
