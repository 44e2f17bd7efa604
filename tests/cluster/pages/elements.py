"""A page as its tags and words, and what holds for each page that is one file."""

import re
from collections.abc import Mapping
from html.parser import HTMLParser
from typing import Any


class Elements(HTMLParser):
    """Tags with their attributes, and that each is closed and each id is there once."""

    VOID = frozenset({"meta", "link", "img", "rect", "br"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []
        identifiers = self.all("id")
        assert len(identifiers) == len(set(identifiers))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    def all(self, name: str) -> list[str | None]:
        """The values of this attribute, of all tags that have it."""
        return [attributes[name] for _, attributes in self.found if name in attributes]

    def runs_no_foreign_code(self) -> None:
        """No tag has code of its own, and no text of `example.HOSTILE` became markup."""
        for tag, attributes in self.found:
            assert not [name for name in attributes if name.startswith("on")], (tag, attributes)
        assert "<img" not in self.text
        assert "<script>alert" not in self.text

    def asks_nobody(self) -> None:
        """It is one file that loads no other."""
        self.runs_no_foreign_code()
        assert self.all("src") == []
        assert set(self.all("href")) <= {None, "data:,"}
        assert self.text.count("<script>") == 2, "Chart.js and what draws with it; data is JSON"


def shows(text: str, case: Mapping[str, Any]) -> None:
    """What a case `shows` is in the text, what it `hides` is not: regular expressions."""
    assert [words for words in case.get("shows", ()) if not re.search(words, text)] == []
    assert [words for words in case.get("hides", ()) if re.search(words, text)] == []
