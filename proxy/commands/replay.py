"""`sidecall replay`: which recorded calls would be decided otherwise."""

from __future__ import annotations

import argparse
import os
from collections import Counter
from datetime import UTC, datetime

from proxy.authoring.replaying import Example, Flip, Replay, replay, replay_object
from proxy.authoring.sources import load_set
from proxy.commands.explain import add_policies, policy_paths
from proxy.commands.terminal import Commands, Terminal, Tone, counted
from proxy.core.jsontext import render_text

_MOST_FLIPS = 50
_MOST_NAMES = 10
_EPILOG = """\
examples:
  sidecall replay audit.jsonl --policies policies/              against what was decided then
  sidecall replay audit.jsonl --policies new/ --against old/    one set against another
An audit shows arguments with audit.arguments: full; calls whose decision needs what a record left out are counted as
undecidable. Limits are counted anew over the records; nobody is asked anything.
Exit status: 0 when all that can be decided is decided as before, 1 when something is not, or nothing could be decided,
2 when something cannot be read.
"""


def add_replay(commands: Commands) -> None:
    parser = commands.add_parser(
        "replay",
        help="show which recorded calls would be decided otherwise",
        description="Judge the calls of audit files again, and show which would be decided otherwise.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "audits", metavar="AUDIT.jsonl", nargs="+", help="audit files, as they are or of gzip; - is standard input"
    )
    add_policies(parser)
    parser.add_argument(
        "--against", metavar="PATH", nargs="+", action="extend", help="compare with these policies, not with the record"
    )
    parser.add_argument("--why", action="store_true", help="explain the examples")
    parser.add_argument("--output", choices=("text", "json"), default="text", help="(text)")
    parser.set_defaults(command=_replay)


def _replay(options: argparse.Namespace) -> int:
    terminal = Terminal(os.environ)
    policies = load_set(policy_paths(options, os.environ), os.environ)
    against = load_set(options.against, os.environ) if options.against else None
    found = replay(
        options.audits,
        policies,
        against,
        why=options.why,
        progress=lambda part: terminal.progress(f"replaying: {part:.0%}"),
    )
    terminal.done()
    if options.output == "json":
        print(render_text(replay_object(found)))
    else:
        _say(terminal, found)
    return 0 if found.is_well else 1


def _say(terminal: Terminal, found: Replay) -> None:
    for flip, count in found.flips.most_common(_MOST_FLIPS):
        terminal.say(f"{count:>10,}  {_told(flip)}", Tone.CHANGED)
        for example in found.examples.get(flip, ()):
            _say_example(terminal, example)
    if len(found.flips) > _MOST_FLIPS:
        terminal.say(f"{'':>10}  and {counted(len(found.flips) - _MOST_FLIPS, 'more kind')} of difference")
    if found.flipped:
        _say_names(terminal, "tool", found.tools)
        _say_names(terminal, "client", found.clients)
    for what, count in found.undecidable.most_common():
        terminal.say(f"{count:>10,}  undecidable: a rule asks for what was not recorded ({what})", Tone.DIM)
    if found.unreadable:
        terminal.say(f"{found.unreadable:>10,}  records that cannot be read", Tone.BAD)
    told = f"{counted(found.calls, 'call')}: {found.flipped:,} decided otherwise, "
    told += f"{found.decided - found.flipped:,} as before, {found.undecidable.total():,} undecidable"
    terminal.say(told, Tone.GOOD if found.is_well else Tone.BAD)


def _told(flip: Flip) -> str:
    before, after = flip
    if before.decision == after.decision:
        return f"{before} → {after}, with another outcome"
    return f"{before} → {after}"


def _say_example(terminal: Terminal, example: Example) -> None:
    when = datetime.fromtimestamp(example.time, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    parts = [when, example.call_id, example.client, example.tool, example.args]
    terminal.say(f"{'':>12}{' '.join(part for part in parts if part)}", Tone.DIM)
    for line in example.why:
        terminal.say(f"{'':>14}{line.text}")


def _say_names(terminal: Terminal, what: str, counts: Counter[str]) -> None:
    names = [f"{name or '(none)'} {count:,}" for name, count in counts.most_common(_MOST_NAMES)]
    more = [f"and {len(counts) - _MOST_NAMES:,} more"] if len(counts) > _MOST_NAMES else []
    terminal.say(f"by {what}: {', '.join([*names, *more])}")
