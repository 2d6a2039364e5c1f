"""Who calls: the clients of the configuration, known by a bearer token or an `api-key` header.

With a list, nobody else is let in. Without one, anybody who reaches the port is a caller without a name.
"""

from __future__ import annotations

from collections.abc import Sequence

from proxy.config import Client, find_client
from proxy.errors import RequestError
from proxy.server.http import Headers


def shown_credentials(headers: Headers) -> list[str]:
    """What a request shows as its credentials: bearer tokens and `api-key` headers, never empty ones."""
    found: list[str] = []
    for name, value in headers:
        if name.lower() == "api-key":
            found.append(value.strip())
        elif name.lower() == "authorization":
            scheme, _, token = value.strip().partition(" ")
            if scheme.lower() == "bearer":
                found.append(token.strip())
    return [token for token in found if token]


class Callers:
    """The clients that may call."""

    def __init__(self, clients: Sequence[Client]) -> None:
        self._clients = tuple(clients)

    def identify(self, headers: Headers) -> str:
        """The name of the caller; empty where callers are not listed. Raises RequestError (401)."""
        if not self._clients:
            return ""
        for credential in shown_credentials(headers):
            if (client := find_client(self._clients, credential)) is not None:
                return client.name
        raise RequestError("this key is not known here", code="invalid_api_key", status=401)
