"""A test report for machines: JSON, and JUnit's XML as continuous integration reads it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import groupby
from xml.sax.saxutils import escape, quoteattr

from proxy.authoring.testing import CaseReport, Report
from proxy.core.exchange.cases import Difference
from proxy.core.jsontext import Object, render_text
from proxy.errors import Problem

_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def shown(value: object) -> str:
    """A value as it is written in a test document, on one line."""
    return value if isinstance(value, str) and value else render_text(value)


def difference_line(difference: Difference) -> str:
    """What was expected and what came, in one line."""
    key, expected, got = difference.key, difference.expected, shown(difference.got)
    match key.rpartition(".")[2]:
        case "contains":
            return f"{key}: expected the text to contain {shown(expected)}, got {got}"
        case "lacks":
            return f"{key}: expected the text not to contain {shown(expected)}, got {got}"
        case _:
            return f"{key}: expected {shown(expected)}, got {got}"


def report_object(report: Report, *, coverage: bool) -> Object:
    """The report as a JSON object."""
    found: Object = {
        "cases": [_case(case) for case in report.cases],
        "passed": len(report.cases) - len(report.failed),
        "failed": len(report.failed),
    }
    if coverage:
        found["coverage"] = {
            "rules": report.coverage.rules,
            "unreached": [_rule(place) for place in report.coverage.unreached],
            "withoutNearMiss": [_rule(place) for place in report.coverage.without_near_miss],
        }
    return found


def _case(case: CaseReport) -> Object:
    return {
        "file": case.place.file,
        "line": case.place.line,
        "document": case.document,
        "name": case.name,
        "passed": case.outcome.passed,
        "differences": [{"key": one.key, "expected": one.expected, "got": one.got} for one in case.outcome.differences],
    }


def _rule(place: Problem) -> Object:
    return {"rule": place.message, "file": place.file, "line": place.line}


# ---------------------------------------------------------------- JUnit


def report_junit(report: Report) -> str:
    """The report in JUnit's form: a suite a file, a test a case."""
    lines = ['<?xml version="1.0" encoding="UTF-8"?>']
    lines.append(f'<testsuites name="sidecall" tests="{len(report.cases)}" failures="{len(report.failed)}" errors="0">')
    for file, group in groupby(report.cases, key=lambda case: case.place.file):
        lines += _suite(file, list(group))
    lines.append("</testsuites>")
    return "\n".join(lines)


def _suite(file: str, cases: list[CaseReport]) -> Iterable[str]:
    failed = sum(not case.outcome.passed for case in cases)
    yield f'  <testsuite name={_attribute(file)} tests="{len(cases)}" failures="{failed}" errors="0" skipped="0">'
    for case in cases:
        place = f'file={_attribute(file)} line="{case.place.line}"'
        head = f"    <testcase classname={_attribute(case.document)} name={_attribute(case.name)} {place}"
        if case.outcome.passed:
            yield f"{head}/>"
            continue
        told = [difference_line(one) for one in case.outcome.differences]
        yield f"{head}>"
        yield f"      <failure message={_attribute(told[0])}>{escape(_clean(chr(10).join(told)))}</failure>"
        yield "    </testcase>"
    yield "  </testsuite>"


def _attribute(text: str) -> str:
    return quoteattr(_clean(text), {"\n": "&#10;", "\r": "&#13;", "\t": "&#9;"})


def _clean(text: str) -> str:
    """The text without what XML cannot hold."""
    return _NO_XML.sub("\ufffd", text)
