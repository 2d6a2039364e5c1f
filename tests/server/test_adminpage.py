"""The page of the admin port."""

from __future__ import annotations

from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from proxy.authoring.sources import load_set
from proxy.core.policy.compile import compile_policies
from proxy.core.policy.decide import DefaultAction, PolicySet
from proxy.metrics import HeldBatch, Hits
from proxy.server.adminpage import Page, render_page
from proxy.server.audit import Recent
from proxy.server.playground import Answer
from tests.core.batch.test_approval import PENDING
from tests.server.test_audit import RECORD

POLICY = """\
apiVersion: sidecall.io/v1
kind: ToolPolicy
metadata: {name: a&b}
spec:
  mode: shadow
  rules:
    - {name: <hide>, match: {tools: [x]}, hide: {}}
    - {name: second, block: {}}
    - {name: third, result: {replace: {content: x}}}
"""
HOSTILE = "<script>alert('\"1&')</script>"
NONE = compile_policies([], default_action=DefaultAction.ALLOW)


class Cells(HTMLParser):
    """The texts of table cells, and every tag."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.cells: list[str] = []
        self.tags: list[str] = []
        self._inside = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self._inside = tag == "td"
        if self._inside:
            self.cells.append("")

    def handle_endtag(self, tag: str) -> None:
        self._inside = self._inside and tag != "td"

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.cells[-1] += data


@pytest.fixture
def policies(tmp_path: Path) -> PolicySet:
    (tmp_path / "p.yaml").write_text(POLICY)
    return load_set([str(tmp_path / "p.yaml")], {})


def cells(page: Page) -> list[str]:
    return Cells(render_page(page)).cells


def test_an_empty_page_says_that_it_is_empty() -> None:
    """Nothing loaded and nothing decided is said in words."""
    page = render_page(Page(NONE, 0.0))
    for words in (
        "Nothing waits for a person.",
        "No held call waits",
        "No call was decided yet.",
        "No policy is loaded.",
    ):
        assert words in page
    assert "<td>" not in page


def test_every_rule_has_its_counts(policies: PolicySet) -> None:
    """In the order of the files, with action and mode; one that did nothing has none."""
    hits = {("a&b", "<hide>"): Hits(3, 4, 5), ("gone", "gone"): Hits(9), ("", ""): Hits(7)}
    assert cells(Page(policies, 0.0, hits=hits)) == [
        *("a&b", "<hide>", "hide", "shadow", "3", "4", "5"),
        *("a&b", "second", "block", "shadow", "0", "0", "0"),
        *("a&b", "third", "result.replace", "shadow", "0", "0", "0"),
    ]
    assert "No rule decided 7, which got defaultAction (allow)." in render_page(Page(policies, 0.0, hits=hits))


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(0.4, "0 s"), (119, "119 s"), (120, "2 min"), (7199, "119 min"), (7200, "2 h"), (172800, "2 d")],
)
def test_held_calls_have_an_age(seconds: float, told: str) -> None:
    """In the unit that people would take."""
    assert cells(Page(NONE, 0.0, held=[HeldBatch("b1", 2, "pay, read", seconds)])) == ["pay, read", "2", told, "b1"]


def test_decisions_have_their_time() -> None:
    """And the rule by its whole name, where one decided."""
    undecided = replace(RECORD, policy="", rule="", decision="allowed")
    found = cells(Page(NONE, 0.0, recent=[Recent(1.5, RECORD), Recent(0.0, undecided)]))
    assert found[:4] == ["1970-01-01 00:00:01Z", RECORD.tool, "blocked", "p/r"]
    assert found[8:12] == ["1970-01-01 00:00:00Z", RECORD.tool, "allowed", ""]


def test_what_waits_has_its_buttons() -> None:
    """Text of models is escaped, also in what the form names."""
    page = render_page(Page(NONE, PENDING.created + 300, pending=[replace(PENDING, id='a"b', arguments='{"a":"<b>"}')]))
    assert 'action="/admin/approvals/a&quot;b"' in page
    assert "{&quot;a&quot;:&quot;&lt;b&gt;&quot;}" in page
    assert page.count('<button name="decision"') == 2
    assert "<td>5 min</td>" in page


def test_nothing_that_others_wrote_is_markup(policies: PolicySet) -> None:
    """Tools, arguments, ids, rules, what was typed and what came of it."""
    fields = dict.fromkeys(("tool", "model", "client", "user", "args", "result", "more", "api", "owner"), HOSTILE)
    page = render_page(
        Page(
            policies,
            0.0,
            tools=[HOSTILE],
            recent=[Recent(0.0, replace(RECORD, tool=HOSTILE, model=HOSTILE, client=HOSTILE))],
            pending=[replace(PENDING, tool=HOSTILE, arguments=HOSTILE, message=HOSTILE, id=HOSTILE, client=HOSTILE)],
            held=[HeldBatch(HOSTILE, 1, HOSTILE, 0.0)],
            answer=Answer(fields, HOSTILE, HOSTILE),
        )
    )
    assert "script" not in Cells(page).tags
    assert "<script" not in page
    assert "<hide>" not in page
    assert page.count("&lt;script&gt;alert(&#x27;&quot;1&amp;&#x27;)&lt;/script&gt;") == 1 + 3 + 5 + 2 + 2 + 7
    told = render_page(Page(policies, 0.0, answer=Answer(fields, problem=HOSTILE)))
    assert '<p class="problem">&lt;script' in told


def test_what_was_typed_is_there_again() -> None:
    """To the line break that it begins with, and with what was chosen."""
    answer = Answer({"tool": 'a"', "args": "\n{}", "owner": "proxy"}, "allowed", "decision: allowed")
    page = render_page(Page(NONE, 0.0, answer=answer))
    assert 'name="tool" value="a&quot;" required>' in page
    assert '<textarea name="args" rows="3">\n\n{}</textarea>' in page
    assert "<option selected>proxy</option>" in page
    assert "<strong>allowed</strong></p><pre>decision: allowed</pre>" in page


def test_a_page_that_is_watched_loads_itself_again() -> None:
    """Without a script, and only when it is asked to: what is typed would be lost."""
    assert 'http-equiv="refresh"' in render_page(Page(NONE, 0.0, live=True))
    assert 'http-equiv="refresh"' not in render_page(Page(NONE, 0.0))
