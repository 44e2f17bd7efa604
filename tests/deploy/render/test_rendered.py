"""The files of machines and pods are those that a person has read; `rendered.py` says from what.

A mistake in them is no error of a program: a port that is open, a right that a process keeps.
"""

from tests.deploy.render.rendered import FOLDER, texts


def test_every_file_is_the_one_that_was_read() -> None:
    read = {
        path.relative_to(FOLDER).as_posix(): path.read_text(encoding="utf-8")
        for path in FOLDER.rglob("*")
        if path.is_file()
    }
    made = texts()
    assert made.keys() == read.keys()
    for name, text in made.items():
        assert text == read[name], f"{name}: read the difference, then see {FOLDER}.py"
