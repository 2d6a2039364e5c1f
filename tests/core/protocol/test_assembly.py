from __future__ import annotations

import copy
import itertools
import json
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from proxy.core.calls import CallId, Kind, ToolCall
from proxy.core.jsontext import raw as raw_of
from proxy.core.jsontext import render
from proxy.core.protocol.assembly import Assembler, Fragment, OpenCall
from proxy.errors import UpstreamError

Delta = dict[str, Any]


def feed(assembler: Assembler, *deltas: Delta | str) -> list[list[Fragment]]:
    """Deltas, as values or as text where spelling counts."""
    texts = (delta if isinstance(delta, str) else json.dumps(delta) for delta in deltas)
    return [feed_text(assembler, text.encode()) for text in texts]


def feed_text(assembler: Assembler, data: bytes) -> list[Fragment]:
    return assembler.add(json.loads(data), lambda path: (raw_of(data, path) or b"").decode())


def assembled(*deltas: Delta | str) -> Assembler:
    assembler = Assembler()
    feed(assembler, *deltas)
    return assembler


def part(index: Any = None, call_id: Any = None, name: Any = None, arguments: Any = None, **more: Any) -> Delta:
    """An entry with what is given."""
    function = {k: v for k, v in (("name", name), ("arguments", arguments)) if v is not None}
    entry = {"index": index, "id": call_id, "function": function or None}
    return {k: v for k, v in entry.items() if v is not None} | more


def calls(*entries: dict[str, Any] | Any) -> list[tuple[str, str, str]]:
    """Id, name and arguments of the calls that a stream of entries, one a delta, gives."""
    assembler = assembled(*({"tool_calls": [entry]} for entry in entries))
    return [(c.call_id, c.name, c.text) for c in assembler.calls]


# ---------------------------------------------------------------- which call a fragment belongs to


