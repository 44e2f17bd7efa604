"""What a person reads is plain English: no file has one of the worst phrases."""

from pathlib import Path

import pytest

from tests.habits.plain_english import better, files, found, name

pytestmark = pytest.mark.sources


def test_no_file_has_one_of_the_phrases() -> None:
    """tests/habits/plain_english.yaml has the better words."""
    riddles = [
        f"{name(path)}: {phrase!r}: {better(phrase)}" for path in files() for phrase in found(path)
    ]
    assert not riddles


def test_phrases_are_found_in_all_that_is_read_and_nowhere_else(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text(
        '"""Whoever asks\n    is  told."""\n\nnobody = 1  # nobody\n\n\ndef tells(task: str) ->'
        ' str:\n    """Returns it."""\n    return f"{task}: gone\\non with {nobody}"\n'
    )
    assert sorted(found(module)) == ["gone on with", "is told", "nobody", "whoever"]
    page = tmp_path / "page.md"
    page.write_text("It storytells, made up\nfor what was told at once.")
    assert found(page) == ["made up for", "was told"]
