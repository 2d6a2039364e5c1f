from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from proxy.core.calls import Batch, CallId, Kind, Owner, RequestFacts, Tenant, ToolCall
from proxy.core.jsontext import render_text
from proxy.core.policy.decide import CountCall, Decision, DefaultAction, RuleName, Shadow, Subject, Then, Verdict
from tests.core.policy.engine import NO, UNEVALUATED, blocked, chain, finish, judge, policies, rule, subject

ALLOWED = Verdict(Decision.ALLOWED)


def test_a_block_tells_policy_rule_and_message() -> None:
    """The text is exactly the contract's."""
    verdict = judge([rule("delete_*", name="no-deletes", block={"message": "Not here.", "then": "stop"})], "delete_x")
    assert verdict == Verdict(
        Decision.BLOCKED,
        "p0",
        "no-deletes",
        result="Tool call blocked by policy p0/no-deletes: Not here.",
        message="Not here.",
        then=Then.STOP,
    )
    assert verdict.held


def test_an_answer_is_its_content_or_is_computed() -> None:
    """A canned result, and one from the arguments."""
    assert judge([rule(answer={"content": "pong"})], "t").result == "pong"
    verdict = judge([rule(answer={"expr": "'hello ' + args.name"})], "t", {"name": "Ada"})
    assert (verdict.decision, verdict.result) == (Decision.ANSWERED, "hello Ada")
    assert judge([rule(answer={"expr": "args.n"})], "t", {"n": 1}).failed


def test_a_call_that_no_rule_decides_gets_the_default() -> None:
    """The default either lets it go or blocks it in its own words."""
    assert judge([], "t") == ALLOWED
    verdict = judge(policies(default=DefaultAction.BLOCK), "t")
    assert (verdict.result, verdict.held, verdict.rule) == ("Tool call blocked: no policy allows it", True, "")


def test_the_first_rule_that_decides_wins() -> None:
    """Order is the order of policies, then of rules."""
    rules = policies([rule("a", name="first", allow={})], [rule(name="second", block=NO)])
    assert judge(rules, "a") == Verdict(Decision.ALLOWED, "p0", "first")
    assert judge(rules, "b").rule == "second"


def test_a_rule_that_allows_is_exact_and_so_is_its_policys_match() -> None:
    """Another spelling is not let through by either."""
    rules = policies({"match": {"tools": ["search_*"]}, "rules": [rule(allow={})]}, default=DefaultAction.BLOCK)
    assert not judge(rules, "functions.search_all").held
    assert all(judge(rules, name).held for name in ("Search_all", "search-all", ""))


def test_a_condition_that_cannot_be_judged_does_not_allow_and_does_hold() -> None:
    """Of a value of another type the worst is believed."""
    amount = {"match": {"args": {"amount": {"lt": 10}}}}
    small = policies([{"name": "r", **amount, "allow": {}}], default=DefaultAction.BLOCK)
    assert not judge(small, "pay", {"amount": 5}).held
    verdict = judge(small, "pay", {"amount": "5"})
    assert (verdict.held, verdict.errors) == (True, ())
    assert judge([{"name": "r", **amount, "block": NO}], "pay", {"amount": "5"}).failed


@pytest.mark.parametrize("arguments", ["[1]", "{", "1", '{"a":NaN}', '{"a":"\\ud800"}'])
def test_arguments_that_are_no_object_are_an_error_to_a_rule_that_reads_them(arguments: str) -> None:
    """A rule that reads them cannot be evaluated; one that does not can."""
    for reading in ({"when": "args.a == 1"}, {"match": {"args": {"a": {"equals": 1}}}}):
        verdict = judge([{"name": "r", **reading, "block": NO}], "t", arguments)
        assert (verdict.result, verdict.failed) == (blocked(UNEVALUATED), True)
        assert verdict.errors == (RuleName("p0", "r"),)
    assert judge([rule(when="tool == 'x' || rawArgs == 'x'", block=NO)], "t", arguments) == ALLOWED


