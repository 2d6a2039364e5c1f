"""Proxy tools that are Python functions."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import sys
import threading
from collections.abc import Awaitable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from proxy.core.jsontext import Json, Object, parse_exact
from proxy.tools.python import load_function, run_function
from proxy.tools.spec import PythonFunction, RunKind, ToolRun, ToolRunError


@pytest.fixture
def module() -> Iterator[ModuleType]:
    """A module of tools that can be imported as `my_tools`."""
    made = ModuleType("my_tools")
    sys.modules["my_tools"] = made
    yield made
    del sys.modules["my_tools"]


def loaded(module: ModuleType, function: object) -> PythonFunction:
    module.function = function  # type: ignore[attr-defined]  # the module is made for this
    return load_function("my_tools:function")


class Ended:
    count = 0

    def __call__(self) -> None:
        self.count += 1


async def run(function: PythonFunction, arguments: Object | None = None) -> str:
    ended = Ended()
    call = ToolRun("call_1", arguments or {}, "team-a", "key-1", "", "tenant")
    try:
        return await run_function(function, call, ended=ended)
    finally:
        assert ended.count == 1


async def failure(function: PythonFunction, arguments: Object | None = None) -> tuple[RunKind, str]:
    with pytest.raises(ToolRunError) as caught:
        await run(function, arguments)
    return caught.value.kind, caught.value.reason


# ---------------------------------------------------------------- loading


@pytest.mark.parametrize("target", ["", "my_tools", "my_tools:", ":f", "my tools:f", "my_tools:f()", "my_tools:f:g"])
def test_a_target_is_a_module_and_a_function(target: str) -> None:
    """The message shows the form."""
    with pytest.raises(ValueError, match="MODULE:FUNCTION"):
        load_function(target)


def test_a_module_that_is_not_there_is_told_by_name(module: ModuleType) -> None:
    """So is one that a module of tools needs and does not find."""
    with pytest.raises(ValueError, match=r"no_such_module cannot be imported .*PYTHONPATH"):
        load_function("no_such_module:f")
    with pytest.raises(ValueError, match="my_tools has no f"):
        load_function("my_tools:f")


@pytest.mark.parametrize("text", ["raise RuntimeError('hunter2')", "import no_such_module", "def f(:"])
def test_a_module_that_fails_is_told_without_what_it_said(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its words may hold anything."""
    (tmp_path / "failing_tools.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ValueError, match="failing_tools cannot be imported") as caught:
        load_function("failing_tools:f")
    assert "hunter2" not in str(caught.value)


def test_what_cannot_be_called_by_name_is_refused(module: ModuleType) -> None:
    """Arguments have names and no positions."""

    def positional(a: int, /) -> int:
        return a

    with pytest.raises(ValueError, match="positional-only"):
        loaded(module, positional)
    with pytest.raises(ValueError, match="cannot be called"):
        loaded(module, 7)
    with pytest.raises(ValueError, match="does not tell its parameters"):
        loaded(module, dict)


# ---------------------------------------------------------------- arguments


def add(a: int, b: int = 1) -> int:
    return a + b


async def test_parameters_are_filled_by_name(module: ModuleType) -> None:
    """Defaults are the function's own."""
    function = loaded(module, add)
    assert await run(function, {"b": 3, "a": 2}) == "5"
    assert await run(function, {"a": 2}) == "3"
    assert await failure(function, {"b": 2}) == (RunKind.ARGUMENTS, "the argument a is missing")
    assert await failure(function, {"a": 1, "c": 2}) == (RunKind.ARGUMENTS, "it takes no argument c")


async def test_a_function_that_takes_any_name_gets_all(module: ModuleType) -> None:
    """As it says itself."""

    def anything(**given: object) -> object:
        return given

    assert await run(loaded(module, anything), {"x": 1, "context": 2}) == '{"x":1,"context":2}'


async def test_a_parameter_for_the_context_gets_it(module: ModuleType) -> None:
    """Also where annotations are text; the model cannot fill it."""

    def annotated(q: str, context: ToolRun) -> str:
        return f"{q} for {context.client}"

    async def unknown_here(context: Unknown.ToolRun) -> str:  # type: ignore[name-defined]  # noqa: F821
        return str(context.call_id)

    def plain(context: str) -> str:
        return context

    def unknown_kind(context: Unknown.Kind) -> str:  # type: ignore[name-defined]  # noqa: F821
        return str(context)

    def open_to_all(context: ToolRun, **more: object) -> str:
        return context.client

    function = loaded(module, annotated)
    assert await run(function, {"q": "x"}) == "x for team-a"
    assert await failure(function, {"q": "x", "context": {}}) == (RunKind.ARGUMENTS, "it takes no argument context")
    assert await run(loaded(module, unknown_here)) == "call_1"
    assert await run(loaded(module, plain), {"context": "words"}) == "words"
    assert await run(loaded(module, unknown_kind), {"context": "words"}) == "words"
    assert await failure(loaded(module, open_to_all), {"context": "forged"}) == (
        RunKind.ARGUMENTS,
        "it takes no argument context",
    )


# ---------------------------------------------------------------- results


class Unserializable:
    pass


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("text", "text"),
        ("", ""),
        (None, ""),
        (5, "5"),
        (True, "true"),
        ({"sum": 5, "é": [None]}, '{"sum":5,"é":[null]}'),
        (1 << 70, str(1 << 70)),
        ({1: "a"}, '{"1":"a"}'),
        (float("nan"), "null"),
        (b"\x89PNG", "(binary result of 4 bytes)"),
    ],
)
async def test_text_is_given_as_it_is_and_the_rest_as_json(value: object, text: str, module: ModuleType) -> None:
    """Nothing is an empty text."""
    assert await run(loaded(module, lambda: value)) == text


