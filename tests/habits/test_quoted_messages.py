"""Messages that the runbook quotes are the product's own: one string of the sources has most
words of each."""

import ast
import re
from collections.abc import Iterator
from functools import cache

import pytest

from tests.habits.sources import PROJECT, modules

pytestmark = pytest.mark.sources

PAGE = PROJECT / "docs" / "runbook.md"
COMMANDS = ("sudo ", "fab ", "ssh ", "ls: ")
FEWEST_WORDS = 4
MOST_WORDS = 40
"""Of a message; a longer string is a script or a template."""

SHARE = 0.6
"""Of a message's words; the others are values: names, kinds of processor, figures."""


@cache
def product_strings() -> tuple[frozenset[str], ...]:
    """The words of each string of the product."""
    found = set()
    for tree in modules("deploy").values():
        for node in ast.walk(tree):
            match node:
                case ast.JoinedStr(values=parts):
                    constants = [str(one.value) for one in parts if isinstance(one, ast.Constant)]
                    found.add(words(" ".join(constants)))
                case ast.Constant(value=str(text)):
                    found.add(words(text))
    return tuple(one for one in found if len(one) <= MOST_WORDS)


def words(text: str) -> frozenset[str]:
    """The words in lower-case letters; values are in capitals or have digits."""
    return frozenset(re.findall(r"(?<![\w.])[a-z]{2,}(?![\w.])", text))


def quoted(page: str) -> Iterator[str]:
    """Messages in the first cells of the page's tables, four words at least; commands and sums are
    none."""
    for row in page.splitlines():
        if row.startswith("| "):
            first = row.rpartition(" | ")[0]
            for message in re.findall(r"`([^`]+)`", first):
                if message.startswith(COMMANDS) or " = " in message:
                    continue
                if len(words(message)) >= FEWEST_WORDS:
                    yield message


def is_the_products_own(message: str) -> bool:
    """Whether one string of the product has most of the message's words."""
    wanted = words(message)
    return any(len(wanted & has) >= SHARE * len(wanted) for has in product_strings())


def test_a_quoted_message_is_the_products_own() -> None:
    messages = list(quoted(PAGE.read_text(encoding="utf-8")))
    assert len(messages) > 15
    assert [message for message in messages if not is_the_products_own(message)] == []


def test_an_invented_message_is_not() -> None:
    page = (
        "| clock | `its clock runs backwards on sundays`, `too short` | `this is not one` |\n`nor"
        " is this outside`\n"
    )
    assert list(quoted(page)) == ["its clock runs backwards on sundays"]
    assert not is_the_products_own("its clock runs backwards on sundays")
