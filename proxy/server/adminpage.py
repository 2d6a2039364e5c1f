"""The page of the admin port: what waits for a person, what is held, what rules did, what was decided lately, and a
playground that explains a call. All of it is escaped.

Names, ids and arguments come from models and clients: nothing of them is markup, and no script runs on the page. What
can be done on it is a form that the page posts to itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape

from proxy.core.batch.approval import Approval
from proxy.core.policy.decide import PolicySet
from proxy.core.policy.rules import ResultRule, Rule
from proxy.core.policy.trail import action_name
from proxy.metrics import HeldBatch, Hits
from proxy.server import playground
from proxy.server.approvalapi import PATH as APPROVALS
from proxy.server.audit import Recent
from proxy.server.logs import timestamp
from proxy.server.playground import Answer

REFRESH_SECONDS = 5
_STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8882; --link: #36c; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 76rem; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; } a { color: var(--link); }
nav a { margin-right: 1rem; }
table { border-collapse: collapse; width: 100%; }
th, td { border-bottom: 1px solid var(--line); padding: .3rem .6rem; text-align: left; vertical-align: top;
  overflow-wrap: anywhere; }
th { font-weight: 600; } .number { font-variant-numeric: tabular-nums; }
pre { background: var(--soft); overflow-x: auto; padding: .8rem 1rem; }
form.play { display: grid; gap: .6rem 1rem; grid-template-columns: repeat(3, 1fr); }
form.play label { display: block; } form.play .wide { grid-column: 1 / -1; }
form.play input, form.play select, form.play textarea { box-sizing: border-box; font: inherit; width: 100%; }
form.play textarea { font-family: ui-monospace, monospace; min-height: 3.2rem; }
.problem { border-left: 4px solid #c33; padding-left: .6rem; }
"""


@dataclass(frozen=True, slots=True)
class Page:
    """What the page shows. `now` is Unix seconds; `live`: it is loaded again every few seconds."""

    policies: PolicySet
    now: float
    tools: Sequence[str] = ()
    recent: Sequence[Recent] = ()
    pending: Sequence[Approval] = ()
    held: Sequence[HeldBatch] = ()
    hits: Mapping[tuple[str, str], Hits] = field(default_factory=dict)
    answer: Answer = field(default_factory=Answer)
    live: bool = False


def render_page(page: Page) -> str:
    """The whole page."""
    parts = (
        ("approvals", "Approvals", _approvals(page)),
        ("held", "Held calls", _held(page)),
        ("decisions", "Latest decisions", _decisions(page)),
        ("policies", "Policies", _policies(page)),
        ("playground", "Playground", _playground(page)),
        ("tools", "Proxy tools", _table(("Tool",), ((name,) for name in page.tools), empty="No proxy tool is loaded.")),
    )
    nav = "".join(f'<a href="#{name}">{title}</a>' for name, title, _ in parts)
    body = "".join(f'<section id="{name}"><h2>{title}</h2>{text}</section>' for name, title, text in parts)
    again = f'<meta http-equiv="refresh" content="{REFRESH_SECONDS}">' if page.live else ""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Sidecall</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"{again}<style>{_STYLE}</style></head><body><h1>Sidecall</h1><nav>{nav}{_live(page)}</nav>{body}</body></html>"
    )


def _live(page: Page) -> str:
    if page.live:
        return f'<a href="/admin/">stop</a>loaded again every {REFRESH_SECONDS} seconds, {_time(page.now)}'
    return f'<a href="/admin/?live">watch</a>as of {_time(page.now)}'


def _time(seconds: float) -> str:
    return escape(timestamp(seconds)[:19].replace("T", " ") + "Z")


