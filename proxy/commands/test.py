"""`sidecall test`: run the cases of test documents, and show where decisions differ from what is expected."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from difflib import unified_diff

from proxy.authoring.testing import CaseReport, Report, run_tests
from proxy.authoring.testreports import difference_line, report_junit, report_object, shown
from proxy.commands.explain import say_explanation
from proxy.commands.terminal import Commands, Terminal, Tone, counted
from proxy.core.exchange.cases import Difference
from proxy.core.jsontext import Json, render_text
from proxy.core.policy.casemodel import KIND
from proxy.errors import Problem

_SHORT = 60
_EPILOG = """\
examples:
  sidecall test policies/                      every test document, against the policies beside it
  sidecall test policies/ --coverage --strict  rules that no case makes act, or that no case nearly meets, fail
  sidecall test sidecall.yaml tests/           the policies of a configuration, as one set
  sidecall test . --output junit > report.xml  for continuous integration
"""


def add_test(commands: Commands) -> None:
    parser = commands.add_parser(
        "test",
        help="run the test cases of policies",
        description="Run the ToolPolicyTest documents under the paths: each against the policies in its folder, or "
        "where there are none against all under the paths. Exit status: 0 when all pass, 1 when one fails, 2 when "
        "something cannot be read.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("paths", metavar="PATH", nargs="+", help="files, folders or globs of policies and tests")
    parser.add_argument("--coverage", action="store_true", help="name the rules that no case makes act")
    parser.add_argument("--strict", action="store_true", help="with --coverage: such rules fail, and near misses count")
    parser.add_argument("--output", choices=("text", "json", "junit"), default="text", help="(text)")
    parser.set_defaults(command=_test)


def _test(options: argparse.Namespace) -> int:
    report = run_tests(options.paths, os.environ)
    coverage = report.coverage
    uncovered = bool(coverage.unreached or coverage.without_near_miss)
    match options.output:
        case "json":
            print(render_text(report_object(report, coverage=options.coverage)))
        case "junit":
            print(report_junit(report))
        case _:
            _say(Terminal(os.environ), report, options)
    strict = options.coverage and options.strict
    return int(bool(report.failed) or not report.cases or (strict and uncovered))


def _say(terminal: Terminal, report: Report, options: argparse.Namespace) -> None:
    for case in report.failed:
        _say_failure(terminal, case)
    if options.coverage:
        _say_rules(terminal, report.coverage.unreached, "no case makes it act")
        if options.strict:
            _say_rules(terminal, report.coverage.without_near_miss, "no case nearly meets it")
    if not report.cases:
        terminal.say(f"there is no case in what was given: expected documents of kind {KIND}, beside the policies")
    failed = len(report.failed)
    files = len({case.place.file for case in report.cases})
    told = f"{counted(len(report.cases), 'case')} in {counted(files, 'file')}: "
    told += f"{len(report.cases) - failed:,} passed, {failed:,} failed"
    if options.coverage:
        reached = report.coverage.rules - len(report.coverage.unreached)
        told += f"; {reached:,} of {counted(report.coverage.rules, 'rule')} reached"
    terminal.say(told, Tone.BAD if failed or not report.cases else Tone.GOOD)


def _say_failure(terminal: Terminal, case: CaseReport) -> None:
    terminal.say(f"FAILED {_place(case.place)}: {case.document}: {case.name}", Tone.BAD)
    for difference in case.outcome.differences:
        for line, tone in _lines(difference):
            terminal.say(f"    {line}", tone)
    for explanation in case.outcome.explanations:
        say_explanation(terminal, explanation, indent="    ", all_rules=False)
    terminal.say()


def _say_rules(terminal: Terminal, rules: Sequence[Problem], why: str) -> None:
    for place in rules:
        terminal.say(f"{_place(place)}: {place.message}: {why}", Tone.CHANGED)


def _place(place: Problem) -> str:
    return f"{place.file}:{place.line}:{place.column}"


def _lines(difference: Difference) -> list[tuple[str, Tone]]:
    """What was expected and what came: on one line where that is short, else as a diff."""
    line = difference_line(difference)
    longest = max(len(shown(difference.expected)), len(shown(difference.got)))
    if longest <= _SHORT or difference.key.rpartition(".")[2] in ("contains", "lacks"):
        return [(line, Tone.PLAIN)]
    found = list(unified_diff(_spread(difference.expected), _spread(difference.got), lineterm="", n=1))[3:]
    tones = {"-": Tone.GOOD, "+": Tone.BAD}
    return [
        (f"{difference.key}: - expected, + got", Tone.PLAIN),
        *((f"  {one}", tones.get(one[:1], Tone.DIM)) for one in found),
    ]


def _spread(value: Json, indent: str = "") -> list[str]:
    """A value on several lines: keys and items one each."""
    if isinstance(value, str):
        return value.splitlines() or [""]
    if not isinstance(value, dict | list) or not value:
        return [render_text(value)]
    pairs = value.items() if isinstance(value, dict) else (("-", item) for item in value)
    lines = []
    for key, inner in pairs:
        if isinstance(inner, dict | list) and inner:
            lines += [f"{indent}{key}:", *_spread(inner, f"{indent}  ")]
        else:
            lines.append(f"{indent}{key}: {render_text(inner)}")
    return lines
