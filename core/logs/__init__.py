"""Output to a terminal; it escapes control characters in every text, whatever its source.

journalctl and git escape control characters for the same reason (CVE-2024-52005): a terminal obeys
them. The log of every process is in `core.logs.lines`.
"""

import json
import os
import sys
from typing import TextIO
from unicodedata import category

_KEPT = frozenset("\n\t")
_LONGEST_CACHE = 4096


class _Visible(dict[int, str | int]):
    """For `str.translate`: the visible form of each character, cached on first use."""

    def __missing__(self, code: int) -> str | int:
        character = chr(code)
        is_plain = character.isprintable() or character in _KEPT or category(character) == "Zs"
        if is_plain:
            replacement: str | int = code
        else:
            replacement = character.encode("unicode_escape").decode()
        if len(self) < _LONGEST_CACHE:
            self[code] = replacement
        return replacement


_TABLE = _Visible()


def visible(text: str) -> str:
    r"""Return `text` with each invisible character as its escape.

    `\x1b` stands for ESC, `\u202e` for an override.

    Newlines, tabs and spaces stay. Controls (C0, DEL, C1), formats (bidi, zero width), surrogates
    and characters that Unicode does not assign are escaped.
    """
    if text.isprintable():
        return text
    return text.translate(_TABLE)


def one_line(text: str) -> str:
    r"""`visible`, and each newline as `\n`: nothing in `text` can look like a line of its own."""
    return visible(text).replace("\n", "\\n")


def is_animated(stream: TextIO) -> bool:
    """Return whether `stream` is a terminal that can move its cursor.

    A file, a pipe and `TERM=dumb` are none.
    """
    return stream.isatty() and os.environ.get("TERM", "").lower() not in ("dumb", "unknown")


def say(line: object, *, error: bool = False, end: str = "\n") -> None:
    """Show one or more lines on standard output, or with `error` on standard error.

    They pass `visible`. Line and `end` are one write: what several threads say stays whole lines.
    """
    if error:
        stream = sys.stderr
    else:
        stream = sys.stdout
    text = visible(str(line))
    encoding = getattr(stream, "encoding", None) or "utf-8"
    # A Latin-1 terminal gets escapes for what it cannot show; print would raise.
    encodable = text.encode(encoding, "backslashreplace").decode(encoding)
    print(encodable + end, file=stream, end="", flush=True)


def say_json(value: object) -> None:
    """Print a value for a program as one line of JSON on standard output.

    Every control character is escaped.
    """
    print(as_ascii(value), flush=True)


def as_ascii(value: object) -> str:
    """One line of JSON in printable ASCII."""
    return json.dumps(value).replace(
        "\x7f", "\\u007f"
    )  # DEL is the one control that JSON does not escape