AB = [("a", "t", '{"x":1}'), ("b", "u", "{}")]


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        # As OpenAI sends them.
        ([part(0, "a", "t", ""), part(0, arguments='{"x"'), part(0, arguments=":1}"), part(1, "b", "u", "{}")], AB),
        # Interleaved, out of order, from one, with gaps.
        ([part(0, "a", "t", '{"x"'), part(1, "b", "u", "{"), part(0, arguments=":1}"), part(1, arguments="}")], AB),
        ([part(1, "a", "t", '{"x":1}'), part(0, "b", "u", "{}")], AB),
        ([part(3, "a", "t", '{"x":1}'), part(9, "b", "u", "{"), part(9, arguments="}")], AB),
        # No index: a new id opens a call, no id goes on with the last.
        ([part(None, "a", "t", '{"x":1}'), part(None, "b", "u", "{}")], AB),
        ([part(None, "a", "t", '{"x"'), part(arguments=":1}"), part(None, "b", "u", "{"), part(arguments="}")], AB),
        (
            [
                part(None, "a", "t", '{"x"'),
                part(None, "b", "u", "{"),
                part(None, "a", arguments=":1}"),
                part(None, "b", arguments="}"),
            ],
            AB,
        ),
        # Always index 0.
        ([part(0, "a", "t", '{"x":1}'), part(0, "b", "u", "{}")], AB),
        ([part(0, "a", "t", '{"x"'), part(0, arguments=":1}"), part(0, "b", "u", "{"), part(0, arguments="}")], AB),
        (
            [
                part(0, "a", "t", '{"x"'),
                part(0, "b", "u", "{"),
                part(0, "a", arguments=":1}"),
                part(0, "b", arguments="}"),
            ],
            AB,
        ),
        ([part(0, "a", "t", '{"x"'), part(0, "b", "u", "{"), part(0, "a", "t", ":1}"), part(0, "b", "u", "}")], AB),
        # Identity again in every fragment, or as nothing.
        ([part(0, "a", "t", '{"x"'), part(0, "a", "t", ":1}"), part(1, "b", "u", "{"), part(1, "b", "u", "}")], AB),
        ([part(0, "a", "t", '{"x"'), part(0, "", "", ":1}"), part(1, "b", "u", "{}"), part(1, "", "")], AB),
        (
            [
                part(0, "a", "t", '{"x":1}'),
                {"index": 0, "id": None, "type": None, "function": {"name": None}},
                part(1, "b", "u", "{}"),
            ],
            AB,
        ),
        # The index changes on the way.
        ([part(0, "a", "t", '{"x"'), part(1, arguments=":1}"), part(2, "b", "u", "{}")], AB),
        # The id late, inside, or as a number.
        ([part(0, None, "t", '{"x":'), part(0, "a", arguments="1}"), part(1, "b", "u", "{}")], AB),
        ([{"index": 0, "function": {"id": "a", "name": "t", "arguments": '{"x":1}'}}, part(1, "b", "u", "{}")], AB),
        ([part(0, 1, "t", "{"), part(0, 1, "t", "}"), part(1, 2, "u", "{}")], [("1", "t", "{}"), ("2", "u", "{}")]),
        # The name late, or in pieces.
        ([part(0, "a", None, '{"x"'), part(0, None, "t", ":1}"), part(1, "b", "u", "{}")], AB),
        ([part(0, "a", "se"), part(0, None, "arch"), part(0, arguments="{}")], [("a", "search", "{}")]),
        # The same id for two calls, with or without an index.
        ([part(0, "a", "t", "{}"), part(1, "a", "u", "{}")], [("a", "t", "{}"), ("a", "u", "{}")]),
        ([part(None, "a", "t", "{}"), part(None, "a", "u", "{}")], [("a", "t", "{}"), ("a", "u", "{}")]),
        ([part(0, "a", "t", "{}"), part(0, "a", "u", "{}")], [("a", "t", "{}"), ("a", "u", "{}")]),
        (
            [part(0, "a", "t", "{}"), part(0, "b", "u", "{}"), part(0, "a", "t", "{}")],
            [("a", "t", "{}"), ("b", "u", "{}"), ("a", "t", "{}")],
        ),
        # No ids at all.
        ([part(0, "", "t", "{}"), part(1, "", "u", "{}")], [("", "t", "{}"), ("", "u", "{}")]),
        ([part(None, None, "t", "{}"), part(None, None, "u", "{}")], [("", "t", "{}"), ("", "u", "{}")]),
        ([part(None, "", "t", "{}"), part(None, "", "t", "{}")], [("", "t", "{}"), ("", "t", "{}")]),
        ([part(0, None, "t", "{}"), part(0, None, "u", "{}")], [("", "t", "{}"), ("", "u", "{}")]),
        # The name never comes.
        ([part(0, "a", None, "{}")], [("a", "", "{}")]),
        ([part(arguments="{}")], [("", "", "{}")]),
        ([part(0, "a", "t", "{}"), part(1, arguments="{}")], [("a", "t", "{}"), ("", "", "{}")]),
        # Entries that are no objects, and parts that are none.
        ([None], [("", "", "")]),
        (["x", 5, []], [("", "", "")]),
        ([part(0, "a", "t", "{"), None, part(0, arguments="}")], [("a", "t", "{}")]),
        ([{"index": 0, "id": "a", "function": "t"}, {"index": 0, "custom": []}], [("a", "", "")]),
        ([part(0, "a", 5, "{}")], [("a", "", "{}")]),
        ([{"index": "0", "id": "a", "function": {"name": "t", "arguments": "{}"}}], [("a", "t", "{}")]),
        # Halves of a character in two fragments.
        ([part(0, "a", "t", '"\ud83d'), part(0, arguments='\udc38"')], [("a", "t", '"\U0001f438"')]),
    ],
)
def test_fragments_find_their_call(entries: list[Any], expected: list[tuple[str, str, str]]) -> None:
    """What servers send, in one delta each, gives the calls that a reader of the stream would see."""
    assert calls(*entries) == expected


