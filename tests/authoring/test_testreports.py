from __future__ import annotations

from xml.etree import ElementTree

from proxy.authoring.testing import CaseReport, Coverage, Report
from proxy.authoring.testreports import difference_line, report_junit, report_object
from proxy.core.exchange.cases import CaseOutcome, Difference
from proxy.core.jsontext import Json
from proxy.errors import Problem


def case(name: str, *differences: Difference, file: str = "a.yaml", line: int = 5) -> CaseReport:
    return CaseReport(Problem(file, line, 3, ""), "orders", name, CaseOutcome(differences, ()))


FAILING = case("it's <odd>\x00", Difference("decision", "blocked", "allowed"), Difference("args", {"a": 1}, {"a": "<"}))
UNREACHED = Problem("p.yaml", 6, 7, "orders/cap")
REPORT = Report((case("well"), FAILING, case("other", file="b.yaml")), Coverage(3, (UNREACHED,), ()))


def test_a_difference_is_one_line() -> None:
    """In the words of a test document."""
    lines: list[tuple[str, Json, Json, str]] = [
        ("decision", "blocked", "allowed", "decision: expected blocked, got allowed"),
        ("rule", "", "cap", 'rule: expected "", got cap'),
        ("args", {"a": 1}, None, 'args: expected {"a":1}, got null'),
        ("contains", "x", "abc", "contains: expected the text to contain x, got abc"),
        ("batch.1.lacks", "b", "abc", "batch.1.lacks: expected the text not to contain b, got abc"),
    ]
    for key, expected, got, line in lines:
        assert difference_line(Difference(key, expected, got)) == line


def test_a_report_for_machines_has_every_case() -> None:
    """And the coverage where that is asked for."""
    found = report_object(REPORT, coverage=True)
    assert (found["passed"], found["failed"]) == (2, 1)
    assert found["coverage"] == {
        "rules": 3,
        "unreached": [{"rule": "orders/cap", "file": "p.yaml", "line": 6}],
        "withoutNearMiss": [],
    }
    cases = found["cases"]
    assert isinstance(cases, list)
    assert cases[0] == {
        "file": "a.yaml",
        "line": 5,
        "document": "orders",
        "name": "well",
        "passed": True,
        "differences": [],
    }
    assert "coverage" not in report_object(REPORT, coverage=False)


def test_junit_is_xml_whatever_a_case_is_called() -> None:
    """A suite a file, a test a case; what XML cannot hold is replaced."""
    suites = ElementTree.fromstring(report_junit(REPORT))
    assert suites.attrib == {"name": "sidecall", "tests": "3", "failures": "1", "errors": "0"}
    assert [(suite.get("name"), suite.get("tests"), suite.get("failures")) for suite in suites] == [
        ("a.yaml", "2", "1"),
        ("b.yaml", "1", "0"),
    ]
    well, failing = suites[0]
    assert (well.get("name"), list(well)) == ("well", [])
    assert failing.get("name") == "it's <odd>\ufffd"
    (failure,) = failing
    assert failure.get("message") == "decision: expected blocked, got allowed"
    assert failure.text == 'decision: expected blocked, got allowed\nargs: expected {"a":1}, got {"a":"<"}'