def test_failure_policy_ignore_skips_the_rule() -> None:
    """The error is told, and the next rule decides."""
    rules = policies({"failurePolicy": "Ignore", "rules": [rule(when="args.a == 1", block=NO)]})
    assert judge(rules, "t") == Verdict(Decision.ALLOWED, errors=(RuleName("p0", "r"),))


@pytest.mark.parametrize(
    "when",
    [
        "tool == 't' && callId == 'call_1' && model == 'm' && api == 'chat' && owner == 'client' && declared",
        "user == 'u' && client == 'c' && metadata.env == 'prod' && headers['x-team'] == 'ops'",
        "batch.size == 2 && batch.index == 1 && batch.tools == ['s', 't']",
        "rawArgs == '{ \"a\": 1 }' && args.a == 1",
    ],
)
def test_an_expression_sees_the_call_and_its_request(when: str) -> None:
    """Every variable of the contract is there."""
    facts = RequestFacts(
        model="m", headers={"x-team": "ops"}, user="u", client="c", metadata={"env": "prod"}, declared={"t": None}
    )
    batch = Batch(2, 1, ("s", "t"))
    assert judge([rule(when=when, block=NO)], "functions.t", '{ "a": 1 }', facts=facts, batch=batch).held


def test_an_unknown_batch_cannot_be_read() -> None:
    """What is not known yet is an error, not a guess."""
    assert judge([rule(when="batch.size > 1", block=NO)], "t").failed


def test_a_rule_after_a_rewrite_sees_the_new_arguments() -> None:
    """Arguments and their text are the changed ones."""
    rules = [
        rule(name="a", rewrite={"merge": {"a": 1}}),
        rule(name="b", when="args.a == 1 && rawArgs == '{\"a\":1}'", rewrite={"merge": {"b": 2}}),
        rule("x", name="c", when="args.b == 2", allow={}),
    ]
    verdict = judge(rules, "x")
    assert verdict == Verdict(Decision.REWRITTEN, "p0", "b", text='{"a":1,"b":2}')


@pytest.mark.parametrize(
    ("text", "surfaced"),
    [
        ('{"a":1,"a":2}', '{"a":2}'),
        ('{"a":2} tail', '{"a":2}'),
        ('{ "a": 2 }', None),
        ('{"a":1,"\\u0061":2}', '{"a":2}'),
    ],
)
def test_the_owner_gets_the_reading_that_rules_saw(text: str, surfaced: str | None) -> None:
    """A text with two readings is surfaced with the one that an enforced rule looked at."""
    looking = rule("t", when="args.a == 1", block=NO)
    assert judge([looking], "t", text).text == surfaced
    assert judge([looking], "unseen", text).text is None
    assert judge(policies({"mode": "shadow", "rules": [looking]}), "t", text).text is None
    assert judge([rule("t", when="rawArgs == 'x'", block=NO)], "t", text).text == surfaced


def test_a_shadow_rule_is_noted_and_not_applied() -> None:
    """What it would have done is told once a rule, and its policy's own chain ends where it would have."""
    shadow = {
        "mode": "shadow",
        "rules": [
            rule(name="change", rewrite={"merge": {"a": 1}}),
            rule("t", name="broken", when="args.no", block=NO),
            rule(name="never", block=NO),
        ],
    }
    verdict = judge(policies(shadow, [rule(block=NO)]), "t")
    assert (verdict.policy, verdict.rule, verdict.errors) == ("p1", "r", (RuleName("p0", "broken"),))
    assert verdict.shadows == (Shadow("p0", "change", Decision.REWRITTEN), Shadow("p0", "broken", Decision.BLOCKED))
    allowing = policies({"mode": "shadow", "rules": [rule(name="a", allow={}), rule(name="b", block=NO)]})
    assert judge(allowing, "t") == ALLOWED