@st.composite
def streams(draw: st.DrawFn) -> tuple[list[tuple[str, str, str]], list[dict[str, Any]]]:
    """Calls, and entries that carry them in pieces, interleaved, in one of the manners of servers."""
    made = []
    for number in range(draw(st.integers(1, 4))):
        arguments = json.dumps(
            draw(st.dictionaries(st.text("ab", max_size=2), st.text('"{}é\\', max_size=4), max_size=2))
        )
        made.append((f"call_{number}", f"tool_{draw(st.integers(0, 1))}", arguments))
    manner = draw(st.sampled_from(["index", "id", "both", "zero", "whole"]))
    queues: list[list[dict[str, Any]]] = []
    for number, (call_id, name, arguments) in enumerate(made):
        cuts = sorted(draw(st.lists(st.integers(0, len(arguments)), max_size=3))) if manner != "whole" else []
        pieces = [arguments[a:b] for a, b in zip([0, *cuts], [*cuts, len(arguments)], strict=True)]
        index = {"index": number, "both": number, "zero": 0}.get(manner)
        index = number if manner == "index" else index
        said = call_id if manner in ("id", "zero", "both") else None
        named = name if manner == "both" else None
        first = part(index, call_id, name, pieces[0], type="function")
        queues.append([first, *(part(index, said, named, piece) for piece in pieces[1:])])
    entries, begun = [], 0
    while any(queues):
        ready = [n for n, queue in enumerate(queues) if queue and n <= begun]
        chosen = draw(st.sampled_from(ready))
        begun = max(begun, chosen + 1)
        entries.append(queues[chosen].pop(0))
    return made, entries


@given(streams(), st.data())
def test_any_interleaving_gives_the_same_calls(
    made: tuple[list[tuple[str, str, str]], list[dict[str, Any]]], data: st.DataObject
) -> None:
    """Calls come out whole and in the model's order, however their pieces are mixed and packed into deltas."""
    expected, entries = made
    assert calls(*entries) == expected
    cuts = sorted(data.draw(st.sets(st.integers(0, len(entries)), max_size=3)) | {0, len(entries)})
    packed = assembled(*({"tool_calls": entries[a:b]} for a, b in itertools.pairwise(cuts)))
    assert [(c.call_id, c.name, c.text) for c in packed.calls] == expected
    assert [c.ordinal for c in packed.calls] == list(range(len(expected)))


entry_parts = st.fixed_dictionaries(
    {},
    optional={
        "index": st.sampled_from([0, 1, 2, None, "0", 1.0, True]),
        "id": st.sampled_from(["a", "b", "", None, 5, {}]),
        "type": st.sampled_from(["function", "custom", "", None, 5]),
        "function": st.fixed_dictionaries(
            {},
            optional={
                "name": st.sampled_from(["t", "u", "", None, 5]),
                "arguments": st.sampled_from(["", "{", "}", "{}", None, 5, {"a": 1}, [1]]),
                "id": st.sampled_from(["a", None]),
                "more": st.sampled_from(["x", None, {"y": 1}]),
            },
        )
        | st.sampled_from([None, "x", []]),
        "custom": st.sampled_from([{"name": "v", "input": "i"}, {"input": {"a": 1}}, {}, None, 5]),
        "extra": st.sampled_from(["x", None, {"y": ["z"]}, ["w"], 5]),
    },
)
deltas = st.fixed_dictionaries(
    {},
    optional={
        "tool_calls": st.lists(entry_parts | st.none() | st.text(max_size=1), max_size=3)
        | st.sampled_from([None, {}, 5]),
        "function_call": st.sampled_from([None, {"name": "l"}, {"arguments": "{"}, {"arguments": {"a": 1}}, "auto"]),
        "content": st.sampled_from(["x", "", None, []]),
        "role": st.sampled_from(["assistant", "", None]),
        "reasoning_details": st.lists(
            st.fixed_dictionaries({"index": st.integers(0, 1), "text": st.text(max_size=2)}), max_size=2
        ),
    },
)


def of_two_kinds(delta: Delta) -> bool:
    """Whether a delta has custom tools at all: beside functions they are refused."""
    entries = delta.get("tool_calls")
    return any(isinstance(e, dict) and "custom" in e for e in entries) if isinstance(entries, list) else False


