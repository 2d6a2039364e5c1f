"""An MCP server that is a command: its process, and messages as lines on its standard input and output.

Rules: the process gets the configured variables and PATH, and nothing else of our environment. It leads a group of
its own, which ends with it: first its input is closed, then the group is asked to end, then killed. A line is read
up to a bound. A message that the process certainly never had is answered as such, so that its call may be sent
again. What it writes to standard error is heard, not passed on: ours is a log of JSON lines.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import ErrorData, JSONRPCError, JSONRPCRequest, jsonrpc_message_adapter

from proxy.tools.mcp_spec import Heard, Lost, McpCommand
from proxy.tools.spec import RunKind, ToolRunError

UNDELIVERED = -32097
"""The code of an answer that we give in a server's place: it never had the message."""
MESSAGE_BYTES = 8 << 20
"""The largest message that is read."""
_GRACE = 1.0
_QUEUE = 64
_LINE_SHOWN = 2000

Incoming = MemoryObjectSendStream[SessionMessage | Exception]
Streams = tuple[MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]]


@asynccontextmanager
async def run_command(command: McpCommand, *, lost: Lost, heard: Heard) -> AsyncIterator[Streams]:
    """A server's process, from its start to its end. Raises OSError; in the end ToolRunError if it ended by itself."""
    process = await _Process.start(command)
    incoming, received = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    sent, outgoing = anyio.create_memory_object_stream[SessionMessage](_QUEUE)
    try:
        async with anyio.create_task_group() as group, received, sent:
            group.start_soon(_read, process, incoming, lost)
            group.start_soon(partial(_write, process, outgoing, incoming=incoming, lost=lost))
            group.start_soon(_hear, process, heard)
            try:
                yield received, sent
            finally:
                lost()
                with anyio.CancelScope(shield=True):
                    await process.end()
                group.cancel_scope.cancel()
    except Exception as error:
        if process.ended_by_itself:
            raise process.ended() from error
        raise
    if process.ended_by_itself:
        raise process.ended()


class _Pipes(asyncio.subprocess.SubprocessStreamProtocol):
    """The pipes of a process, and its end. (`Process.wait` also waits for pipes, which descendants may hold.)"""

    def __init__(self) -> None:
        super().__init__(MESSAGE_BYTES, asyncio.get_running_loop())
        self.exited = asyncio.Event()

    def process_exited(self) -> None:
        super().process_exited()
        self.exited.set()


@dataclass(slots=True)
class _Process:
    """`ended_by_itself`: it was gone before anybody asked it to go."""

    transport: asyncio.SubprocessTransport
    protocol: _Pipes
    output_ended: bool = False
    ended_by_itself: bool = False
    writing: asyncio.Lock = field(default_factory=asyncio.Lock)

    @classmethod
    async def start(cls, command: McpCommand) -> _Process:
        loop = asyncio.get_running_loop()
        transport, protocol = await loop.subprocess_exec(
            _Pipes,
            *command.words,
            env=_environment(command),
            cwd=command.folder,
            start_new_session=True,
        )
        return cls(transport, protocol)

    @property
    def status(self) -> int | None:
        return self.transport.get_returncode()

    @property
    def input(self) -> asyncio.StreamWriter:
        assert self.protocol.stdin is not None
        return self.protocol.stdin

    @property
    def output(self) -> asyncio.StreamReader:
        assert self.protocol.stdout is not None
        return self.protocol.stdout

    @property
    def errors(self) -> asyncio.StreamReader:
        assert self.protocol.stderr is not None
        return self.protocol.stderr

    def ended(self) -> ToolRunError:
        return ToolRunError(RunKind.CONNECT, f"its command ended with status {self.status}")

    async def end(self) -> None:
        """Close its input, then ask the group to end, then kill what is left of it."""
        if self.output_ended:  # it is on its way already
            self.ended_by_itself = await self._is_gone(within=_GRACE)
        self.input.close()
        if not await self._is_gone(within=_GRACE):
            self._signal(signal.SIGTERM)
            await self._is_gone(within=_GRACE)
        self._signal(signal.SIGKILL)
        await self._is_gone(within=_GRACE)
        self.transport.close()

    async def _is_gone(self, *, within: float) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within):
                await self.protocol.exited.wait()
        return self.protocol.exited.is_set()

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.transport.get_pid(), number)


def _environment(command: McpCommand) -> dict[str, str]:
    """Without PATH a command finds neither itself nor others. Everything else is named where it is wanted."""
    path = {"PATH": os.environ["PATH"]} if "PATH" in os.environ else {}
    return path | {name: value() for name, value in command.env}


async def _read(process: _Process, incoming: Incoming, lost: Lost) -> None:
    async with incoming:
        try:
            while line := await process.output.readline():
                with contextlib.suppress(ValueError):  # what is no message is not for us
                    message = jsonrpc_message_adapter.validate_json(line, by_name=False)
                    await incoming.send(SessionMessage(message))
            process.output_ended = True
        except (ValueError, OSError):  # a line beyond the bound; a broken pipe
            pass
        except (anyio.ClosedResourceError, anyio.BrokenResourceError):
            return  # nobody reads any more: the session is ending
        finally:
            lost()
        process.input.close()
        async with process.writing:  # what is not written any more is answered before all else ends
            pass


async def _write(
    process: _Process, outgoing: MemoryObjectReceiveStream[SessionMessage], *, incoming: Incoming, lost: Lost
) -> None:
    async with outgoing:
        async for sent in outgoing:
            text = sent.message.model_dump_json(by_alias=True, exclude_unset=True)
            async with process.writing:
                try:
                    process.input.write(text.encode() + b"\n")
                    if process.input.is_closing():  # at once: there is no reader
                        raise BrokenPipeError
                    await process.input.drain()
                except OSError:  # the line did not get through whole, so it was never read as a message
                    lost()
                    await _answer_undelivered(sent, incoming)


async def _answer_undelivered(sent: SessionMessage, incoming: Incoming) -> None:
    if isinstance(sent.message, JSONRPCRequest):
        error = ErrorData(code=UNDELIVERED, message="not delivered")
        answer = JSONRPCError(jsonrpc="2.0", id=sent.message.id, error=error)
        with contextlib.suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
            await incoming.send(SessionMessage(answer))


async def _hear(process: _Process, heard: Heard) -> None:
    """Line by line; a line that does not end is heard in pieces."""
    rest = b""
    while piece := await process.errors.read(1 << 16):
        *lines, rest = (rest + piece).split(b"\n")
        if len(rest) > _LINE_SHOWN:
            lines, rest = [*lines, rest], b""
        for line in lines:
            if line.strip():
                heard(line[:_LINE_SHOWN].decode("utf-8", "replace").rstrip())
    if rest.strip():
        heard(rest.decode("utf-8", "replace").rstrip())
