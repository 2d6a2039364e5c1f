"""Proxy tools that are Python functions.

Rules: parameters are filled by name from the call's arguments, and one named `context` and annotated `ToolRun`
with the call's context. An async function runs on the loop; any other in a thread of its own, so that it never
stops the loop (how many run at once is bounded by who calls `run_function`). Threads are daemons: a function
that never returns cannot keep the process from ending. What a function raises is told by its class alone, since
its message may hold anything. Must not know names and limits of tools.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import inspect
import re
import threading
import typing
from collections.abc import Callable

from proxy.core.jsontext import render_text
from proxy.tools.spec import PythonFunction, RunKind, ToolRun, ToolRunError

_TARGET = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")
_CONTEXT = "context"


# ---------------------------------------------------------------- loading


def load_function(target: str) -> PythonFunction:
    """The function that `module:function` names. Raises ValueError that says what was expected."""
    found = find_attribute(target, "a function")
    if not callable(found):
        raise ValueError(f"{target} cannot be called; expected a function")
    return _described(target, found)


def find_attribute(target: str, wanted: str) -> object:
    """What `module:attribute` names. Raises ValueError that says what was `wanted`."""
    if not _TARGET.fullmatch(target):
        raise ValueError(f"expected MODULE:{wanted.split()[-1].upper()}, such as my_tools:add")
    module_name, _, path = target.partition(":")
    found = _import(module_name)
    for step in path.split("."):
        if not hasattr(found, step):
            raise ValueError(f"the module {module_name} has no {path}; expected the name of {wanted} in it")
        found = getattr(found, step)
    return found


def _import(name: str) -> object:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        missing = f" ({error.name} is missing)" if error.name else ""
        raise ValueError(
            f"the module {name} cannot be imported{missing}; expected it on the path of Python (PYTHONPATH)"
        ) from error
    except Exception as error:  # an imported module is foreign code and may raise anything
        raise ValueError(f"the module {name} cannot be imported: it raised {type(error).__name__}") from error


def _described(target: str, function: Callable[..., object]) -> PythonFunction:
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        raise ValueError(f"{target} does not tell its parameters; expected a Python function") from None
    kinds = {p.kind for p in parameters.values()}
    if inspect.Parameter.POSITIONAL_ONLY in kinds:
        raise ValueError(f"{target} has positional-only parameters; expected ones that can be given by name")
    named = [p for p in parameters.values() if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    wants_context = any(p.name == _CONTEXT and _is_context(p, function) for p in named)
    rest = [p for p in named if not (wants_context and p.name == _CONTEXT)]
    return PythonFunction(
        target=target,
        call=function,
        required=frozenset(p.name for p in rest if p.default is p.empty),
        accepted=frozenset(p.name for p in rest),
        open=inspect.Parameter.VAR_KEYWORD in kinds,
        wants_context=wants_context,
        is_async=is_async(function),
    )


def is_async(function: Callable[..., object]) -> bool:
    """Whether what it gives is to be awaited, as far as that can be told before."""
    call = getattr(function, "__call__", None)  # noqa: B004 - an object may be async
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


def _is_context(parameter: inspect.Parameter, function: Callable[..., object]) -> bool:
    """Annotations may be text, and the names in them need not be known at run time."""
    annotation = parameter.annotation
    if isinstance(annotation, str):
        with contextlib.suppress(Exception):
            annotation = typing.get_type_hints(function).get(_CONTEXT, annotation)
    return annotation is ToolRun or (isinstance(annotation, str) and annotation.split(".")[-1] == ToolRun.__name__)


# ---------------------------------------------------------------- running


async def run_function(function: PythonFunction, run: ToolRun, *, ended: Callable[[], None]) -> str:
    """What the function gives, as text. Raises ToolRunError. `ended` is called once, when nothing of it runs any
    more: after a cancelled wait, a function in a thread may still be running."""
    try:
        given = _bound(function, run)
    except ToolRunError:
        ended()
        raise
    if function.is_async:
        try:
            value = await awaited(function.call(**given))
        finally:
            ended()
    else:
        value = await in_thread(lambda: function.call(**given), name=f"tool {function.target}", ended=ended)
        if inspect.isawaitable(value):  # it only made what is to be awaited
            value = await awaited(value)
    return _text(value)


def _bound(function: PythonFunction, run: ToolRun) -> dict[str, object]:
    names = run.arguments.keys()
    if missing := sorted(function.required - names):
        raise ToolRunError(RunKind.ARGUMENTS, f"the argument {missing[0]} is missing")
    reserved = {_CONTEXT} if function.wants_context else set()
    unknown = sorted(reserved & names if function.open else names - function.accepted)
    if unknown:
        raise ToolRunError(RunKind.ARGUMENTS, f"it takes no argument {unknown[0][:64]}")
    return {**run.arguments, **({_CONTEXT: run} if function.wants_context else {})}


async def awaited(value: object) -> object:
    try:
        return await typing.cast(typing.Awaitable[object], value)
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise ToolRunError(RunKind.EXCEPTION, "it raised CancelledError") from None
    except BaseException as error:  # foreign code: SystemExit of a tool must not end the proxy
        raise _raised(error) from error


def _raised(error: BaseException) -> ToolRunError:
    return ToolRunError(RunKind.EXCEPTION, f"it raised {type(error).__name__}")


async def in_thread(work: Callable[[], object], *, name: str, ended: Callable[[], None]) -> object:
    """What a function gives that runs in a thread of its own. Raises ToolRunError. `ended` is called when it has."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[object] = loop.create_future()

    def settle(value: object, failed: ToolRunError | None) -> None:
        ended()
        if done.done():
            return
        if failed is None:
            done.set_result(value)
        else:
            done.set_exception(failed)

    def target() -> None:
        value, failed = None, None
        try:
            value = work()
        except BaseException as error:  # noqa: BLE001 - foreign code; a thread has nobody else to tell
            failed = _raised(error)
        with contextlib.suppress(RuntimeError):  # the loop has ended: nobody waits
            loop.call_soon_threadsafe(settle, value, failed)

    try:
        threading.Thread(target=target, name=name, daemon=True).start()
    except RuntimeError as error:  # the system has no thread left
        ended()
        raise _raised(error) from error
    return await done


def _text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, bytes | bytearray):
        return f"(binary result of {len(value)} bytes)"
    try:
        return render_text(value)
    except (TypeError, ValueError, RecursionError):
        raise ToolRunError(RunKind.RESULT, "its result is no JSON value") from None