@given(st.lists(deltas, max_size=6))
def test_nothing_that_comes_is_lost_or_changed(made: list[Delta]) -> None:
    """Every entry belongs to a call; deltas stay as they were; every call is a JSON entry of what it was judged by."""
    assume(not any(map(of_two_kinds, made)))
    assembler, before = Assembler(), copy.deepcopy(made)
    for delta, fragments in zip(made, feed(assembler, *made), strict=True):
        entries = delta.get("tool_calls")
        count = len(entries) if isinstance(entries, list) else 0
        legacy = [None] if isinstance(delta.get("function_call"), dict) else []
        assert [f.position for f in fragments] == [*range(count), *legacy]
        assert all(0 <= f.ordinal < len(assembler.calls) for f in fragments)
    assert made == before
    for call in assembler.calls:
        entry = json.loads(render(call.entry()))
        part_of = entry.get("custom") or entry.get("function") or entry
        text = part_of["input"] if call.kind is Kind.CUSTOM else part_of["arguments"]
        assert (text if isinstance(text, str) else None) == (None if call.whole().unwrapped else call.text)
        assert part_of["name"] == call.whole().name


# ---------------------------------------------------------------- what a fragment says


def test_what_a_fragment_says_again() -> None:
    """Identity that is known already, or said with nothing, is told, so that readers need not add it up."""
    whole = part(0, "a", "t", "{", type="function")
    late = {"index": 0, "id": "", "type": None, "function": {"name": "", "arguments": "}"}}
    found = feed(Assembler(), {"tool_calls": [whole]}, {"tool_calls": [whole]}, {"tool_calls": [late]})
    again = (("id",), ("type",), ("function", "name"))
    assert found == [[Fragment(0, 0)], [Fragment(0, 0, again)], [Fragment(0, 0, again)]]
    first, second = {"index": 0, "function": {"arguments": "{"}}, part(0, "a", "t", "}", type="function")
    assert feed(Assembler(), {"tool_calls": [first]}, {"tool_calls": [second]})[1] == [Fragment(0, 0)]
    custom = {"index": 0, "custom": {"name": "v", "input": "x"}}
    assert feed(Assembler(), {"tool_calls": [custom]}, {"tool_calls": [custom]})[1] == [
        Fragment(0, 0, (("custom", "name"),))
    ]


@pytest.mark.parametrize("odd", [["delete_file"], {"is": "t"}, 5, False])
def test_a_call_that_is_named_by_no_text_has_no_name(odd: Any) -> None:
    """Whatever text names it as well; behind its arguments nothing names it any more."""
    named, oddly, late = part(0, "a", "t"), part(0, "a", odd), part(0, arguments="{}")
    for made in ([oddly, named, late], [named, oddly, late], [oddly, late, named]):
        assert calls(*made) == [("a", "", "{}")]
    assembler = assembled({"tool_calls": [named]}, {"tool_calls": [late]})
    assert feed(assembler, {"tool_calls": [oddly]})[0][0].stray == (("function", "name"),)
    assert [call.whole().name for call in assembler.calls] == ["t"]


def test_an_index_that_is_not_the_calls_own_is_stray() -> None:
    """A fragment that stands under another number goes on with its call, and does not go out under that number."""
    found = feed(Assembler(), {"tool_calls": [part(0, "a", "t", "{")]}, {"tool_calls": [part(1, arguments="}")]})
    assert found[1] == [Fragment(0, 0, (), (("index",),))]


def test_what_comes_behind_a_decision_is_not_taken() -> None:
    """Arguments that were judged stay as they were judged; what comes later is told as stray."""
    assembler = assembled(
        {"tool_calls": [part(0, "a", "t", "{}")]}, {"function_call": {"name": "l", "arguments": "{}"}}
    )
    for call in assembler.calls:
        call.sealed = True
    found = feed(
        assembler,
        {"tool_calls": [part(0, "a", None, "{}")]},
        {"tool_calls": [part(0, None, None, "")]},
        {"function_call": {"name": "m", "arguments": "{}"}},
    )
    assert found[0] == [Fragment(0, 0, (("id",),), (("function", "arguments"),))]
    assert found[1] == [Fragment(0, 0)]
    assert found[2] == [Fragment(None, 1, (), (("name",), ("arguments",)))]
    assert [(c.name, c.text) for c in assembler.calls] == [("t", "{}"), ("l", "{}")]
    custom = assembled({"tool_calls": [{"index": 0, "id": "c", "custom": {"name": "v", "input": "x"}}]})
    custom.calls[0].sealed = True
    late = {"tool_calls": [{"index": 0, "id": "c", "custom": {"name": "v", "input": "y"}}]}
    assert feed(custom, late)[0][0].stray == (("custom", "input"),)


