from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.authoring.files import CONFIG, POLICY, record, write, write_audit
from tests.commands.conftest import Run

HEAD = "apiVersion: sidecall.io/v1\nkind: ToolPolicy\nmetadata: {name: p}\nspec:\n  rules:\n"


def test_what_can_be_used_is_counted(run: Run) -> None:
    """Also with a configuration that names it."""
    write(policy=POLICY, sidecall=CONFIG)
    assert run("check", "policy.yaml", "sidecall.yaml") == (0, "1 configuration, 1 policy: no errors, 0 warnings\n", "")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "    - {name: r, blok: {}}\n",
            "6:17: unknown key 'blok' (did you mean 'block'?): expected one of allow, answer",
        ),
        ("    - {name: r, match: {tools: search}, block: {}}\n", "6:25: expected a list, got 'search': write [search]"),
        (
            "    - {name: r, match: [a], block: {}}\n",
            "6:17: expected a mapping such as {key: value}, or {}, got a list",
        ),
        ("    - {name: r, match: {declared: 'yes'}, allow: {}}\n", "6:25: expected true or false, got 'yes'"),
        ("    - {name: r, match: {args: {a: {gt: '5'}}}, block: {}}\n", "6:36: expected a number, got '5'"),
        ("    - {block: {}}\n", "6:7: the key 'name' is missing; expected 'name: …' here"),
        (
            "    - {name: r, when: args.a ==, block: {}}\n",
            "6:17: no CEL expression: Syntax error: mismatched input '<EOF>'; "
            "expected one such as has(args.limit) && args.limit > 10",
        ),
        ("    - {name: r, when: 'foo(args)', block: {}}\n", "6:17: the function 'foo' is not known; expected one of "),
        (
            "    - {name: r, when: 'result == tool', block: {}}\n",
            "6:17: 'result' is known in a result rule only; expected args",
        ),
        (
            "    - {name: r, when: nothing.a == 1, block: {}}\n",
            "6:17: the variable 'nothing' is not known; expected one of",
        ),
        (
            '    - {name: r, match: {args: {a: {regex: "("}}}, block: {}}\n',
            "6:36: no regular expression that RE2 can read: missing ): (; expected one such as '^[a-z]+$'",
        ),
        (
            '    - {name: r, match: {args: {a: {regex: "(?=x)"}}}, block: {}}\n',
            "6:36: no regular expression that RE2 can read: invalid perl operator: (?= "
            "(RE2 has no look-around and no references back); expected one such as",
        ),
        (
            "    - {name: r, match: {args: {u: {host: 'http://x/'}}}, block: {}}\n",
            "6:36: expected a host such as example.com, *.example.com or private, got 'http://x/'",
        ),
        (
            "    - {name: r, allow: {}}\n    - {name: r, block: {}}\n",
            "7:8: there is a rule 'r' already; expected a name of its own",
        ),
        ("    - {name: no, block: {}}\n", "6:8: expected text, got the truth value false: put it in quotes"),
        ("    - {name: 1.10, block: {}}\n", "6:8: expected text, got the number 1.1: put it in quotes"),
        ("    - {name: 2026-01-01, block: {}}\n", "6:14: this is read as a date: put it in quotes to have text"),
        (
            "    - {name: r, match: {tools: [no]}, block: {}}\n",
            "6:33: expected text, got the truth value false: put it in",
        ),
        (
            "    - {name: r, block: no}\n",
            "6:17: expected a mapping such as {key: value}, or {}, got the truth value false",
        ),
        ("    - {name: r, block: }\n", "6:17: expected a mapping, got nothing (null): write block: {}"),
        ("    -\tname: r\n", "6:6: a tab is no indentation in YAML; expected blanks"),
        ("    - {name: r, allow: {}, block: {}}\n", "6:28: there is 'allow' already; expected one of them alone"),
        ("    - {name: r}\n", "6:7: expected one of allow, block, answer, rewrite, validate, limit, requireApproval"),
        (
            "    - {name: r, block: {}, block: {}}\n",
            "6:28: the key 'block' is here twice; the first one is on line 6: leave one",
        ),
        ("    - {name: r, match: {args: {a: {}}}, block: {}}\n", "6:32: expected at least one condition"),
        (
            "    - {name: r, limit: {max: 5, per: 1m, by: [ip]}}\n",
            "6:47: expected tool, tenant, client, user or a path such as args.id, got 'ip'",
        ),
        ("    - {name: r, limit: {max: 5, per: 0s}}\n", "6:33: expected more than 0, got the number 0"),
        (
            "    - {name: r, middleware: mine}\n",
            "6:17: expected a Python object such as package.module:name, got 'mine'",
        ),
        (
            "    - {name: r, hide: {}, when: 'tool == model'}\n",
            "6:27: hide matches by name, model, api, client and headers alone; expected those, or block",
        ),
        (
            "    - name: r\n     block: {}\n",
            "7:6: this is not YAML: did not find expected '-' indicator; expected the indentation of",
        ),
        (
            "    - name: r\n      block: {message: it's [x]: y}\n",
            "7:29: this is not YAML: did not find expected ',' or '}'; expected ',' or an end; text that has quotes, ",
        ),
        (
            "    - name: 'r\n      block: {}\n",
            "8:1: this is not YAML: found unexpected end of stream; expected the quote",
        ),
        (
            "    - {name: r, limit: {max: 5, per: hour}}\n",
            "6:33: expected a duration such as '250ms', '5s', '10m' or '24h'",
        ),
        ("    - {name: r, match: {args: {p: {inside: w}}}, block: {}}\n", "6:36: expected an absolute path, got 'w'"),
        (
            "    - {name: r, validate: {schema: {type: strng}}}\n",
            "6:28: no JSON Schema that can be used: "
            "\"strng\" is not valid under any of the schemas listed in the 'anyOf' keyword at /type; expected one",
        ),
        ("    - {name: r, block: {then: halt}}\n", "6:25: 'halt' is not known: expected 'continue', 'stop' or 'fail'"),
    ],
    ids=lambda text: text.strip()[:40] if text.startswith(" ") else None,
)
def test_every_kind_of_mistake_has_a_line_that_says_where_and_what_to_write(text: str, told: str, run: Run) -> None:
    """File, line and column come first."""
    write(policy=HEAD + text)
    status, out, problems = run("check", "policy.yaml")
    assert (status, out, problems.count("\n")) == (2, "", 1)
    assert problems.startswith(f"policy.yaml:{told}"), problems


