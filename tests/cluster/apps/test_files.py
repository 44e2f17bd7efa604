"""What of an app travels, what stays, and what is refused in one line."""

import sys
from pathlib import Path

import pytest

from cluster.apps import files
from cluster.apps.copy import app_path
from cluster.apps.files import files_of_app
from core.ground.errors import UsageError
from tests.cluster.apps.trees import one_node, write_app, write_tree
from tests.ran import ran
from tests.tables import table


@pytest.fixture
def app(tmp_path: Path) -> Path:
    folder = write_app(tmp_path, "import parts.blocks\n")
    return write_tree(folder, {"requirements.txt": "humanize\n"})


def test_what_is_made_again_and_what_is_secret_stays_behind(app: Path) -> None:
    whole = files_of_app(app)
    left_out = (
        ".git/config",
        "__pycache__/app.pyc",
        ".venv/bin/python",
        "parts/runs/one/result.json",
        "old.pyc",
    )
    write_tree(app, dict.fromkeys(left_out, "left out"))
    found = files_of_app(app)
    assert [file.name for file in found.files] == ["app.py", "parts/blocks.py", "requirements.txt"]
    assert found.digest == whole.digest
    assert found.requirements == app / "requirements.txt"


def test_a_file_is_an_app_without_its_neighbours(app: Path) -> None:
    alone = files_of_app(app / "parts/blocks.py")
    assert [file.name for file in alone.files] == ["app.py"]
    assert alone.requirements is None


def test_every_name_and_every_byte_counts_in_the_digest(app: Path) -> None:
    digests = {files_of_app(app).digest}
    write_tree(app, {"parts/blocks.py": "width = 9\n"})
    digests.add(files_of_app(app).digest)
    (app / "parts/blocks.py").rename(app / "blocks.py")
    digests.add(files_of_app(app).digest)
    assert len(digests) == 3


def test_a_link_to_a_file_of_the_app_travels_as_that_file(app: Path) -> None:
    (app / "same.py").symlink_to("parts/blocks.py")
    found = {file.name: file.sha256 for file in files_of_app(app).files}
    assert found["same.py"] == found["parts/blocks.py"]


@pytest.mark.parametrize("content", ["other = True\n", "import parts.blocks\ngrown = True\n"])
def test_a_file_that_changes_while_it_is_read_is_noticed(app: Path, content: str) -> None:
    found = files_of_app(app)
    write_tree(app, {"app.py": content})
    with pytest.raises(UsageError, match="has changed while the app was read"):
        found.write(app.parent / "copy")


@pytest.mark.parametrize(("spoil", "words"), table("cluster/apps/rows", "spoiled").items())
def test_what_cannot_travel_is_refused_in_one_line(app: Path, spoil: str, words: str) -> None:
    ran("sh", "-c", spoil, sys.executable, folder=app)
    with pytest.raises(UsageError, match=words) as refused:
        files_of_app(app)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("path", "words"),
    table("cluster/apps/rows", "no app"),
)
def test_a_path_that_is_no_app(tmp_path: Path, path: str, words: str) -> None:
    (tmp_path / "app.txt").touch()
    with pytest.raises(UsageError, match=words):
        files_of_app(tmp_path / path)


def test_more_files_than_an_app_has(app: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MOST_FILES", 3)
    files_of_app(app)
    (app / "one_more.py").touch()
    with pytest.raises(UsageError, match="at most 3 files"):
        files_of_app(app)


def test_the_size_is_that_of_all_files(app: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MOST_BYTES", files_of_app(app).size_bytes)
    files_of_app(app)
    write_tree(app, {"zz.bin": "x"})
    with pytest.raises(UsageError, match=r"zz\.bin"):
        files_of_app(app)


@pytest.mark.parametrize(
    ("given", "expected"),
    table("cluster/apps/rows", "paths"),
)
def test_the_path_is_relative_to_the_inventory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str, expected: str
) -> None:
    monkeypatch.chdir(tmp_path)
    inventory = one_node(Path("inner"), f"jobs.train.app={given}")
    assert app_path(inventory) == tmp_path / expected


def test_without_one_there_is_no_path(tmp_path: Path) -> None:
    assert app_path(one_node(tmp_path)) is None