def test_a_custom_name_that_comes_too_late_is_stray() -> None:
    """A name behind the input is no part of the name, unless there was none."""
    late = {"index": 0, "custom": {"name": "w"}}
    nameless = {"index": 0, "custom": {"input": "x"}}
    assert feed(Assembler(), {"tool_calls": [nameless]}, {"tool_calls": [late]})[1] == [Fragment(0, 0)]


@pytest.mark.parametrize(
    "entries",
    [
        [{"index": 0, "custom": {"name": "safe"}}, {"index": 0, "function": {"name": "delete", "arguments": "{}"}}],
        [{"index": 0, "function": {"name": "safe"}}, {"index": 0, "custom": {"name": "delete", "input": "x"}}],
        [{"index": 0, "custom": {"name": "safe"}, "function": {"name": "delete"}}],
    ],
)
def test_a_call_of_two_kinds_is_refused(entries: list[Any]) -> None:
    """Some clients would read it as the one kind, others as the other."""
    with pytest.raises(UpstreamError):
        feed(Assembler(), *({"tool_calls": [entry]} for entry in entries))


def test_a_message_that_became_too_long_is_not_remembered() -> None:
    """That it speaks is known all the same, and calls are kept."""
    assembler = Assembler()
    for _ in range(3):
        feed(assembler, {"content": "x" * 10, "tool_calls": [part(0, "a", "t", "{}")]})
        assembler.remember_at_most(15)
    assert (assembler.lost, assembler.said, assembler.speaks, len(assembler.calls)) == (True, 0, True, 1)


@pytest.mark.parametrize(
    ("entries", "doubtful"),
    [
        ([part(0, "a", "t", "{}"), part(1, "b", "u", "{}")], [False, False]),
        ([part(0, None, "t", "{}"), part(0, None, "u", "{}")], [False, True]),
        ([part(0, "a", "t", "{}"), part(0, "b", "u", "{}")], [False, False]),
        ([part(0, "a", "t", "{}"), part(0, "a", "u", "{}")], [False, True]),
        ([part(None, None, "t", "{}"), part(None, None, "u", "{}")], [False, False]),
    ],
)
def test_calls_that_only_a_name_tells_apart(entries: list[dict[str, Any]], doubtful: list[bool]) -> None:
    """Where number and id do not show that another call begins, a reader may take two calls for one."""
    assembler = assembled(*({"tool_calls": [entry]} for entry in entries))
    assert [call.doubtful for call in assembler.calls] == doubtful


# ---------------------------------------------------------------- a call as a whole


@pytest.mark.parametrize(
    ("text", "kind", "complete"),
    [
        ('{"a":1}', Kind.FUNCTION, True),
        (' {"a":[]} \n', Kind.FUNCTION, True),
        ('"{}"', Kind.LEGACY, True),
        ("[1]", Kind.FUNCTION, True),
        ("", Kind.FUNCTION, False),
        ('{"a":1', Kind.FUNCTION, False),
        ('{"a":{}', Kind.FUNCTION, False),
        ("12", Kind.FUNCTION, False),
        ("null", Kind.FUNCTION, False),
        ("{'a':1}", Kind.FUNCTION, False),
        ("{}{}", Kind.FUNCTION, False),
        ("{}", Kind.CUSTOM, False),
    ],
)
def test_arguments_that_can_be_complete(text: str, kind: Kind, complete: bool) -> None:
    """Only text behind which nothing can follow is complete: a number may go on, and so may free text."""
    assert OpenCall(0, kind, pieces=[text] if text else []).reads_as_complete() is complete


