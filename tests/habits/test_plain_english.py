"""What a person reads is plain English: pages and helpers have none of the worst phrases, the product fewer and fewer.

`plain_english_left.txt` lists the files of the product that still have some. It can only shrink. To write it again:

    .venv/bin/python -m tests.habits.plain_english --write
"""

from collections import Counter
from pathlib import Path

import pytest

from tests.habits import plain_english
from tests.habits.plain_english import GENERATED, HELPERS, PROSE, better, counted, files, found, left, name

CLEAN = [path for path in files(PROSE + HELPERS) if name(path) not in GENERATED]


@pytest.mark.parametrize("path", CLEAN, ids=name)
def test_a_page_or_helper_has_none_of_the_phrases(path: Path) -> None:
    assert not {phrase: better(phrase) for phrase in found(path)}


def test_the_product_has_no_more_of_them_than_are_listed() -> None:
    allowed = Counter(left())
    more = {path: Counter(found(plain_english.PROJECT / path)) for path in counted() - allowed}
    assert not more, "say it plainly: tests/habits/plain_english.py has the better words"


def test_the_list_shrinks_with_the_product() -> None:
    fewer = Counter(left()) - counted()
    assert not fewer, "good: run `.venv/bin/python -m tests.habits.plain_english --write`"


def test_phrases_are_found_in_all_that_is_read_and_nowhere_else(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text(
        '"""Whoever asks\n    is  told."""\n\nnobody = 1  # nobody\n\n\ndef tells(task: str) -> str:\n'
        '    """Returns it."""\n    return f"{task}: gone\\non with {nobody}"\n'
    )
    assert sorted(found(module)) == ["gone on with", "is told", "nobody", "whoever"]
    page = tmp_path / "page.md"
    page.write_text("It storytells, made up\nfor what was told at once.")
    assert found(page) == ["made up for", "was told"]


def test_every_phrase_has_a_better_word() -> None:
    assert better("is told") == "is notified, reads, shows, reports"
    assert all(plain_english.BETTER.values())