def test_defer_does_not_end_the_chain() -> None:
    """A deferred call may still be blocked."""
    rules = [rule("later_*", defer={}), rule("later_x", name="s", block=NO)]
    assert judge(rules, "later_y") == Verdict(Decision.ALLOWED, deferred=True)
    assert judge(rules, "later_x").held
    assert judge(policies({"mode": "shadow", "rules": rules[:1]}), "later_y") == ALLOWED


def test_a_call_to_a_hidden_tool_is_blocked_come_what_may() -> None:
    """An earlier rule that allows does not bring a hidden tool back."""
    rules = [rule(name="all", allow={}), rule("secret_*", name="hide", hide={})]
    assert judge(rules, "Secret_a").rule == "hide"
    assert judge(rules, "search").rule == "all"


class Counting:
    """Counts as a store does."""

    def __init__(self) -> None:
        self.seen: Counter[tuple[str, ...]] = Counter()

    def __call__(self, consult: CountCall) -> bool:
        self.seen[consult.key] += 1
        return self.seen[consult.key] <= consult.limit


def test_a_limit_asks_for_a_count() -> None:
    """Over the limit the call is blocked, and each key is counted for itself."""
    limits = [rule(limit={"max": 2, "per": "90s", "by": ["tool", "tenant", "client", "user", "args.to.iban"]})]
    counting, facts = Counting(), RequestFacts(tenant=Tenant("t"), client="c", user="u")
    made = [("Pay", 1), ("pay", 1.0), ("pay", 2), ("pay", 1)]
    held = [
        finish(chain(policies(limits), facts).judge(subject(name, {"to": {"iban": iban}})), counting)
        for name, iban in made
    ]
    assert [verdict.held for verdict in held] == [False, False, False, True]
    assert held[-1].result == blocked("more than 2 calls within 90s")
    assert next(iter(counting.seen)) == ("p0", "r", "tool=pay", "tenant=t", "client=c", "user=u", "args.to.iban=1")


def test_a_limit_by_an_argument_that_cannot_be_read_is_an_error() -> None:
    """What is absent is counted as absent; what is no object is an error."""
    limits = [rule(limit={"max": 1, "per": "250ms", "by": ["args.x"]})]
    assert judge(limits, "t", "[1]").failed
    assert judge(limits, "t", "{}") == ALLOWED
    over = finish(chain(limits).judge(subject("t")), lambda _: False)
    assert over.message == "more than 1 call within 250ms"


def wrapper(*uses: Any) -> dict[str, Any]:
    return {"tool_uses": [{"recipient_name": f"functions.{name}", "parameters": given} for name, given in uses]}


WRAPPER = "multi_tool_use.parallel"


def test_a_wrapper_is_judged_by_what_is_in_it() -> None:
    """It is held whole when one of its calls is, and its own name counts for nothing."""
    rules = policies([rule("search", allow={}), rule("delete_*", name="d", block=NO)], default=DefaultAction.BLOCK)
    assert judge(rules, WRAPPER, wrapper(("search", {}), ("search", {}))) == Verdict(Decision.ALLOWED, "p0", "r")
    assert judge(rules, f"functions.{WRAPPER}", wrapper(("search", {}), ("delete_x", {}))).rule == "d"
    assert judge(rules, WRAPPER, wrapper((WRAPPER, wrapper(("delete_x", {}))))).rule == "d"
    assert judge(rules, WRAPPER, wrapper(("pay", {}))).result == "Tool call blocked: no policy allows it"


