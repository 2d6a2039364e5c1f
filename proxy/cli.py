"""The command line.

Rules: each command is a function from its options to an exit status: 0 well, 1 findings or a failure while
running, 2 what is given cannot be used. Problems go to standard error, one a line; nobody sees a traceback for
a mistake of theirs. Must not know how anything is done.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence

from proxy import __version__
from proxy.commands.check import add_check
from proxy.commands.explain import add_explain
from proxy.commands.injector import add_injector
from proxy.commands.replay import add_replay
from proxy.commands.schema import add_schema
from proxy.commands.terminal import Commands, tell
from proxy.commands.test import add_test
from proxy.config import Config
from proxy.configfile import Overrides, load_config, parse_address
from proxy.demo import server
from proxy.errors import ConfigError, Problem
from proxy.server.app import serve

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_UNUSABLE = 2

_DEMO_ADDRESS = "127.0.0.1:15481"
_EXAMPLES = """\
examples:
  sidecall serve --upstream https://api.openai.com/v1
      a transparent proxy on 127.0.0.1:15480; metrics and health on 127.0.0.1:15490
  sidecall serve --config sidecall.yaml
      everything that the file says; the policies are loaded again when they change
  sidecall serve --policies policies/sql/ --upstream http://127.0.0.1:15481/v1
      govern tool calls by the policies of a folder
  sidecall check --strict sidecall.yaml policies/
      look for mistakes in configuration and policies, without starting anything
  sidecall test policies/ --coverage
      run the test cases of policies
  sidecall explain --call call.json --policies policies/
      show which rules a call meets, what each compares, and what is decided
  sidecall replay audit.jsonl --policies policies/
      show which recorded calls would be decided otherwise
  sidecall demo-upstream
      a scripted endpoint without key or model, to try it out
"""
_ENVIRONMENT = """\
environment:
  SIDECALL_UPSTREAM, SIDECALL_LISTEN, SIDECALL_ADMIN, SIDECALL_POLICIES (parted by ':') and SIDECALL_STATE
  override the file; flags override them.
"""

Command = Callable[[argparse.Namespace], int]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the exit status."""
    parser = build_parser()
    options = parser.parse_args(arguments)
    command: Command | None = getattr(options, "command", None)
    if command is None:
        parser.print_help(sys.stderr)
        return EXIT_UNUSABLE
    try:
        return command(options)
    except ConfigError as error:
        tell(error.problems)
        return EXIT_UNUSABLE


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="sidecall",
        description="A sidecar proxy that governs the tool calls of AI agents.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"sidecall {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    _add_serve(commands)
    add_check(commands)
    add_test(commands)
    add_explain(commands)
    add_replay(commands)
    add_schema(commands)
    add_injector(commands)
    _add_demo(commands)
    return parser


# ---------------------------------------------------------------- serve


def _add_serve(commands: Commands) -> None:
    parser = commands.add_parser(
        "serve",
        help="run the proxy",
        description="Run the proxy until SIGTERM. SIGHUP loads policies, clients and tools again.",
        epilog=_ENVIRONMENT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--config", metavar="FILE", help="the configuration; without it every setting has its default")
    parser.add_argument("--upstream", metavar="URL", help="the OpenAI-compatible endpoint, such as https://host/v1")
    parser.add_argument("--listen", metavar="HOST:PORT", help="where clients call (127.0.0.1:15480)")
    parser.add_argument("--admin", metavar="HOST:PORT", help="health, metrics and the admin page (127.0.0.1:15490)")
    parser.add_argument(
        "--policies", metavar="PATH", nargs="+", action="extend", help="policy files, folders or globs, in order"
    )
    parser.add_argument("--state", metavar="URL", help="memory: or sqlite:PATH (sqlite: in the user's state folder)")
    parser.set_defaults(command=_serve)


def _serve(options: argparse.Namespace) -> int:
    flags = Overrides(
        upstream=options.upstream,
        listen=options.listen,
        admin=options.admin,
        policies=tuple(options.policies) if options.policies is not None else None,
        state=options.state,
    )

    def read() -> Config:
        return load_config(options.config, environ=os.environ, flags=flags)

    return serve(read(), reread=read)


# ---------------------------------------------------------------- demo-upstream


def _add_demo(commands: Commands) -> None:
    parser = commands.add_parser(
        "demo-upstream",
        help="run a scripted endpoint, to try things out",
        description="Run an OpenAI-compatible endpoint that answers from a script: no key, no model.",
    )
    parser.add_argument("--listen", metavar="HOST:PORT", default=_DEMO_ADDRESS, help=f"({_DEMO_ADDRESS})")
    parser.set_defaults(command=_demo)


def _demo(options: argparse.Namespace) -> int:
    try:
        host, port = parse_address(options.listen)
    except ValueError as error:
        raise ConfigError([Problem("--listen", 0, 0, str(error))]) from error
    try:
        server.run(host, port)
    except OSError as error:
        print(f"cannot listen on {options.listen}: {error.strerror or error}", file=sys.stderr)
        return EXIT_FAILED
    return EXIT_OK