def _age(seconds: float) -> str:
    """A time in words that a person compares."""
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{int(seconds // length)} {unit}"
    return f"{int(seconds)} s"


# ---------------------------------------------------------------- tables


def _table(head: Sequence[str], rows: Iterable[Sequence[str | int]], *, empty: str, note: str = "") -> str:
    """A table of texts and whole numbers."""
    return _framed(head, ["".join(map(_cell, row)) for row in rows], empty=empty, note=note)


def _framed(head: Sequence[str], rows: Sequence[str], *, empty: str, note: str = "") -> str:
    if not rows:
        return f"<p>{escape(empty)}</p>"
    titles = "".join(f"<th>{escape(title)}</th>" for title in head)
    lines = "".join(f"<tr>{row}</tr>" for row in rows)
    said = f"<p>{escape(note)}</p>" if note else ""
    return f"{said}<table><thead><tr>{titles}</tr></thead><tbody>{lines}</tbody></table>"


def _cell(value: str | int) -> str:
    return f'<td class="number">{value}</td>' if isinstance(value, int) else f"<td>{escape(value)}</td>"


def _approvals(page: Page) -> str:
    """What waits for a person, each with its buttons."""
    head = ("Tool", "Arguments", "Message", "Rule", "Client", "Waits", "Decision")
    rows = [
        "".join(
            map(
                _cell,
                (a.tool, a.arguments, a.message, f"{a.policy}/{a.rule}", a.client, _age(max(0, page.now - a.created))),
            )
        )
        + f'<td><form method="post" action="{APPROVALS}/{escape(a.id)}"><input name="note" placeholder="note">'
        '<button name="decision" value="approve">Approve</button>'
        '<button name="decision" value="deny">Deny</button></form></td>'
        for a in page.pending
    ]
    return _framed(head, rows, empty="Nothing waits for a person.")


def _held(page: Page) -> str:
    return _table(
        ("Tools", "Calls", "Age", "Batch"),
        ((one.tools, one.count, _age(one.age), one.batch) for one in page.held),
        empty="No held call waits for its result.",
        note="Calls of this process that are deferred, or that run when their client comes back; the oldest first.",
    )


def _decisions(page: Page) -> str:
    rows = [
        (_time(one.at), r.tool, r.decision, f"{r.policy}/{r.rule}" if r.rule else "", r.owner, r.client, r.model, r.api)
        for one in page.recent
        for r in (one.record,)
    ]
    head = ("Time", "Tool", "Decision", "Rule", "Owner", "Client", "Model", "API")
    return _table(head, rows, empty="No call was decided yet.")


def _policies(page: Page) -> str:
    """Every rule with what it did; what no rule decided; rules that were loaded earlier are left out."""
    every: tuple[Rule | ResultRule, ...] = (*page.policies.call_rules, *page.policies.result_rules)
    loaded = {rule.origin.name: rule for rule in every}
    rows: list[tuple[str | int, ...]] = []
    for name in page.policies.rules:
        rule, hits = loaded[name], page.hits.get((name.policy, name.rule), Hits())
        mode = "shadow" if rule.origin.shadow else "enforce"
        rows.append((name.policy, name.rule, action_name(rule), mode, hits.decided, hits.shadow, hits.errors))
    empty = "A policy without rules is loaded." if page.policies.policies else "No policy is loaded."
    undecided = page.hits.get(("", ""), Hits()).decided
    return _table(
        ("Policy", "Rule", "Action", "Mode", "Decided", "In shadow", "Errors"),
        rows,
        empty=empty,
        note="Calls since this process began: decided by a rule, or in shadow mode only counted; errors in evaluation. "
        "Rules that pass calls on unchanged, and rules of results, decide none. "
        f"No rule decided {undecided}, which got defaultAction ({page.policies.default_action}).",
    )


# ---------------------------------------------------------------- the playground


def _playground(page: Page) -> str:
    fields = page.answer.fields
    inputs = "".join(_input(name, fields.get(name, "")) for name in playground.TEXT_FIELDS)
    selects = "".join(_select(name, words, fields.get(name, "")) for name, words in playground.CHOICES.items())
    texts = (
        _textarea("args", "Arguments, as JSON", fields.get("args", "{}"))
        + _textarea("result", "Result, to see what result rules make of it", fields.get("result", ""))
        + _textarea("more", f"More, as JSON: {', '.join(playground.MORE)}", fields.get("more", ""))
    )
    return (
        "<p>How the policies that are loaded would decide a call. Nothing is counted, and nobody is asked: "
        "a limit has counted nothing and an approval is pending, unless <code>answers</code> says otherwise.</p>"
        f'{_answer(page.answer)}<form class="play" method="post" action="{playground.PATH}#playground">'
        f"{inputs}{selects}{texts}<div><button>Explain</button></div></form>"
    )


def _answer(answer: Answer) -> str:
    if answer.problem:
        return f'<p class="problem">{escape(answer.problem)}</p>'
    if answer.text:
        return f"<p>Decision: <strong>{escape(answer.heading)}</strong></p><pre>{escape(answer.text)}</pre>"
    return ""


def _input(name: str, value: str) -> str:
    return f'<label>{name}<input name="{name}" value="{escape(value)}"{" required" if name == "tool" else ""}></label>'


def _select(name: str, words: Sequence[str], value: str) -> str:
    options = "".join(f"<option{' selected' if word == value else ''}>{word}</option>" for word in words)
    return f'<label>{name}<select name="{name}">{options}</select></label>'


def _textarea(name: str, title: str, value: str) -> str:
    # A line break behind the opening tag is no part of the text; without it one of the text's own would be lost.
    return f'<label class="wide">{title}<textarea name="{name}" rows="3">\n{escape(value)}</textarea></label>'
