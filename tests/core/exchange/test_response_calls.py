"""A call of a response's stream: what is known of it when, and what each place of it becomes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.core.calls import Kind, Owner
from proxy.core.exchange.judging import Judged
from proxy.core.exchange.response_calls import CallSlot
from proxy.core.exchange.response_reading import Part
from proxy.core.jsontext import Path, render
from proxy.core.policy.verdicts import Decision, Needs, Verdict
from proxy.errors import UpstreamError

ITEM = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "show", "arguments": ""}
PATCH = {"type": "create_file", "path": "a", "diff": "+x"}


def slot(kind: str = "function_call", **parts: Any) -> CallSlot:
    return CallSlot(since=0.0, type=kind, place=0, item_id="fc_1", **parts)


def begun(one: CallSlot, item: dict[str, Any] = ITEM, **more: Any) -> CallSlot:
    one.take_item(item | more, render(item | more), last=False)
    return one


def ended(one: CallSlot, item: dict[str, Any] = ITEM, **more: Any) -> CallSlot:
    one.take_item(item | more, render(item | more), last=True)
    return one


def judged(one: CallSlot, needs: Needs = Needs.ARGUMENTS, text: str | None = None) -> CallSlot:
    one.seal(needs)
    one.judged = Judged(one.whole(), "", Owner.CLIENT, Verdict(Decision.ALLOWED, text=text))
    one.goes = True
    return one


def piece(one: CallSlot, text: str) -> bool:
    return one.take_event({"type": "response.function_call_arguments.delta", "delta": text}, Part.PIECE)


def shown(one: CallSlot, item: dict[str, Any], *, begins: bool = False) -> Any:
    return json.loads(one.item(item, render(item), begins=begins))


def test_the_text_is_what_the_latest_place_says() -> None:
    """The item that is done, its text, its pieces, its beginning."""
    one = begun(slot(), arguments="0")
    assert one.whole().text == "0"
    piece(one, "[1")
    piece(one, "]")
    assert (one.whole().text, one.text_is_whole) == ("[1]", False)
    one.take_event({"arguments": "[2]"}, Part.TEXT)
    one.take_event({"arguments": "[9]"}, Part.TEXT)
    assert (one.whole().text, one.text_is_whole) == ("[2]", True)
    ended(one, arguments="[3]", name="other", namespace="space")
    call = one.whole()
    assert (call.text, call.name, call.call_id, call.namespace) == ("[3]", "other", "call_1", "space")
    assert one.size > 0


def test_what_an_item_leaves_out_other_places_say() -> None:
    """An item that is done without arguments or an id does not undo them."""
    one = slot()
    one.take_event({"call_id": "call_7", "delta": "{}"}, Part.PIECE)
    one.take_event({"name": "late", "arguments": None}, Part.TEXT)
    ended(one, {"type": "function_call"})
    call = one.whole()
    assert (call.call_id, call.name, call.text, call.kind) == ("call_7", "late", "{}", Kind.FUNCTION)
    assert json.loads(one.raw()) == {"type": "function_call", "arguments": "{}", "name": "late", "call_id": "call_7"}


def test_a_call_that_never_had_an_item_is_made_up() -> None:
    """Of what its events said; an action has nothing to be made of."""
    one = slot()
    piece(one, '{"a":1}')
    assert json.loads(one.raw()) == ITEM | {"name": "", "call_id": "", "arguments": '{"a":1}', "status": "completed"}
    action = slot("shell_call")
    assert json.loads(action.raw()) == {"type": "shell_call", "id": "fc_1", "status": "completed"}
    assert (action.whole().name, action.whole().text) == ("shell", "{}")


def test_halves_of_a_character_in_two_pieces_are_joined() -> None:
    """As readers of text do."""
    one = begun(slot())
    piece(one, '"\ud83d')
    piece(one, '\ude00"')
    assert one.whole().text == '"\U0001f600"'


def test_once_judged_by_all_of_it_it_stays_so() -> None:
    """Later places are changed to agree; an id that was not known yet may come."""
    one = judged(ended(begun(slot()), arguments="[1]"))
    assert not one.in_one_piece
    lie = ITEM | {"arguments": "[2]", "name": "other", "namespace": "x", "call_id": "call_2"}
    assert shown(one, lie) == ITEM | {"arguments": "[1]"}
    assert piece(one, "behind") is True
    late = slot()
    late.take_event({"name": "show", "arguments": "[1]"}, Part.TEXT)
    judged(late)
    ended(late, arguments="[2]")
    assert (late.whole().call_id, late.whole().text) == ("call_1", "[1]")
    assert json.loads(late.raw())["arguments"] == "[1]"


def test_once_judged_by_its_name_its_text_is_its_own() -> None:
    """Its name and id are not."""
    one = judged(begun(slot()), Needs.NAME)
    assert piece(one, "[1]") is False
    ended(one, arguments="[2]", name="other", call_id="call_2")
    assert shown(one, ITEM | {"arguments": "[2]", "name": "other", "call_id": "call_2"}) == ITEM | {"arguments": "[2]"}
    assert (one.whole().name, one.whole().text) == ("show", "[2]")
    assert json.loads(one.raw()) == ITEM | {"arguments": "[2]"}


@pytest.mark.parametrize(
    ("first", "pieces", "agrees"),
    [
        ("", ["[", "1]"], True),
        ("", [], True),
        ("[1]", [], True),
        ("[2]", [], False),
        ("", ["[2]"], False),
        ("[1]", ["[1]"], False),
        ("[", ["1]"], False),
    ],
)
def test_pieces_that_are_not_the_whole_are_sent_as_one(first: str, pieces: list[str], agrees: bool) -> None:
    """The first of them with all of it, the others not."""
    one = begun(slot(), arguments=first)
    for part in pieces:
        piece(one, part)
    judged(ended(one, arguments="[1]"))
    assert one.in_one_piece is not agrees
    assert shown(one, ITEM | {"arguments": first}, begins=True)["arguments"] == (
        first if agrees else "" if pieces or not first else "[1]"
    )
    event = {"delta": "x", "obfuscation": "zz"}
    if agrees:
        assert one.event(event, Part.PIECE) == {}
        return
    assert one.event(event, Part.PIECE) == {("delta",): b'"[1]"', ("obfuscation",): None}
    assert one.event(event, Part.PIECE) is None


def test_a_changed_text_is_in_every_place() -> None:
    """An empty one has no piece."""
    one = begun(slot())
    piece(one, "[1]")
    judged(ended(one, arguments="[1]"), text="[0]")
    assert shown(one, ITEM | {"arguments": "[1]"}) == ITEM | {"arguments": "[0]"}
    assert one.event({"arguments": "[1]", "name": "x"}, Part.TEXT) == {("arguments",): b'"[0]"', ("name",): b'"show"'}
    assert one.event({"x": 1}, Part.OTHER) == {}
    empty = judged(ended(begun(slot()), arguments="[1]"), text="")
    assert empty.event({"delta": "[1]"}, Part.PIECE) is None


def test_a_given_id_is_in_every_place() -> None:
    """Where it stands for the call; an id that is the item's stays."""
    one = judged(ended(begun(slot()), arguments="[1]"))
    one.given_id = "call_new"
    assert one.in_one_piece
    assert shown(one, ITEM | {"arguments": "[1]"}) == ITEM | {"arguments": "[1]", "call_id": "call_new"}
    expected: dict[Path, bytes | None] = {("call_id",): b'"call_new"', ("item_id",): b'"call_new"'}
    assert one.event({"call_id": "call_1", "item_id": "call_1"}, Part.OTHER) == expected
    assert one.event({"item_id": "fc_1"}, Part.OTHER) == {}


