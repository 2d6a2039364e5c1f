from __future__ import annotations

import pytest

from proxy.core.policy.scanning import MAX_DEPTH, literals, renamed, scan, unguarded


@pytest.mark.parametrize(
    ("source", "reads"),
    [
        ("args.a.b == 1", {("args", "a", "b")}),
        ('args["x-y"].b', {("args", "x-y", "b")}),
        ("args.list[0].c", {("args", "list")}),
        ("args[tool]", {("args",), ("tool",)}),
        ('args["a\\n"]', {("args",)}),
        ("args.s.size() > 1", {("args", "s")}),
        ("args . s . t", {("args", "s", "t")}),
        ("has(args.a) // args.b", {("args", "a")}),
        ("'args.b' == \"args.c\"", set()),
        ("r'\\' + args.a", {("args", "a")}),
        ('"""args.b " """ + args.a', {("args", "a")}),
        ("args.xs.all(x, x.y > args.z)", {("args", "xs"), ("x",), ("x", "y"), ("args", "z")}),
    ],
)
def test_what_an_expression_reads_is_seen(source: str, reads: set[tuple[str, ...]]) -> None:
    """Fixed keys are followed as far as they go; strings and comments are not read."""
    assert set(scan(source).reads) == reads


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("a" * 2049, "longer than 2048 bytes"),
        ("(" * (MAX_DEPTH + 1), "nest deeper"),
        ("[" * (MAX_DEPTH + 1), "nest deeper"),
        ("!" * 500 + "declared", "operators"),
        ("+".join(["1"] * 600), "operators"),
        ("a" + ".b" * 500, "operators"),
        ("args.xs.all(x, args.ys.all(y, x < y))", "inside another"),
        ("args.xs.map(x, (args.ys . filter (y, true)))", "inside another"),
        ("args.`x`", "unexpected"),
        ('"open', "unexpected"),
        ("x.y{a: 1}", "messages"),
    ],
)
def test_what_could_exhaust_the_library_is_refused(source: str, said: str) -> None:
    """Length, depth, operators and nesting of comprehensions are bounded before the library sees a source."""
    with pytest.raises(ValueError, match=said):
        scan(source)


def test_comprehensions_one_after_another_are_taken() -> None:
    """A comprehension over what another gave is no nesting."""
    assert scan("args.xs.filter(x, x > 1).all(y, y < 2)").bound == {"x", "y"}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("args.a.b", [("args", "a")]),
        ("has(args.a) && args.a.b == 1", [("args", "a", "b")]),
        ("has(args.a.b)", [("args", "a")]),
        ("'a' in args && args.a == 1", []),
        ("'b' in args.a", [("args", "a")]),
        ("args.a.size() > 1 && x.args.a == 1", [("args", "a")]),
        ("size(args) > 1 && args == {}", []),
    ],
)
def test_reads_that_nothing_asks_for_are_found(source: str, expected: list[tuple[str, ...]]) -> None:
    """Of a path the first part that may be absent; whole variables always are there."""
    assert list(unguarded(source)) == expected
    assert list(unguarded(source, [("args", "a"), ("args", "a", "b")])) == []


def test_a_function_is_renamed_where_it_is_called() -> None:
    """Not within a text, not as the name of a key, not as a part of a longer name."""
    source = "args.a.matches('matches(') && matches (args.matches, 'x') && args.matchesAll != \"matches(\""
    assert renamed(source, "matches", "finds") == (
        "args.a.finds('matches(') && finds (args.matches, 'x') && args.matchesAll != \"matches(\""
    )
    assert renamed(" a", "matches", "finds") == " a"


def test_the_literals_of_a_method_are_found() -> None:
    """One that is the whole argument, as it is spelled."""
    source = "a.matches('x\\\\.') && b.matches(r'y') || c.matches('z' + d) || e.contains('f') || matches(g, 'h')"
    assert list(literals(source, "matches")) == ["'x\\\\.'", "r'y'"]
