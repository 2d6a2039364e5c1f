"""Middleware for tests: what it is asked it does, or fails to do."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from proxy.middleware import Allow, Answer, Block, Call, Rewrite

asked: list[tuple[Call, str | None]] = []
"""Every call that `Scripted` was asked about, with the result where there was one."""


class Scripted:
    """Does what the call's argument `do` says."""

    def on_call(self, call: Call) -> Any:
        asked.append((call, None))
        match (call.args or {}).get("do"):
            case "allow":
                return Allow()
            case "block":
                return Block("Not in this house.")
            case "answer":
                return Answer("42")
            case "rewrite":
                return Rewrite({"do": "rewritten"})
            case "raise":
                raise RuntimeError("a secret of the house")
            case "odd":
                return {"action": "allow"}
            case "mutate":
                assert call.args is not None
                call.args["deep"].append(1)
            case "class":
                return Allow
        return None

    def on_result(self, call: Call, result: str) -> Any:
        asked.append((call, result))
        if result == "raise":
            raise KeyError(result)
        return 7 if result == "odd" else result.upper() if result.startswith("loud") else None


class Async:
    """The same for coroutines."""

    async def on_call(self, call: Call) -> Any:
        await asyncio.sleep(0)
        if call.name == "raise":
            raise LookupError
        return Block("Async.")

    async def on_result(self, call: Call, result: str) -> str | None:
        await asyncio.sleep(0)
        return f"{result}!"


class Slow:
    """Waits in its thread until it is let go."""

    def __init__(self) -> None:
        self.begun = threading.Semaphore(0)
        self.gate = threading.Event()

    def on_call(self, call: Call) -> Allow:
        self.begun.release()
        self.gate.wait(20)
        return Allow()


class Late:
    """Not async, and yet gives what is to be awaited."""

    def on_result(self, call: Call, result: str) -> Any:
        return self._later(result)

    async def _later(self, result: str) -> str:
        return f"late {result}"


class Wrong:
    def on_call(self) -> None:
        """Takes no call."""


class Unfit:
    on_call = 7


scripted, coroutines, slow, late, wrong, unfit, nothing = (
    Scripted(),
    Async(),
    Slow(),
    Late(),
    Wrong(),
    Unfit(),
    object(),
)