def test_a_call_of_two_types_is_refused() -> None:
    """Two readers could take it for two."""
    with pytest.raises(UpstreamError):
        ended(slot("custom_tool_call"))


def test_a_search_is_uncertain_until_it_says_who_runs_it() -> None:
    """It may be the upstream's own."""
    search: dict[str, Any] = {"type": "tool_search_call", "call_id": None, "arguments": {}}
    one = begun(slot("tool_search_call"), search)
    assert one.uncertain
    ended(one, search | {"call_id": "call_1"})
    assert not one.uncertain
    assert (one.whole().name, one.whole().kind) == ("tool_search", Kind.ACTION)
    ended(one, search)
    assert not one.uncertain


@pytest.mark.parametrize(
    ("said", "agrees"),
    [
        ([("delta", "+"), ("delta", "x"), ("done", "+x")], True),
        ([("delta", "+y")], False),
        ([("done", "+y")], False),
        ([("done", "")], True),
        ([], True),
    ],
)
def test_parts_of_an_action_that_are_not_in_it_do_not_go_on(said: list[tuple[str, str]], agrees: bool) -> None:
    """What was judged is the action."""
    patch = {"type": "apply_patch_call", "id": "fc_1", "call_id": "call_1", "operation": PATCH}
    one = begun(slot("apply_patch_call"), patch | {"operation": PATCH | {"diff": ""}})
    for what, text in said:
        kind = f"response.apply_patch_call_operation_diff.{what}"
        one.take_event({"type": kind, "diff" if what == "done" else "delta": text}, Part.PIECE)
    judged(ended(one, patch))
    assert one.in_one_piece is not agrees
    assert (one.event({"delta": "+x"}, Part.PIECE) is None) is not agrees