@pytest.mark.parametrize(
    ("texts", "call", "entry"),
    [
        (
            ['{"tool_calls":[{"index":0,"id":"a","type":"function","function":{"name":"t","arguments":"{}"}}]}'],
            ToolCall(CallId("a"), "t", "{}"),
            '{"id":"a","type":"function","function":{"name":"t","arguments":"{}"}}',
        ),
        (
            ['{"tool_calls":[{"index":0,"function":{"name":"t","arguments":{"n": 1.10}}}]}'],
            ToolCall(CallId(""), "t", '{"n": 1.10}', unwrapped=True),
            '{"id":"","type":"function","function":{"name":"t","arguments":{"n": 1.10}}}',
        ),
        (
            [
                '{"tool_calls":[{"index":0,"id":"a","function":{"name":"t","arguments":{"n": 1.10}}}]}',
                '{"tool_calls":[{"index":0,"function":{"arguments":""}}]}',
            ],
            ToolCall(CallId("a"), "t", '{"n": 1.10}', unwrapped=True),
            '{"id":"a","type":"function","function":{"name":"t","arguments":{"n": 1.10}}}',
        ),
        (
            [
                '{"tool_calls":[{"index":0,"id":"a","function":{"name":"t","arguments":"{"}}]}',
                '{"tool_calls":[{"index":0,"function":{"arguments":{"n": 1}}}]}',
            ],
            ToolCall(CallId("a"), "t", '{{"n": 1}'),
            '{"id":"a","type":"function","function":{"name":"t","arguments":"{{\\"n\\": 1}"}}',
        ),
        (
            [
                '{"tool_calls":[{"index":0,"id":"a","function":{"name":"t","arguments":{}}}]}',
                '{"tool_calls":[{"index":0,"function":{"arguments":{}}}]}',
            ],
            ToolCall(CallId("a"), "t", "{}{}"),
            '{"id":"a","type":"function","function":{"name":"t","arguments":"{}{}"}}',
        ),
        (
            ['{"tool_calls":[{"index":0,"id":"a","type":"builtin_function","function":{"name":"$web"}}]}'],
            ToolCall(CallId("a"), "$web", ""),
            '{"id":"a","type":"builtin_function","function":{"name":"$web","arguments":""}}',
        ),
        (
            [
                '{"tool_calls":[{"index":0,"id":"a","function":{"name":"t","arguments":"{","x":"p"},"sig":"s1"}]}',
                '{"tool_calls":[{"index":0,"function":{"arguments":"}","x":"q"},"sig":"s2","e":{"f":"1"}}]}',
                '{"tool_calls":[{"index":0,"e":{"f":"2","g":null},"sig":null}]}',
            ],
            ToolCall(CallId("a"), "t", "{}"),
            '{"id":"a","type":"function","function":{"name":"t","arguments":"{}","x":"pq"},"sig":"s1s2","e":{"f":"12","g":null}}',
        ),
        (
            [
                '{"tool_calls":[{"index":0,"id":"c","type":"custom","custom":{"name":"v","input":"a "}}]}',
                '{"tool_calls":[{"index":0,"custom":{"input":"b"},"x":1}]}',
            ],
            ToolCall(CallId("c"), "v", "a b", Kind.CUSTOM),
            '{"id":"c","type":"custom","custom":{"name":"v","input":"a b"},"x":1}',
        ),
        (
            ['{"tool_calls":[{"index":0,"id":"c","custom":{"name":"v","input":{"n": 1.10}}}]}'],
            ToolCall(CallId("c"), "v", '{"n": 1.10}', Kind.CUSTOM),
            '{"id":"c","type":"custom","custom":{"name":"v","input":"{\\"n\\": 1.10}"}}',
        ),
        (
            ['{"function_call":{"name":"l","arguments":"{"}}', '{"function_call":{"arguments":"}","x":1}}'],
            ToolCall(CallId(""), "l", "{}", Kind.LEGACY),
            '{"name":"l","arguments":"{}","x":1}',
        ),
        (
            ['{"function_call":{"name":"l","arguments":{"n": 1.10}}}', '{"function_call":null}'],
            ToolCall(CallId(""), "l", '{"n": 1.10}', Kind.LEGACY, unwrapped=True),
            '{"name":"l","arguments":{"n": 1.10}}',
        ),
    ],
)
def test_a_call_as_it_was_made(texts: list[str], call: ToolCall, entry: str) -> None:
    """Function, custom and legacy calls keep their arguments, their type and every field of vendors."""
    (found,) = assembled(*texts).calls
    assert found.whole() == call
    assert render(found.entry()).decode() == entry


