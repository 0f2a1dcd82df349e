"""Owns: tests of tables and facts: aligned text for programs, tables that fit for terminals."""

from __future__ import annotations

import io
import os
import pty
import re
import subprocess
import sys

import pytest

from torch_fl.cli import tables
from torch_fl.cli.tables import Page

ROWS = [("one", "ok", "a reason that is rather long, and longer than a narrow terminal is wide")]
COLUMNS = ("name", "state", "why")


class Terminal(io.StringIO):
    encoding = "utf-8"  # type: ignore[assignment]

    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "COLORTERM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "80")


def page(stream: io.StringIO) -> str:
    one = Page(stream)
    one.heading("first")
    one.facts([("key", 1), ("longer key", "[bold]value[/bold]")])
    one.heading("second")
    one.table(COLUMNS, ROWS)
    return stream.getvalue()


def test_plain_text_is_aligned_and_nothing_is_cut() -> None:
    assert page(io.StringIO()).splitlines() == [
        "first",
        "  key         1",
        "  longer key  [bold]value[/bold]",
        "",
        "second",
        "name  state  why",
        f"one   ok     {ROWS[0][2]}",
    ]


def test_a_terminal_gets_colours_and_its_width() -> None:
    text = page(Terminal())
    assert "\033[" in text
    lines = re.sub(r"\033\[[0-9;]*m", "", text).splitlines()
    assert max(map(len, lines)) <= 80
    assert any(re.match(r"one +ok +a reason", line) for line in lines)
    assert "[bold]value[/bold]" in text, "what others wrote is no markup"


def test_no_color(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    assert not re.search(r"\033\[[0-9;]*3[0-7]m", page(Terminal()))


def test_a_narrow_terminal_gets_one_fact_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    lines = re.sub(r"\033\[[0-9;]*m", "", page(Terminal())).splitlines()
    assert max(map(len, lines)) <= 40
    assert any(re.match(r" *state +ok", line) for line in lines)


def test_a_dumb_terminal_gets_plain_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    assert page(Terminal()) == page(io.StringIO())


def test_without_rich_a_terminal_gets_plain_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rich.console", None)
    assert page(Terminal()) == page(io.StringIO())


@pytest.mark.parametrize("stream", [io.StringIO, Terminal])
def test_texts_of_others_cannot_drive_the_terminal(stream: type[io.StringIO]) -> None:
    out = stream()
    Page(out).table(COLUMNS, [("\033]0;title\a", "\033[2J", "two\nlines\r")])
    text = re.sub(r"\033\[[0-9;]*m", "", out.getvalue())
    assert not set(text) & set("\033\a\r")


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (3 << 40, "3.0 TiB")]
)
def test_sizes(number: int, text: str) -> None:
    assert tables.size(number) == text


def test_what_is_waited_for_is_said_on_terminals_alone() -> None:
    for stream, expected in ((io.StringIO(), ""), (Terminal(), "\r\033[Ktorch\r\033[K")):
        say = tables.waiting(stream)
        say("torch")
        say("")
        assert stream.getvalue() == expected


def test_a_real_terminal() -> None:
    """The whole command once on a pseudo-terminal."""
    ours, theirs = pty.openpty()
    code = "import sys, torch_fl_entry; sys.exit(torch_fl_entry.main())"
    with subprocess.Popen(
        [sys.executable, "-c", code, "plugins"], stdout=theirs, stderr=theirs, env=dict(os.environ)
    ) as process:
        os.close(theirs)
        text = b""
        try:
            while data := os.read(ours, 4096):
                text += data
        except OSError:  # how Linux says that the other side is closed
            pass
        os.close(ours)
    assert process.returncode == 0
    assert b"\033[" in text
    assert "━" in text.decode() or "─" in text.decode()
    assert b"host" in text
