"""The page of the admin port: what is loaded, what waits for a person, what was decided lately. All of it is escaped.

Names, ids and arguments come from models and clients: nothing of them is markup, and no script runs on the page.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from proxy.core.batch.approval import Approval
from proxy.server.audit import AuditRecord

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 72rem; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; }
th, td { border-bottom: 1px solid #ddd; padding: .3rem .6rem; text-align: left; overflow-wrap: anywhere; }
"""


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], *, empty: str) -> str:
    lines = ["<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows]
    if not lines:
        return f"<p>{escape(empty)}</p>"
    titles = "".join(f"<th>{escape(title)}</th>" for title in head)
    return f"<table><thead><tr>{titles}</tr></thead><tbody>{''.join(lines)}</tbody></table>"


def _approvals(pending: Iterable[Approval]) -> str:
    """What waits for a person, each with its buttons. A button posts a form: no script is needed."""
    rows = [
        "<tr>"
        + "".join(
            f"<td>{escape(cell)}</td>" for cell in (a.tool, a.arguments, a.message, f"{a.policy}/{a.rule}", a.client)
        )
        + f'<td><form method="post" action="/admin/approvals/{escape(a.id)}"><input name="note" placeholder="note">'
        '<button name="decision" value="approve">Approve</button>'
        '<button name="decision" value="deny">Deny</button></form></td></tr>'
        for a in pending
    ]
    if not rows:
        return "<p>Nothing waits for a person.</p>"
    titles = "".join(f"<th>{title}</th>" for title in ("Tool", "Arguments", "Message", "Rule", "Client", "Decision"))
    return f"<table><thead><tr>{titles}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def render_page(
    *,
    policies: Iterable[str],
    tools: Iterable[str],
    recent: Iterable[AuditRecord],
    pending: Iterable[Approval] = (),
) -> str:
    """The whole page."""
    decisions = [(r.tool, r.decision, r.policy, r.rule, r.owner, r.client, r.api, r.call_id) for r in recent]
    head = ("Tool", "Decision", "Policy", "Rule", "Owner", "Client", "API", "Call")
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Sidecall</title>'
        f"<style>{_STYLE}</style></head><body><h1>Sidecall</h1>"
        f"<h2>Approvals</h2>{_approvals(pending)}"
        f"<h2>Policies</h2>{_table(('Policy',), ((name,) for name in policies), empty='No policy is loaded.')}"
        f"<h2>Proxy tools</h2>{_table(('Tool',), ((name,) for name in tools), empty='No proxy tool is loaded.')}"
        f"<h2>Latest decisions</h2>{_table(head, decisions, empty='No call was decided yet.')}"
        "</body></html>"
    )
