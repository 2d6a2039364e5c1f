"""How the upstream is reached: the address of a target, the HTTP proxy of the environment, TLS, credentials.

Nothing that a client sends chooses the host: a target is only ever put behind the configured origin.
"""

from __future__ import annotations

import ipaddress
import re
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from proxy.config import Auth, Upstream
from proxy.server.http import Headers, without
from proxy.settings import reader

_UNSAFE = re.compile(r"[^\x21\x24-\x7e]|\"|[\x23]")


@dataclass(frozen=True, slots=True)
class Address:
    """Where the upstream is. `base` is the path of the base URL, without a slash at its end."""

    origin: str
    base: str

    @classmethod
    def of(cls, base_url: str) -> Address:
        parts = urlsplit(base_url)
        return cls(f"{parts.scheme}://{parts.netloc}", parts.path.rstrip("/"))

    def url(self, target: str) -> str:
        """The URL for a client's target: `/v1/X` goes below the base URL, anything else to its origin."""
        target = _UNSAFE.sub(_quoted, target)
        if re.match(r"/v1(?:[/?]|$)", target):
            return f"{self.origin}{self.base}{target[3:]}"
        return f"{self.origin}{target}"


def _quoted(found: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in found[0].encode("utf-8", "surrogateescape"))


# ---------------------------------------------------------------- the HTTP proxy of the environment


def find_proxy(base_url: str, environ: Mapping[str, str]) -> str | None:
    """The HTTP proxy for the upstream, by HTTPS_PROXY or HTTP_PROXY, NO_PROXY, and their lower-case forms.

    This machine is never asked for through a proxy.
    """
    parts = urlsplit(base_url)
    host = (parts.hostname or "").lower()
    name = f"{parts.scheme}_proxy"
    proxy = environ.get(name) or environ.get(name.upper()) or ""
    if not proxy or _is_local(host):
        return None
    port = parts.port or (443 if parts.scheme == "https" else 80)
    if _bypassed(host, port, environ.get("no_proxy") or environ.get("NO_PROXY") or ""):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _is_local(host: str) -> bool:
    address = _address(host)
    return host == "localhost" or (address is not None and address.is_loopback)


def _bypassed(host: str, port: int, no_proxy: str) -> bool:
    return any(_covers(entry.strip().lower(), host, port) for entry in no_proxy.split(",") if entry.strip())


def _covers(entry: str, host: str, port: int) -> bool:
    """Whether an entry of NO_PROXY names a host: `*`, a network, an address or a domain, perhaps with a port."""
    if entry == "*":
        return True
    address = _address(host)
    if address is not None and "/" in entry:
        try:
            return address in ipaddress.ip_network(entry, strict=False)
        except ValueError:
            return False
    if found := re.fullmatch(r"\[?([^\]]*?)\]?:(\d+)", entry):
        if _address(entry) is None and int(found[2]) != port:
            return False
        entry = entry if _address(entry) is not None else found[1]
    if address is not None:
        return _address(entry) == address
    domain = entry.removeprefix("*").removeprefix(".")
    return host == domain or host.endswith(f".{domain}")


# ---------------------------------------------------------------- TLS and credentials


def tls_context(settings: Upstream) -> ssl.SSLContext:
    """Trust for the upstream: the system's authorities, or those of `caFile` alone. Raises OSError."""
    context = ssl.create_default_context(cafile=settings.ca_file)
    if settings.client_cert is not None:
        context.load_cert_chain(settings.client_cert.cert_file, settings.client_cert.key_file)
    return context


class Credentials:
    """Puts the configured key and headers on a request, read anew each time, in place of the client's own."""

    def __init__(self, settings: Upstream) -> None:
        self._auth = settings.auth
        self._key: Callable[[], str] | None = settings.api_key.read if settings.api_key is not None else None
        self._headers = {name: reader(value) for name, value in settings.headers.items()}
        self._replaced = tuple(name.lower() for name in self._headers)

    def apply(self, headers: Headers) -> Headers:
        if self._key is not None:
            headers = without(headers, "authorization", "api-key")
            match self._auth:
                case Auth.BEARER:
                    headers = (*headers, ("authorization", f"Bearer {self._key()}"))
                case Auth.API_KEY:
                    headers = (*headers, ("api-key", self._key()))
                case Auth.NONE:
                    pass
        if self._headers:
            headers = without(headers, *self._replaced)
            headers = (*headers, *((name, read()) for name, read in self._headers.items()))
        return headers
