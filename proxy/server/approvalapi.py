"""The JSON API of approvals on the admin port: list them, decide one. Who may is settled before anything gets here.

A list is at most one page. Where there is more, `next` is what to give as `after` for the page behind it.
"""

from __future__ import annotations

from dataclasses import dataclass

from aiohttp import web

from proxy.core.batch.approval import Approval, ApprovalEvent, ApprovalState
from proxy.core.batch.ledger import IllegalStepError
from proxy.core.jsontext import Json, Object, parse, parse_exact, render
from proxy.errors import ProxyError, RequestError
from proxy.server.adminbody import form_fields, is_form, read_body
from proxy.server.approvaldesk import LISTED, ApprovalDesk, Part, Position
from proxy.server.logs import timestamp
from proxy.server.replies import error_body

PATH = "/admin/approvals"
_EVENTS = {"approve": ApprovalEvent.APPROVE, "deny": ApprovalEvent.DENY}
_MOST_NOTE = 2000


def described(approval: Approval) -> Object:
    """An approval as the API shows it."""
    return {
        "id": approval.id,
        "state": str(approval.state),
        "tool": approval.tool,
        "args": parse_exact(approval.arguments).value,
        "callId": approval.call_id,
        "api": approval.api,
        "client": approval.client,
        "policy": approval.policy,
        "rule": approval.rule,
        "createdAt": timestamp(approval.created),
        "expiresAt": timestamp(approval.expires),
        "note": approval.note,
    }


def announcement(approval: Approval) -> bytes:
    """What a webhook is told of a new approval."""
    return render({"type": "approval.pending", "approval": described(approval), "message": approval.message})


@dataclass(frozen=True, slots=True)
class _Decision:
    event: ApprovalEvent
    note: str


async def serve_approvals(request: web.BaseRequest, desk: ApprovalDesk) -> web.Response:
    """What is under `/admin/approvals`."""
    approval_id = request.path.removeprefix(PATH).strip("/")
    try:
        if not approval_id and request.method in ("GET", "HEAD"):
            return _json(await _list(request, desk))
        if approval_id and "/" not in approval_id and request.method == "POST":
            return await _decide(request, desk, approval_id)
        raise RequestError("there is nothing here", status=404 if request.method in ("GET", "HEAD") else 405)
    except ProxyError as error:
        return web.Response(status=error.status, body=error_body(error), content_type="application/json")


def _json(value: Json) -> web.Response:
    return web.Response(body=render(value), content_type="application/json", headers={"cache-control": "no-store"})


async def _list(request: web.BaseRequest, desk: ApprovalDesk) -> Object:
    asked = request.query.getall("state", list(ApprovalState))
    try:
        states = [ApprovalState(state) for state in asked]
    except ValueError:
        raise RequestError(f"expected a state among {', '.join(ApprovalState)}", status=422) from None
    found, last = await desk.page(states, after=_after(request), most=_limit(request))
    more: Object = {} if last is None else {"next": f"{last.part.name.lower()}.{last.id}"}
    return {"approvals": [described(approval) for approval in found], **more}


def _limit(request: web.BaseRequest) -> int:
    text = request.query.get("limit", str(LISTED))
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:9]) <= LISTED):
        raise RequestError(f"expected a limit of 1 to {LISTED}", status=422)
    return int(text[:9])


def _after(request: web.BaseRequest) -> Position | None:
    part, _, approval_id = request.query.get("after", "").partition(".")
    if not part:
        return None
    if part.upper() not in Part.__members__ or not approval_id:
        raise RequestError("expected the `next` of another page as after", status=422)
    return Position(Part[part.upper()], approval_id)


async def _decide(request: web.BaseRequest, desk: ApprovalDesk, approval_id: str) -> web.Response:
    body = await read_body(request)
    from_page = is_form(request, body)
    decision = _read(body, from_page=from_page)
    try:
        approval = await desk.decide(approval_id, decision.event, note=decision.note)
    except IllegalStepError as error:
        raise RequestError(str(error), status=409, code="already_decided") from None
    if approval is None:
        raise RequestError("there is no approval of this id", status=404, code="unknown_approval")
    if from_page:  # a button of the admin page
        return web.Response(status=303, headers={"location": "/admin/"})
    return _json(described(approval))


def _read(body: bytes, *, from_page: bool) -> _Decision:
    """A decision from a body. Raises RequestError (422) for anything else."""
    try:
        value = form_fields(body) if from_page else parse(body)
        event, note = _EVENTS[value["decision"]], value.get("note") or ""
    except (ValueError, KeyError, TypeError, AttributeError):
        raise RequestError('expected {"decision": "approve" or "deny", "note": text}', status=422) from None
    if not isinstance(note, str) or len(note) > _MOST_NOTE:
        raise RequestError(f"expected a text of at most {_MOST_NOTE} characters as note", status=422)
    return _Decision(event, note)
