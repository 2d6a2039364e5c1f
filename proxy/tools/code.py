"""Python objects that have a say in calls: loading what a rule names, and asking it.

Rules: an object has `on_call`, `on_result` or both. An async function runs on the loop; any other in a thread, so that
a slow one never stops the loop. What it raises is told by its class alone, since its message may hold anything. Must
not know rules, nor what an answer means.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass

from proxy.tools.python import awaited, find_attribute, in_thread, is_async


@dataclass(frozen=True, slots=True)
class Code:
    """An object that a rule names; a function that it does not have is None."""

    target: str
    on_call: Callable[..., object] | None
    on_result: Callable[..., object] | None


def load_code(target: str) -> Code:
    """The object that `package.module:attr` names. Raises ValueError that says what was expected."""
    found = find_attribute(target, "an object")
    if inspect.isclass(found):
        raise ValueError(f"{target} is a class; expected an object of it")
    on_call = _function(found, "on_call", target=target)
    on_result = _function(found, "on_result", target=target)
    if on_call is None and on_result is None:
        raise ValueError(f"{target} has neither on_call nor on_result")
    return Code(target, on_call, on_result)


_PARAMETERS = {"on_call": "call", "on_result": "call, result"}


def _function(found: object, name: str, *, target: str) -> Callable[..., object] | None:
    function, parameters = getattr(found, name, None), _PARAMETERS[name]
    if function is None:
        return None
    try:
        inspect.signature(function).bind(*parameters.split(", "))
    except (TypeError, ValueError):
        raise ValueError(f"{target}.{name} cannot be called so; expected {name}({parameters})") from None
    if not callable(function):
        raise ValueError(f"{target}.{name} cannot be called; expected {name}({parameters})")
    checked: Callable[..., object] = function
    return checked


async def ask_code(name: str, function: Callable[..., object], *given: object, ended: Callable[[], None]) -> object:
    """What a function says. Raises ToolRunError. `ended` is called once, when nothing of it runs any more: after a
    cancelled wait, a function in a thread may still be running."""
    if is_async(function):
        try:
            return await awaited(function(*given))
        finally:
            ended()
    value = await in_thread(lambda: function(*given), name=name, ended=ended)
    return await awaited(value) if inspect.isawaitable(value) else value
