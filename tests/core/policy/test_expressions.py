from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import cel
import pytest

from proxy.core.jsontext import Json, SpelledFloat, SpelledInt, parse_exact, render_text
from proxy.core.policy.expressions import MAX_ITEMS, Expression, Scope
from proxy.core.policy.failures import EvaluationError
from proxy.core.policy.patterns import Pattern

ARGS: Json = {"x": 1.5, "n": 3, "s": "aB", "xs": [1, 2], "o": {"a": None}, "big": SpelledInt("9" * 20)}


def scope(args: Json = ARGS, **more: Json) -> Scope:
    values: dict[str, Json] = {"args": args, "tool": "t", "headers": {"x-team": "ops"}, **more}
    return Scope(lambda name: values[name])


@pytest.mark.parametrize(
    "source",
    [
        "args.x > 1 && args.n == 3.0 && args.n < 3.5",
        "args.s.lowerAscii() == 'ab' && args.s.upperAscii() == 'AB' && ' a '.trim() == 'a'",
        "has(args.o.a) && args.o.a == null && !has(args.zz)",
        "args.xs.all(i, i > 0) && size(args.xs) == 2",
        'headers["x-team"] == "ops"',
        "args.zz == 1 || true",
        "type(args.n) == int && 'x' in args.map(k, k)",
        r"args.s.matches('(?i)^\\pL+$') && matches(args.s, 'B') && !args.s.matches (r'\bB') && 'matches(' != args.s",
        "args.s.matches(args.s + '|x')",
    ],
)
def test_expressions_that_are_true(source: str) -> None:
    """Numbers compare across kinds, and what is absent can be asked for."""
    args = {key: value for key, value in ARGS.items() if key != "big"} if isinstance(ARGS, dict) else ARGS
    assert Expression.compile(source).is_true(scope(args))


@pytest.mark.parametrize(
    "source",
    [
        *("args.zz", "args.x", "1 / 0 == 1", "args.s > 1", "int(args.s) == 1", "args.big > 1", "args == {}"),
        *("args.x.matches('1')", "args.s.matches(args.x)", "args.s.matches(args.s + '(')"),
    ],
)
def test_expressions_that_cannot_be_evaluated(source: str) -> None:
    """Every error of the library is the one error of judging, and a result that is no truth value is one too. It is
    told once, in the author's own names."""
    with pytest.raises(EvaluationError) as told:
        Expression.compile(source).is_true(scope())
    assert "Compiled" not in str(told.value)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("args.a ==", "Syntax error"),
        ("", "CEL"),
        ("nothing.like.it == 1", "'nothing' is not known"),
        ("foo(1) == 1", "'foo' is not known"),
        ("args.xs.all(args, args > 1)", "variable already"),
        ("args.s.matches('a(')", "no regular expression"),
        ("args.s.matches(r'(?=a)')", "no regular expression"),
        (r"args.s.matches('\x28')", "no regular expression"),
    ],
)
def test_expressions_that_are_refused_at_load(source: str, said: str) -> None:
    """What cannot be meant is refused before a call meets it."""
    with pytest.raises(ValueError, match=said):
        Expression.compile(source)


def test_only_what_is_read_is_bounded() -> None:
    """A long list beside what an expression reads does not count."""
    long: Json = {"n": 1, "xs": [0] * (MAX_ITEMS + 1), "deep": {"ys": [[0]] * MAX_ITEMS}}
    assert Expression.compile("args.n == 1").is_true(scope(long))
    assert Expression.compile("args.deep.ys.size() == 1000").is_true(scope(long))
    for source in ("args.xs.size() > 1", "'n' in args"):
        with pytest.raises(EvaluationError, match="1000"):
            Expression.compile(source).is_true(scope(long))
    many: Json = {"rows": [[0] * 100] * 300}
    with pytest.raises(EvaluationError, match="values are read"):
        Expression.compile("args.rows.size() > 1").is_true(scope(many))


def test_a_value_is_turned_into_the_librarys_once() -> None:
    """A variable is asked for once, until it is forgotten."""
    asked: list[str] = []

    def find(name: str) -> Json:
        asked.append(name)
        return {"a": len(asked)}

    values, expression = Scope(find), Expression.compile("args.a == 1")
    assert [expression.is_true(values), expression.is_true(values)] == [True, True]
    values.forget("args")
    assert not expression.is_true(values)
    assert asked == ["args", "args"]


def test_a_text_must_be_text() -> None:
    """An expression that should give text and does not is an error."""
    assert Expression.compile("'a' + args.s").text(scope()) == "aaB"
    with pytest.raises(EvaluationError):
        Expression.compile("args.n").text(scope())


def test_an_object_keeps_spelling_and_has_a_stable_order() -> None:
    """Values that an expression passes on are written as they were."""
    old = parse_exact('{"z":1.50,"b":1e2,"k":true}').value
    assert isinstance(old, dict)
    expression = Expression.compile('{"y": [args.z], "a": 1, "b": args.b, "z": args.z, "k": 1}')
    for _ in range(5):
        assert render_text(expression.object(scope(old), old)) == '{"z":1.50,"b":1e2,"k":1,"a":1,"y":[1.5]}'


@pytest.mark.parametrize("source", ["[1]", "{1: 2}", "{'a': duration('1h')}", "{'a': 1.0 / 0.0}", "1"])
def test_an_object_must_be_json(source: str) -> None:
    """What JSON cannot say is an error."""
    with pytest.raises(EvaluationError):
        Expression.compile(source).object(scope(), {})


def test_a_panic_of_the_library_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library's panic is no ordinary exception; it counts as one, and nothing else does."""

    def raising(error: BaseException) -> Callable[[str], object]:
        def compiled(_: str) -> object:
            raise error

        return compiled

    panic = type("PanicException", (BaseException,), {})
    monkeypatch.setattr(cel, "compile", raising(panic()))
    with pytest.raises(ValueError, match="gave up"):
        Expression.compile("true")
    monkeypatch.setattr(cel, "compile", raising(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        Expression.compile("true")


def test_spelled_numbers_are_numbers() -> None:
    """Numbers that remember their spelling are read as what they are."""
    assert Expression.compile("args.a == 1.5").is_true(scope({"a": SpelledFloat("1.50")}))


def test_a_pattern_is_compiled_once_for_many_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A list of a thousand texts costs a thousand searches, and no more than one compilation."""
    compiled = list[str]()
    whole = Pattern.compile.__func__  # type: ignore[attr-defined]  # a class method's function

    def compile_(cls: type[Pattern], source: str) -> Pattern:
        compiled.append(source)
        found: Pattern = whole(cls, source)
        return found

    monkeypatch.setattr(Pattern, "compile", classmethod(compile_))
    monkeypatch.setattr("proxy.core.policy.expressions._pattern", lru_cache(Pattern.compile))
    expression = Expression.compile("args.words.exists(word, word.matches('^once [0-9]{3}$'))")
    words: list[Json] = ["once"] * 999
    assert not expression.is_true(scope({"words": words}))
    assert expression.is_true(scope({"words": [*words, "once 007"]}))
    assert compiled == ["^once [0-9]{3}$"]