def test_old_and_new_forms_are_calls_of_their_own() -> None:
    """A legacy call is never the one that an entry without a number goes on with."""
    found = assembled(
        {"tool_calls": [part(None, "a", "t", "{")]},
        {"function_call": {"name": "l", "arguments": "{}"}},
        {"tool_calls": [part(arguments="}")]},
    )
    assert [(c.kind, c.name, c.text) for c in found.calls] == [(Kind.FUNCTION, "t", "{}"), (Kind.LEGACY, "l", "{}")]


# ---------------------------------------------------------------- the message


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (
            [{"role": "assistant", "content": ""}, {"content": "a"}, {"content": "b"}],
            {"role": "assistant", "content": "ab"},
        ),
        ([{"role": "assistant"}, {"role": "assistant"}, {"role": ""}, {"role": None}], {"role": "assistant"}),
        ([{"role": ""}, {"content": None}, {"content": "x"}, {"content": None}], {"content": "x"}),
        ([{"refusal": None}, {"refusal": "n"}, {"refusal": "o"}], {"refusal": "no"}),
        ([{"reasoning_content": "a"}, {"reasoning_content": "b"}], {"reasoning_content": "ab"}),
        (
            [{"audio": {"id": "x", "data": "A"}}, {"audio": {"id": "x", "data": "B"}}],
            {"audio": {"id": "x", "data": "AB"}},
        ),
        ([{"content": []}, {"content": ["a"]}, {"content": ["b"]}], {"content": ["a", "b"]}),
        (
            [
                {"reasoning_details": [{"index": 0, "type": "t", "text": "a"}, {"index": 0, "text": "b"}]},
                {"reasoning_details": [{"index": 1, "text": "x"}, {"index": 0, "type": "t", "text": "c"}]},
                {"reasoning_details": [{"text": "no index"}, {"index": None}]},
            ],
            {
                "reasoning_details": [
                    {"index": 0, "type": "t", "text": "abc"},
                    {"index": 1, "text": "x"},
                    {"text": "no index"},
                    {"index": None},
                ]
            },
        ),
        ([{"x": 1}, {"x": "a"}, {"x": ["b"]}, {"x": {"c": 1}}, {"x": {"c": 2, "d": 3}}], {"x": {"c": 2, "d": 3}}),
    ],
)
def test_deltas_add_up_to_a_message(made: list[Delta], message: dict[str, Any]) -> None:
    """Text grows, lists grow by index, objects merge, names and roles are said once, and null says nothing."""
    assert assembled(*made).message == message


def test_what_is_kept_is_not_changed_later() -> None:
    """An event that holds a delta still says what it said when more came."""
    first = {"d": [{"index": 0, "o": {"t": "a"}}], "tool_calls": [part(0, "a", "t", "", e={"f": ["1"]})]}
    assembler, before = Assembler(), copy.deepcopy(first)
    assembler.add(first, lambda _: "")
    again = {"d": [{"index": 0, "o": {"t": "b"}}], "tool_calls": [part(0, e={"f": ["2"]})]}
    assembler.add(again, lambda _: "")
    assert first == before
    assert assembler.message == {"d": [{"index": 0, "o": {"t": "ab"}}]}
    assert assembler.calls[0].extra == {"e": {"f": ["1", "2"]}}


LONG = "x" * 1000


@pytest.mark.parametrize(
    "delta",
    [
        {"content": LONG},
        {"reasoning_details": [{"text": LONG}]},
        {"audio": {"data": {"deep": [LONG]}}},
        {"tool_calls": [part(0, LONG)]},
        {"tool_calls": [part(0, "a", LONG)]},
        {"tool_calls": [part(0, "a", "t", LONG)]},
        {"tool_calls": [part(0, "a", "t", {"a": LONG})]},
        {"tool_calls": [part(0, "a", "t", "{}", extra={"signature": LONG})]},
        {"tool_calls": [{"index": 0, "function": {"vendor": LONG}}]},
        {"tool_calls": [{"index": 0, "custom": {"input": LONG}}]},
        {"function_call": {"arguments": LONG}},
    ],
    ids=lambda delta: json.dumps(delta)[:40],
)
def test_whatever_is_kept_counts(delta: Delta) -> None:
    """Nothing that a stream makes us keep is left out of the size that is bounded."""
    found = assembled(delta)
    assert 1000 <= found.size + found.said <= 1100
