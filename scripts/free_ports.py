"""Says which of the given addresses cannot be listened on: NAME=HOST:PORT each, by the variable that names another.

A program that waits for its own server to answer must know first that nobody else answers there.
"""

from __future__ import annotations

import socket
import sys


def problem(address: str) -> str:
    """Why an address cannot be listened on; empty when it can."""
    host, _, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not (port.isascii() and port.isdigit() and len(port) <= 5 and int(port) <= 65535):
        return "expected HOST:PORT, such as 127.0.0.1:15480"
    try:
        family, kind, _, _, place = socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the server has it: what ended is no matter
            tried.bind(place)
            tried.listen()
    except OSError as error:
        return f"{address} cannot be listened on ({error.strerror}); give another one"
    return ""


def main(arguments: list[str]) -> int:
    """The exit status."""
    given = [argument.partition("=") for argument in arguments]
    problems = [f"{name}: {found}" for name, _, address in given if (found := problem(address))]
    sys.stderr.write("".join(f"{line}\n" for line in problems))
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
