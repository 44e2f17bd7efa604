"""`fab app new`: whole folders, and nothing where one cannot be made."""

import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from cluster.apps.files import files_of_app
from core.ground.errors import ClusterError, UsageError
from deploy.apps import FOLDER, TEMPLATES, USUAL, new_app
from tests.ran import python


@pytest.mark.parametrize("template", TEMPLATES)
def test_an_app_is_written_whole(tmp_path: Path, template: str) -> None:
    made = new_app("my-app_2", template, tmp_path)
    assert list(tmp_path.iterdir()) == [made]
    assert (made.name, stat.S_IMODE(made.stat().st_mode)) == ("my-app_2", 0o755)
    texts = {path.name: path.read_text() for path in made.iterdir()}
    files = [path.name for path in (FOLDER / template).iterdir() if path.is_file()]
    assert texts.keys() == {*files} >= {"app.py", "test_app.py", "README.md"}
    assert not [name for name, text in texts.items() if "APP_NAME" in text]
    assert files_of_app(made).defines("data")


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a/b", "/tmp/a", "9lives", "-x", "a b", "é", "a" * 64, "a\nb", "~"]
)
def test_bad_names(tmp_path: Path, name: str) -> None:
    with pytest.raises(
        UsageError, match=r"expected a name of letters, digits, - and _ that begins with a letter"
    ) as at:
        new_app(name, USUAL, tmp_path)
    assert "\n" not in str(at.value)
    assert not list(tmp_path.iterdir())


MADE: dict[str, Callable[[Path], object]] = {
    "empty folder": Path.mkdir,
    "folder": lambda place: (place / "kept").mkdir(parents=True),
    "file": Path.touch,
    "link to nothing": lambda place: place.symlink_to("gone"),
}


@pytest.mark.parametrize("make", MADE.values(), ids=MADE)
def test_what_exists_stays(tmp_path: Path, make: Callable[[Path], object]) -> None:
    make(tmp_path / "mine")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(UsageError, match="mine: exists already: choose another name, or remove it"):
        new_app("mine", USUAL, tmp_path)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(
        ClusterError, match=r"gone/mine: cannot be written \(No such file or directory\)"
    ):
        new_app("mine", USUAL, tmp_path / "gone")


@pytest.mark.long
def test_their_own_tests_pass(tmp_path: Path) -> None:
    for template in TEMPLATES:
        new_app(template, template, tmp_path)
    words = ["pytest", "-q", "-p", "no:cacheprovider", "--import-mode=importlib", "."]
    assert "skipped" not in python("-m", *words, folder=tmp_path)
