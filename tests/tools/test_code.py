"""Python objects that have a say in calls: found, checked and asked."""

from __future__ import annotations

import asyncio
import threading

import pytest

from proxy.tools.code import ask_code, load_code
from proxy.tools.spec import RunKind, ToolRunError
from tests.tools import house_rules

HERE = "tests.tools.house_rules"


def test_what_an_object_has_a_say_in() -> None:
    """One of the two functions is enough."""
    both, results = load_code(f"{HERE}:scripted"), load_code(f"{HERE}:late")
    assert both.on_call is not None
    assert both.on_result is not None
    assert (results.on_call, results.on_result) == (None, house_rules.late.on_result)


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ("house_rules", "expected MODULE:OBJECT"),
        ("no_such_module:x", "no_such_module cannot be imported .no_such_module is missing."),
        (f"{HERE}:missing", "has no missing; expected the name of an object"),
        (f"{HERE}:Scripted", "is a class; expected an object of it"),
        (f"{HERE}:nothing", "has neither on_call nor on_result"),
        (f"{HERE}:wrong", "wrong.on_call cannot be called so; expected on_call.call."),
        (f"{HERE}:unfit", "unfit.on_call cannot be called"),
    ],
)
def test_what_cannot_be_used(target: str, why: str) -> None:
    """It is told at the start, with what was expected."""
    with pytest.raises(ValueError, match=why):
        load_code(target)


async def _asked(function: object, *given: object) -> tuple[object, int]:
    ended: list[int] = []
    assert callable(function)
    value = await ask_code("test", function, *given, ended=lambda: ended.append(1))
    return value, len(ended)


async def test_functions_and_coroutines() -> None:
    """A function runs in a thread, a coroutine on the loop; either is said to have ended once."""
    here = threading.get_ident()

    async def coroutine(value: str) -> tuple[str, bool]:
        return value, threading.get_ident() == here

    assert await _asked(lambda value: (value, threading.get_ident() == here), "x") == (("x", False), 1)
    assert await _asked(coroutine, "x") == (("x", True), 1)
    assert await _asked(load_code(f"{HERE}:late").on_result, None, "x") == ("late x", 1)


async def test_what_is_raised_is_told_by_its_class() -> None:
    """Its message may hold anything."""

    def fails() -> None:
        raise RuntimeError("a secret")

    async def fails_later() -> None:
        raise SystemExit("a secret")

    for function, name in ((fails, "RuntimeError"), (fails_later, "SystemExit")):
        with pytest.raises(ToolRunError) as raised:
            await _asked(function)
        assert (raised.value.kind, raised.value.reason) == (RunKind.EXCEPTION, f"it raised {name}")


async def test_a_slow_function_does_not_stop_the_loop() -> None:
    """Others run while it does; a wait that is cancelled is not its end."""
    gate, ended = threading.Event(), asyncio.Event()
    work = asyncio.ensure_future(ask_code("test", gate.wait, ended=ended.set))
    await asyncio.sleep(0.01)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    assert not ended.is_set()
    gate.set()
    await asyncio.wait_for(ended.wait(), 5)