def test_arguments_in_a_wrapper_are_read_and_not_changed() -> None:
    """A rule that would change them cannot be evaluated."""
    reading, changing = rule("t", when="args.a == 1", block=NO), rule("t", rewrite={"merge": {"a": 1}})
    assert judge([reading], WRAPPER, wrapper(("t", {"a": 1}))).held
    assert judge([reading], WRAPPER, wrapper(("t", '{"a":1}'))).held
    assert judge([reading], WRAPPER, wrapper(("t", {"a": 2}))) == ALLOWED
    assert judge([changing], WRAPPER, wrapper(("t", {"a": 2}))).failed
    assert judge([changing], WRAPPER, wrapper(("t", {"a": 1}))) == ALLOWED


@pytest.mark.parametrize(
    "arguments", ["{}", "[1]", "{", {"tool_uses": []}, {"tool_uses": 1}, {"tool_uses": [1]}, {"tool_uses": [{}]}]
)
def test_a_wrapper_that_cannot_be_read_meets_every_rule_that_can_hold(arguments: Any) -> None:
    """What is in it is not known, so the worst is believed."""
    assert judge([rule("delete_*", block=NO)], WRAPPER, arguments).held
    assert judge([rule("delete_*", block=NO)], WRAPPER, arguments, kind=Kind.CUSTOM).held
    assert judge(policies([rule("x", allow={})], default=DefaultAction.BLOCK), WRAPPER, arguments).held


def test_a_wrapper_defers_notes_and_cleans_as_its_calls_do() -> None:
    """What its calls gave is put together, and a text with two readings is surfaced with one."""
    rules = policies(
        [rule("later", defer={})],
        {"mode": "shadow", "rules": [rule(block=NO)]},
        {"failurePolicy": "Ignore", "rules": [rule(when="args.no", block=NO)]},
    )
    verdict = judge(rules, WRAPPER, wrapper(("later", {}), ("search", {})))
    assert (verdict.deferred, verdict.shadows) == (True, (Shadow("p1", "r", Decision.BLOCKED),))
    assert verdict.errors == (RuleName("p2", "r"),)
    text = '{"tool_uses":[],"tool_uses":[{"recipient_name":"a","parameters":{}}]}'
    assert judge([rule("x", block=NO)], WRAPPER, text).text == '{"tool_uses":[{"recipient_name":"a","parameters":{}}]}'
    assert judge([], WRAPPER, text) == ALLOWED
    assert judge(policies({"mode": "shadow", "rules": [rule("x", block=NO)]}), WRAPPER, text) == ALLOWED


@pytest.mark.parametrize("text", ['{"limit": 11}', '{"limit": "1"}', "{}", "[]", "{", '{"limit": 1} x', '"[1]"'])
def test_validate_blocks_what_does_not_parse_or_fit(text: str) -> None:
    """An inline schema, and the message for the model."""
    schema = {"properties": {"limit": {"type": "integer", "maximum": 10}}, "required": ["limit"]}
    verdict = judge([rule(validate={"schema": schema})], "t", text)
    assert verdict.held
    assert (verdict.result or "").startswith(blocked("the arguments "))
    assert not verdict.failed


def test_validate_passes_what_fits() -> None:
    """A key that comes twice parses, and is surfaced once."""
    rules = [rule(validate={"schema": {"properties": {"limit": {"maximum": 10}}}})]
    assert judge(rules, "t", '{"limit": 5}') == ALLOWED
    assert judge(rules, "t", '"{\\"limit\\": 5}"') == ALLOWED
    assert judge(rules, "t", '{"limit": 11, "limit": 5}').text == '{"limit":5}'


def test_validate_takes_the_declared_schema() -> None:
    """A tool without one has nothing to fit, and one that cannot be used is an error."""
    rules = [rule(validate={"schema": "declared"})]
    facts = RequestFacts(declared={"t": {"properties": {"n": {"type": "integer"}}}, "bad": {"type": 1}, "free": None})
    assert [judge(rules, "t", {"n": n}, facts=facts).held for n in (5, "5")] == [False, True]
    assert judge(rules, "bad", facts=facts).failed
    assert judge(rules, "free", facts=facts) == judge(rules, "made_up", facts=facts) == ALLOWED


