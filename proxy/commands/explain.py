"""`sidecall explain`: which rules a call meets, what each compares, and what comes of it."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping

from proxy.authoring.calls import explain_call, read_call
from proxy.authoring.sources import load_set
from proxy.commands.terminal import Commands, Terminal, Tone
from proxy.configfile import environment_overrides
from proxy.core.jsontext import render_text
from proxy.core.policy.explaining import Explanation, ResultExplanation, lines_of, object_of
from proxy.core.policy.trail import Outcome
from proxy.errors import ConfigError, Problem

_EPILOG = """\
examples:
  sidecall explain --call call.json --policies policies/
  echo '{"tool": "search", "args": {"limit": 99}}' | sidecall explain --call - --policies sidecall.yaml
FILE holds {"tool", "args"} and may hold model, api, client, headers, user, metadata, declared, owner, namespace,
answers, and with "result" the text that the tool gave back.
"""
_TONES = {
    Outcome.SKIPPED: Tone.DIM,
    Outcome.UNREACHED: Tone.DIM,
    Outcome.PASSED: Tone.PLAIN,
    Outcome.CHANGED: Tone.CHANGED,
    Outcome.DEFERRED: Tone.CHANGED,
    Outcome.APPROVED: Tone.GOOD,
    Outcome.ENDED: Tone.STRONG,
    Outcome.FAILED: Tone.BAD,
}


def add_explain(commands: Commands) -> None:
    parser = commands.add_parser(
        "explain",
        help="show how a call is decided, and why",
        description="Show which rules a call meets, what each compares, the first difference, and the decision.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--call", metavar="FILE", required=True, help="the call, in JSON or YAML; - is standard input")
    add_policies(parser)
    parser.add_argument("--output", choices=("text", "json"), default="text", help="(text)")
    parser.set_defaults(command=_explain)


def add_policies(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--policies",
        metavar="PATH",
        nargs="+",
        action="extend",
        help="policy files, folders or globs, or a configuration that names them (SIDECALL_POLICIES)",
    )


def policy_paths(options: argparse.Namespace, environ: Mapping[str, str]) -> list[str]:
    """The paths that are given, or those of the environment. Raises ConfigError."""
    paths = options.policies or environment_overrides(environ).policies
    if not paths:
        raise ConfigError([Problem("--policies", 0, 0, "expected the policies to decide by, or SIDECALL_POLICIES")])
    return list(paths)


def _explain(options: argparse.Namespace) -> int:
    policies = load_set(policy_paths(options, os.environ), os.environ)
    explanation = explain_call(policies, read_call(options.call), path=options.call)
    if options.output == "json":
        print(render_text(object_of(explanation)))
    else:
        say_explanation(Terminal(os.environ), explanation)
    return 0


def say_explanation(
    terminal: Terminal, explanation: Explanation | ResultExplanation, *, indent: str = "", all_rules: bool = True
) -> None:
    """The words of an explanation, step by step."""
    for line in lines_of(explanation, all_rules=all_rules):
        terminal.say(f"{indent}{line.text}", Tone.PLAIN if line.outcome is None else _TONES[line.outcome])