def test_a_policy_name_that_is_taken_is_told(run: Run) -> None:
    """With who has it."""
    write(a=POLICY, b=POLICY)
    assert run("check", ".")[2] == (
        "b.yaml:3:12: the policy name 'orders' is taken by a.yaml:3; expected a name of its own\n"
    )


def test_warnings_are_errors_when_they_are_to_be(run: Run) -> None:
    """They are told as warnings all the same."""
    write(policy=POLICY.replace("has(args.limit) && ", ""))
    warning = (
        "policy.yaml:11:13: warning: args.limit is read without has(args.limit): "
        "where it is absent, the rule cannot be evaluated\n"
    )
    assert run("check", "policy.yaml") == (0, "0 configurations, 1 policy: no errors, 1 warning\n", warning)
    assert run("check", "--strict", "policy.yaml")[0] == 1


def test_records_tell_what_is_not_used(run: Run) -> None:
    """Rules where they stand, tools by the file that has them."""
    write(policy=POLICY)
    audit = write_audit("audit.jsonl", record("search", {"limit": 99}), record("pay"))
    status, _, told = run("check", "policy.yaml", "--seen", audit)
    assert (status, told.splitlines()) == (
        0,
        [
            "policy.yaml:6:7: warning: the rule 'no-deletes' is for no call that was recorded",
            "audit.jsonl: warning: no rule names the tool 'pay' (1 call)",
        ],
    )
    assert run("check", "--strict", "policy.yaml", "--seen", audit)[0] == 1
    assert run("check", "policy.yaml", "--seen", "none.jsonl")[0] == 2


def test_machines_get_json(run: Run) -> None:
    """With every part by itself."""
    write(policy=POLICY.replace("has(args.limit) && ", ""))
    found = json.loads(run("check", "policy.yaml", "--output", "json")[1])
    assert found["errors"] == []
    assert [(one["file"], one["line"], one["column"]) for one in found["warnings"]] == [("policy.yaml", 11, 13)]
    Path("policy.yaml").write_text(POLICY.replace("block:", "blok:"))
    status, told, _ = run("check", "policy.yaml", "--output", "json")
    assert (status, [one["line"] for one in json.loads(told)["errors"]]) == (2, [8])
