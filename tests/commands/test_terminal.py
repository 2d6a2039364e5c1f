from __future__ import annotations

import io

import pytest

from proxy.commands.terminal import Terminal, Tone, counted, has_colour, safe, tell
from proxy.errors import Problem


class Tty(io.StringIO):
    def isatty(self) -> bool:
        return True


def terminals(monkeypatch: pytest.MonkeyPatch) -> tuple[Tty, Tty]:
    """Standard output and standard error, as terminals, until the test ends."""
    out, err = Tty(), Tty()
    monkeypatch.setattr("sys.stdout", out)
    monkeypatch.setattr("sys.stderr", err)
    return out, err


def test_colour_is_for_terminals_that_want_it() -> None:
    """Neither for files, nor where the environment says no."""
    assert has_colour(Tty(), {})
    assert not has_colour(io.StringIO(), {})
    assert not has_colour(Tty(), {"NO_COLOR": "1"})
    assert has_colour(Tty(), {"NO_COLOR": ""})
    assert not has_colour(Tty(), {"TERM": "dumb"})


def test_lines_are_coloured_by_their_tone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plain line stays plain."""
    tty = terminals(monkeypatch)
    terminal = Terminal({})
    terminal.say("bad", Tone.BAD)
    terminal.say("plain")
    terminal.say()
    assert tty[0].getvalue() == "\x1b[31mbad\x1b[0m\nplain\n\n"


def test_progress_is_one_line_that_goes_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """On standard error; what is printed comes in its place."""
    tty = terminals(monkeypatch)
    terminal = Terminal({"NO_COLOR": "1"})
    terminal.progress("at 1%")
    terminal.progress("at 20%")
    terminal.say("done")
    terminal.done()
    assert tty[1].getvalue() == "at 1%\r     \rat 20%\r      \r"
    assert tty[0].getvalue() == "done\n"


def test_there_is_no_progress_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """A log is not to be filled with it."""
    terminal = Terminal({})
    terminal.progress("at 1%")
    terminal.say("done", Tone.GOOD)
    assert capsys.readouterr() == ("done\n", "")


def test_what_models_write_steers_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Escapes and line breaks are shown as what they are."""
    tty = terminals(monkeypatch)
    Terminal({}).say("a\x1b[2Jb\nc\u202e é")
    assert tty[0].getvalue() == "a\\x1b[2Jb\\nc\\u202e é\n"
    assert safe("ä → \t") == "ä → \t"


def test_problems_are_told_on_a_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever their message holds."""
    tell([Problem("a.yaml", 1, 2, "x\ny"), Problem("b", 0, 0, "z")], prefix="warning: ")
    assert capsys.readouterr().err == "a.yaml:1:2: warning: x y\nb: warning: z\n"


def test_counts_have_their_word() -> None:
    """One is one."""
    assert [counted(n, "policy", "policies") for n in (0, 1, 1200)] == ["0 policies", "1 policy", "1,200 policies"]
    assert counted(2, "case") == "2 cases"
