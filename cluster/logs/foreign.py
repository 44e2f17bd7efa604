"""Text that was read from elsewhere, such as a log, made safe to show. Pure.

journalctl and git escape control characters for the same reason (CVE-2024-52005): a terminal obeys them.
"""

from unicodedata import category

_KEPT = frozenset("\n\t")
_LONGEST_CACHE = 4096


class _Visible(dict[int, str | int]):
    """For `str.translate`: what each character is shown as. Filled as characters come."""

    def __missing__(self, code: int) -> str | int:
        character = chr(code)
        kept = character.isprintable() or character in _KEPT or category(character) == "Zs"
        shown: str | int = code if kept else character.encode("unicode_escape").decode()
        if len(self) < _LONGEST_CACHE:
            self[code] = shown
        return shown


_TABLE = _Visible()


def visible(text: str) -> str:
    r"""`text` with every character that is no visible one as its escape: `\x1b` for ESC, `\u202e` for an override.

    Newlines, tabs and spaces stay. Controls (C0, DEL, C1), formats (bidi, zero width), surrogates and characters that
    Unicode does not assign are escaped.
    """
    return text if text.isprintable() else text.translate(_TABLE)


def one_line(text: str) -> str:
    r"""`visible`, and each newline as `\n`: nothing in `text` can look like a line of its own."""
    return visible(text).replace("\n", "\\n")