@pytest.mark.parametrize("value", [Unserializable(), {"a": {Unserializable()}}])
async def test_a_result_that_json_cannot_hold_is_a_failure(value: object, module: ModuleType) -> None:
    """Nobody sees the representation of an object."""
    assert await failure(loaded(module, lambda: value)) == (RunKind.RESULT, "its result is no JSON value")


async def test_numbers_keep_their_spelling(module: ModuleType) -> None:
    """What a tool gives back as it got it is what the model wrote."""
    arguments = parse_exact('{"x": 1.10}').value
    assert isinstance(arguments, dict)

    def same(x: Json) -> Json:
        return {"x": x}

    assert await run(loaded(module, same), arguments) == '{"x":1.10}'


# ---------------------------------------------------------------- running


async def test_a_sync_function_runs_beside_the_loop(module: ModuleType) -> None:
    """In a thread of its own."""
    going, go = threading.Event(), threading.Event()

    def wait() -> str:
        going.set()
        return "went" if go.wait(5) else "stuck"

    task = asyncio.create_task(run(loaded(module, wait)))
    while not going.is_set():
        await asyncio.sleep(0)
    go.set()
    assert await task == "went"


async def test_an_async_function_runs_on_the_loop(module: ModuleType) -> None:
    """Also as an object, and where a sync function gives something to await."""

    async def here() -> str:
        await asyncio.sleep(0)
        return threading.current_thread().name

    class Callable:
        async def __call__(self) -> str:
            return await here()

    def makes() -> Awaitable[str]:
        return here()

    for function in (here, Callable(), makes, functools.partial(here)):
        assert await run(loaded(module, function)) == threading.current_thread().name


def raising(error: BaseException) -> Any:
    raise error


@pytest.mark.parametrize(
    "error",
    [ValueError("hunter2"), SystemExit("hunter2"), StopIteration("hunter2"), TimeoutError("hunter2"), OSError()],
)
async def test_what_a_function_raises_is_told_by_its_class_alone(error: BaseException, module: ModuleType) -> None:
    """In a thread and on the loop; even what would end a program ends the call only."""

    async def on_the_loop() -> None:
        raise error

    expected = (RunKind.EXCEPTION, f"it raised {type(error).__name__}")
    assert await failure(loaded(module, lambda: raising(error))) == expected
    if not isinstance(error, StopIteration):
        assert await failure(loaded(module, on_the_loop)) == expected


async def test_a_function_that_cancels_itself_has_failed(module: ModuleType) -> None:
    """Only a cancelled run is one."""

    async def cancelled() -> None:
        raise asyncio.CancelledError

    assert await failure(loaded(module, cancelled)) == (RunKind.EXCEPTION, "it raised CancelledError")


async def test_a_cancelled_run_of_an_async_function_ends(module: ModuleType) -> None:
    """The function is told, and nothing of it runs on."""
    started = asyncio.Event()

    async def wait() -> None:
        started.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(run(loaded(module, wait)))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_cancelled_run_of_a_sync_function_ends_when_its_thread_does(module: ModuleType) -> None:
    """A thread cannot be stopped: its place is taken until it ends by itself."""
    going, go, ended = threading.Event(), threading.Event(), asyncio.Event()

    def wait() -> None:
        going.set()
        go.wait(5)

    call = ToolRun("call_1", {}, "", "", "", "")
    task = asyncio.create_task(run_function(loaded(module, wait), call, ended=ended.set))
    while not going.is_set():
        await asyncio.sleep(0)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    assert task.cancelled()
    assert not ended.is_set()
    go.set()
    await asyncio.wait_for(ended.wait(), 5)


async def test_a_thread_that_cannot_be_had_is_a_failure(module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system may have none left."""

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert await failure(loaded(module, lambda: 1)) == (RunKind.EXCEPTION, "it raised RuntimeError")