def test_an_action_begins_with_nothing_that_is_not_in_it() -> None:
    """Where it was judged; its spelling stays."""
    patch = {"type": "apply_patch_call", "call_id": "call_1", "operation": PATCH}
    one = judged(ended(begun(slot("apply_patch_call"), patch), patch))
    part = patch | {"operation": {"type": "create_file"}}
    other = patch | {"operation": PATCH | {"path": "b"}}
    assert shown(one, part, begins=True) == part
    assert shown(one, other, begins=True) == patch
    assert shown(one, other) == patch
    spaced = json.dumps(patch).encode()
    assert one.item(patch, spaced) == spaced
    by_name = judged(begun(slot("apply_patch_call"), patch), Needs.NAME)
    assert shown(by_name, other, begins=True) == other
    bare = {"type": "apply_patch_call", "call_id": "call_1"}
    assert shown(judged(ended(slot("apply_patch_call"), patch)), bare, begins=True) == bare


def test_an_approval_is_asked_for_under_its_own_id() -> None:
    """What it is asked for is what was judged."""
    item = {"type": "mcp_approval_request", "id": "mcpr_1", "server_label": "docs", "name": "look", "arguments": "{}"}
    one = judged(ended(begun(slot("mcp_approval_request"), item), item))
    one.given_id = "call_new"
    assert shown(one, item) == item
    lie = item | {"arguments": "[2]", "server_label": "other", "name": "other"}
    assert shown(one, lie) == item
    assert shown(one, lie, begins=True) == item
    assert shown(one, item | {"arguments": ""}, begins=True) == item | {"arguments": ""}
    assert slot("mcp_approval_request").whole().call_id == "fc_1"


def test_arguments_that_are_an_object_stay_one() -> None:
    """Changed or not."""
    bare = ITEM | {"arguments": {"a": 1}}
    one = judged(ended(begun(slot()), bare))
    assert one.whole().unwrapped
    assert shown(one, bare) == bare
    changed = judged(ended(begun(slot()), bare), text='{"a":0}')
    assert shown(changed, bare)["arguments"] == {"a": 0}
    told = begun(slot())
    told.take_event({"arguments": {"a": 1}}, Part.TEXT)
    assert told.whole().text == '{"a":1}'
