"""Nothing that was read from elsewhere can move a cursor or write a clipboard.

Nor is it taken for rich's markup.
"""

import io
import json
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.table import Table

from core.logs import as_ascii, one_line, say, visible
from core.logs.screen import Screen, coloured, spinner, words

ATTACKS = (
    "\x1b]52;c;cm0gLXJmIH4=\x07",  # writes the clipboard
    "\x1b[2J\x1b[H",  # clears the screen
    "\x9b31m",  # C1: CSI in one character
    "\x7f\x08\x08",
    "safe\rforged",
    "\u202egnp.exe",  # right to left from here
    "\u2028forged",
    "\udc9b",  # a byte that was no UTF-8
)
MARKUP = ("[/b]", "[red]x", "[link=http://x]y[/link]", ":smile:", "[", "\\[")


@pytest.mark.parametrize("attack", ATTACKS)
def test_what_a_terminal_would_obey_is_shown(attack: str) -> None:
    assert visible(attack).isprintable()
    assert visible(attack) == attack.encode("unicode_escape").decode()


def test_text_stays_as_it_is() -> None:
    plain = "naïve 日本 «\xa0oui\xa0» 👍\n\tindented"
    assert visible(plain) == plain
    assert one_line("a\nb") == "a\\nb"


@given(st.text(st.characters(codec=None)))
def test_whatever_it_is_it_is_printable_and_cleaning_it_again_changes_nothing(text: str) -> None:
    shown = visible(text)
    assert all(c.isprintable() or c in "\n\t" or c.isspace() for c in shown)
    assert visible(shown) == shown
    assert not {"\x1b", "\r", "\x85", "\x7f", "\u2028"} & set(shown)
    shown.encode()


@pytest.mark.parametrize("text", [*ATTACKS, *MARKUP])
def test_no_way_to_rich_obeys_or_interprets_it(text: str) -> None:
    table = Table()
    table.add_column("heading")
    table.add_row(text)
    table.add_row(coloured(text, "red"))
    for shown in (text, coloured(text, "red"), words("x", (text, "bold")), table):
        stream = io.StringIO()
        screen = Screen(file=stream, width=200, color_system=None, force_terminal=False)
        screen.print(shown)
        assert visible(text) in stream.getvalue()
        assert "\x1b" not in stream.getvalue()


def test_a_spinner_takes_any_text(capsys: pytest.CaptureFixture[str]) -> None:
    with spinner("[/b]\x1b[2J") as update:
        update("[/b]\r\n")
    assert "\x1b[2J" not in capsys.readouterr().out


def test_json_is_data_and_escaped() -> None:
    written = as_ascii({"reason": "".join(ATTACKS)})
    assert written.isascii()
    assert written.isprintable()
    assert json.loads(written)["reason"] == "".join(ATTACKS)


def test_a_terminal_that_cannot_show_a_character_gets_its_escape(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="latin-1"))
    say("naïve 日本\x1b[2J")
    assert raw.getvalue() == "naïve \\u65e5\\u672c\\x1b[2J\n".encode("latin-1")