def test_owner_and_declared_are_matched() -> None:
    """Whose call it is, and whether the request knows it."""
    facts = RequestFacts(declared={"t": None, "files.read": None})
    proxied = [{"name": "r", "match": {"owner": "proxy"}, "block": NO}]
    assert [judge(proxied, "t", owner=owner).held for owner in Owner] == [False, True, False]
    made_up = [{"name": "r", "match": {"declared": False}, "block": NO}]
    assert not judge(made_up, "functions.t", facts=facts).held
    assert not judge(made_up, "read", facts=facts, namespace="files").held
    assert judge(made_up, "read", facts=facts).held


def approval(rules: Any, arguments: Any = "{}", **more: Any) -> Verdict:
    return judge(rules, "search", arguments, owner=Owner.UPSTREAM, kind=Kind.APPROVAL, namespace="docs", **more)


@pytest.mark.parametrize(
    ("parts", "verdict"),
    [
        ({"allow": {}}, Verdict(Decision.ALLOWED, "p0", "r")),
        ({"defer": {}}, ALLOWED),
        ({"rewrite": {"merge": {"a": 1}}}, ALLOWED),
        ({"validate": {"schema": {"required": ["a"]}}}, ALLOWED),
        ({"when": "owner == 'upstream' && declared", "allow": {}}, Verdict(Decision.ALLOWED, "p0", "r")),
    ],
)
def test_a_call_of_the_upstream_may_go_ahead(parts: dict[str, Any], verdict: Verdict) -> None:
    """It is never put off, and a rewrite that changes nothing is none."""
    assert approval([{"name": "r", **parts}], {"a": 1}) == verdict


@pytest.mark.parametrize(
    ("parts", "message", "failed"),
    [
        ({"block": NO}, "no", False),
        ({"answer": {"content": "x"}}, UNEVALUATED, True),
        ({"answer": {"expr": "'x'"}}, UNEVALUATED, True),
        ({"rewrite": {"merge": {"a": 2}}}, UNEVALUATED, True),
        ({"rewrite": {"expr": "{'b': 1}"}}, UNEVALUATED, True),
        ({"validate": {"schema": {"properties": {"a": {"type": "string"}}}}}, "the arguments do not fit: ", False),
        ({"match": {"tools": ["docs.search"], "owner": "upstream"}, "block": NO}, "no", False),
    ],
)
def test_a_call_of_the_upstream_is_blocked_or_its_rule_fails(parts: dict[str, Any], message: str, failed: bool) -> None:
    """A call that somebody else runs can be neither answered nor changed."""
    verdict = approval([{"name": "r", **parts}], {"a": 1})
    assert (verdict.decision, verdict.failed) == (Decision.BLOCKED, failed)
    assert (verdict.result or "").startswith(blocked(message))
    assert verdict.text is None
    ignoring = policies({"failurePolicy": "Ignore", "rules": [{"name": "r", **parts}]})
    assert approval(ignoring, {"a": 1}).held is not failed


def test_calls_of_the_upstream_are_counted() -> None:
    """A limit holds for them as for others."""
    limits = chain([rule("docs.*", limit={"max": 1, "per": "1h", "by": ["tool"]})])
    made, counting = subject("search", owner=Owner.UPSTREAM, namespace="docs"), Counting()
    assert [finish(limits.judge(made), counting).held for _ in range(2)] == [False, True]


@pytest.mark.parametrize("text", ['{"a":2,"a":1}', '{"a":1} x'])
def test_a_rule_cannot_read_what_the_upstream_may_read_otherwise(text: str) -> None:
    """There is no text that its owner could be given instead."""
    for reading in ({"when": "args.a == 2"}, {"match": {"args": {"a": {"equals": 2}}}}):
        assert approval([{"name": "r", **reading, "block": NO}], text).failed
    assert approval([rule(validate={"schema": True})], text).held
    assert approval([rule("other", when="args.a == 2", block=NO)], text) == ALLOWED


