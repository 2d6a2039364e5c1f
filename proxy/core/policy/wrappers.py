"""The wrapper that some models put around parallel calls: what is in it, and one verdict out of several.

What cannot be read in a wrapper is a call without a name, which meets every rule that can hold. How calls are
judged is not known here.
"""

from __future__ import annotations

from dataclasses import replace

from proxy.core.calls import ToolCall
from proxy.core.jsontext import Json, render_text
from proxy.core.policy.failures import EvaluationError
from proxy.core.policy.verdicts import Verdict
from proxy.core.policy.views import CallView


def together(verdicts: list[Verdict], text: str | None) -> Verdict:
    """One verdict: held whole when the last of them is, since judging stops there; `text` is the wrapper's own."""
    shadows = tuple(dict.fromkeys(shadow for verdict in verdicts for shadow in verdict.shadows))
    errors = tuple(dict.fromkeys(error for verdict in verdicts for error in verdict.errors))
    approvals = tuple(one for verdict in verdicts for one in verdict.approvals)
    last = verdicts[-1]
    if last.held:
        return replace(last, shadows=shadows, errors=errors, approvals=approvals)
    named = next((verdict for verdict in verdicts if verdict.rule), last)
    deferred = any(verdict.deferred for verdict in verdicts)
    return replace(named, text=text, deferred=deferred, shadows=shadows, errors=errors, approvals=approvals)


def calls_in_wrapper(view: CallView) -> list[ToolCall]:
    """The calls in a wrapper, at least one."""
    wrapper = view.subject.call
    try:
        uses = view.arguments().get("tool_uses")
    except EvaluationError:
        uses = None
    if view.is_free_text or not isinstance(uses, list) or not uses:
        return [replace(wrapper, name="", namespace="")]
    return [_inner(wrapper, use) for use in uses]


def _inner(wrapper: ToolCall, use: Json) -> ToolCall:
    fields = use if isinstance(use, dict) else {}
    name, parameters = fields.get("recipient_name"), fields.get("parameters", {})
    text = parameters if isinstance(parameters, str) else render_text(parameters)
    return replace(
        wrapper,
        name=name if isinstance(name, str) else "",
        namespace="",
        text=text,
        unwrapped=not isinstance(parameters, str),
    )
