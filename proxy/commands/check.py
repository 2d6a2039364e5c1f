"""`sidecall check`: mistakes in configuration and policies, and what is suspicious in them."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from proxy.authoring.seen import unseen
from proxy.checking import Findings, check
from proxy.commands.terminal import Commands, Terminal, counted, tell
from proxy.core.jsontext import Json, render_text
from proxy.errors import Problem


def add_check(commands: Commands) -> None:
    parser = commands.add_parser(
        "check",
        help="look for mistakes in configuration and policies",
        description="Compile configuration and policies without starting anything. Exit status: 0 when they can be "
        "used, 1 for warnings under --strict, 2 for errors.",
    )
    parser.add_argument("paths", metavar="PATH", nargs="+", help="files, folders or globs")
    parser.add_argument("--strict", action="store_true", help="make warnings errors")
    parser.add_argument(
        "--seen",
        metavar="AUDIT.jsonl",
        action="append",
        help="warn of rules that are for no recorded call, and of recorded tools that no rule names",
    )
    parser.add_argument("--output", choices=("text", "json"), default="text", help="(text)")
    parser.set_defaults(command=_check)


def _check(options: argparse.Namespace) -> int:
    findings = check(options.paths, os.environ)
    warnings = [*findings.warnings]
    if options.seen and not findings.errors:
        terminal = Terminal(os.environ)
        warnings += unseen(findings.sets, options.seen, lambda part: terminal.progress(f"reading: {part:.0%}"))
        terminal.done()
    if options.output == "json":
        print(render_text({"errors": _objects(findings.errors), "warnings": _objects(warnings)}))
    else:
        _say(findings, warnings)
    if findings.errors:
        return 2
    return int(bool(warnings) and options.strict)


def _say(findings: Findings, warnings: Sequence[Problem]) -> None:
    tell(findings.errors)
    tell(warnings, prefix="warning: ")
    if not findings.errors:
        sys.stdout.write(
            f"{counted(findings.configurations, 'configuration')}, {counted(findings.policies, 'policy', 'policies')}: "
            f"no errors, {counted(len(warnings), 'warning')}\n"
        )


def _objects(problems: Sequence[Problem]) -> list[Json]:
    return [{"file": p.file, "line": p.line, "column": p.column, "message": p.message} for p in problems]
