"""An MCP server of a few lines without any package: it starts at once, and misbehaves as it is asked to.

Its standard input and output are those of the protocol's older versions, with a handshake. Arguments are the names
of the tools that it lists.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import Any

tools = sys.argv[1:]
waiting: list[Any] = []
held: list[Any] = []
counts = {"now": 0, "most": 0, "all": 0}


def send(message: dict[str, Any]) -> None:
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def text(words: str, *, error: bool = False) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": words}], "isError": error}


def listed(name: str) -> dict[str, Any]:
    hints = {"readOnlyHint": name.startswith("read"), "idempotentHint": name.endswith("again")}
    return {"name": name, "description": f"About {name}.", "inputSchema": {"type": "object"}, "annotations": hints}


def hold(number: Any) -> None:
    """Wait for `release`, together with the others."""
    held.append(number)
    counts.update(now=len(held), most=max(counts["most"], len(held)), all=counts["all"] + 1)


def release() -> dict[str, Any]:
    """Let go who waits."""
    for number in held:
        send({"id": number, "result": text("released")})
    held.clear()
    counts["now"] = 0
    return text("done")


def call(number: Any, name: str, arguments: dict[str, Any], meta: dict[str, Any]) -> dict[str, Any] | None:
    match name:
        case "grow":
            tools.append(arguments["tool"])
            send({"method": "notifications/tools/list_changed"})
        case "environment":
            return text(json.dumps(dict(os.environ)))
        case "pid":
            return text(str(os.getpid()))
        case "child":
            return text(str(subprocess.Popen(["sleep", "60"], stdin=subprocess.DEVNULL).pid))
        case "stubborn":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            waiting.append(number)  # and it does not go when its input ends
            return None
        case "about":
            return text(json.dumps(meta))
        case "die" | "die_again":
            path = arguments.get("unless")
            if path is not None and os.path.exists(path):
                return text("alive")
            if path is not None:
                open(path, "w").close()
            os._exit(3)
        case "hang":
            return None
        case "hold":
            hold(number)
            return None
        case "release":
            return release()
        case "counts":
            return text(json.dumps(counts))
        case "long":
            return text("x" * arguments["bytes"])
        case "noise":
            print("no message", flush=True)
            print('{"jsonrpc": "2.0"}', flush=True)
        case "talk":
            print(arguments["words"], file=sys.stderr, flush=True)
        case "bad":
            return text(
                f"it cannot: {os.environ.get('TOKEN')}\nTraceback (most recent call last):\n  secret", error=True
            )
        case "picture":
            return {"content": [{"type": "image", "data": "AAAA", "mimeType": "image/png"}]}
        case "nothing":
            return {"content": "none"}
    return text(f"{name} {json.dumps(arguments)}")


def answer(message: dict[str, Any]) -> dict[str, Any] | None:
    params = message.get("params") or {}
    match message["method"]:
        case "initialize":
            version = params["protocolVersion"]
            server = {"name": "plain", "version": "1"}
            return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": server}
        case "tools/list":
            return {"tools": [listed(name) for name in tools]}
        case "tools/call":
            return call(message["id"], params["name"], params.get("arguments") or {}, params.get("_meta") or {})
    raise LookupError


def main() -> None:
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message:
            continue
        try:
            result = answer(message)
        except LookupError:
            send({"id": message["id"], "error": {"code": -32601, "message": "no such method"}})
            continue
        if result is not None:
            send({"id": message["id"], "result": result})
    if waiting:
        signal.pause()


if __name__ == "__main__":
    main()
