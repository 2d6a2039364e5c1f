"""The page of the admin port: what is loaded, and what was decided lately. Everything on it is escaped.

Names, ids and arguments come from models and clients: nothing of them is markup, and no script runs on the page.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

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


def render_page(*, policies: Iterable[str], tools: Iterable[str], recent: Iterable[AuditRecord]) -> str:
    """The whole page."""
    decisions = [(r.tool, r.decision, r.policy, r.rule, r.owner, r.client, r.api, r.call_id) for r in recent]
    head = ("Tool", "Decision", "Policy", "Rule", "Owner", "Client", "API", "Call")
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Sidecall</title>'
        f"<style>{_STYLE}</style></head><body><h1>Sidecall</h1>"
        f"<h2>Policies</h2>{_table(('Policy',), ((name,) for name in policies), empty='No policy is loaded.')}"
        f"<h2>Proxy tools</h2>{_table(('Tool',), ((name,) for name in tools), empty='No proxy tool is loaded.')}"
        f"<h2>Latest decisions</h2>{_table(head, decisions, empty='No call was decided yet.')}"
        "</body></html>"
    )