def action(name: str, value: Any, rules: Any, **more: Any) -> Verdict:
    call = ToolCall(CallId("call_1"), name, render_text(value), Kind.ACTION, unwrapped=True)
    return finish(chain(rules, **more).judge(Subject(call, Owner.CLIENT)))


@pytest.mark.parametrize(
    ("name", "value", "args"),
    [
        ("shell", {"commands": ["ls", "rm -rf /"], "timeout_ms": 5}, {"commands": {"longerThan": 1}}),
        ("shell", {"commands": ["ls"], "timeout_ms": 5}, {"timeout_ms": {"lt": 10}}),
        ("local_shell", {"type": "exec", "command": ["ls"], "env": {"A": "1"}}, {"env.A": {"equals": "1"}}),
        ("apply_patch", {"type": "delete_file", "path": "/etc/x"}, {"type": {"in": ["delete_file"]}}),
        ("apply_patch", {"type": "update_file", "path": "a/../../x"}, {"path": {"notInside": "/workspace"}}),
        ("computer", {"type": "click", "x": 1}, {"type": {"equals": "click"}}),
        ("tool_search", {"goal": "mail"}, {"goal": {"regex": "^ma"}}),
    ],
)
def test_conditions_hold_on_the_action_of_an_item(name: str, value: Any, args: dict[str, Any]) -> None:
    """Its arguments are the action's object."""
    assert action(name, value, [{"name": "r", "match": {"tools": [name], "args": args}, "block": NO}]).result == (
        blocked("no")
    )
    assert not action(name, {}, [rule("other", block=NO)]).held


def test_expressions_and_rewriting_see_the_action_of_an_item() -> None:
    """What is written anew is an object again, in no string."""
    looking = [rule("shell", when="args.commands.exists(c, c.startsWith('rm '))", block=NO)]
    assert action("shell", {"commands": ["ls", "rm x"]}, looking).held
    assert not action("shell", {"commands": ["ls"]}, looking).held
    verdict = action(
        "shell", {"commands": ["ls"], "timeout_ms": 90_000}, [rule(rewrite={"clamp": {"timeout_ms": {"max": 5000}}})]
    )
    assert (verdict.decision, verdict.text) == (Decision.REWRITTEN, '{"commands":["ls"],"timeout_ms":5000}')
    assert action("shell", ["ls"], looking).failed


def test_an_action_is_declared_by_the_type_of_its_tool() -> None:
    """The request lists `shell`; a shell that it does not list was made up."""
    made_up = policies([{"name": "r", "match": {"declared": False}, "block": NO}])
    facts = RequestFacts(declared={"shell": None, "fs.read": None})
    assert not action("shell", {}, made_up, facts=facts).held
    assert action("apply_patch", {}, made_up, facts=facts).held


def test_a_namespaced_tool_is_not_the_tool_of_that_name_alone() -> None:
    """Declared is what the namespace declares, and so are its schemas."""
    facts = RequestFacts(declared={"read": {"required": ["path"]}, "fs.read": {"required": ["file"]}})
    made_up = [{"name": "r", "match": {"declared": False}, "block": NO}]
    assert judge(made_up, "read", facts=facts, namespace="mail").held
    assert not judge(made_up, "read", facts=facts, namespace="fs").held
    fitting = [rule(validate={"schema": "declared"})]
    held = [
        judge(fitting, "read", {given: 1}, facts=facts, namespace=namespace).held
        for namespace in ("", "fs")
        for given in ("path", "file")
    ]
    assert held == [False, True, True, False]


def test_not_tools_is_exact() -> None:
    """Another spelling is not left out."""
    rules = [{"name": "r", "match": {"notTools": ["orders_*"]}, "block": NO}]
    assert [judge(rules, name).held for name in ("orders_get", "Orders_get", "users_get")] == [False, True, True]
