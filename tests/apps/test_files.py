"""What of an app travels, what stays, and what is refused in one line."""

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from cluster.apps import files
from cluster.apps.files import app_path, look
from cluster.errors import UsageError
from cluster.inventory import load
from tests.apps.two_files import write_app

INVENTORY = "schema: 1\ncluster: here\nnodes: [{name: pi, address: 127.0.0.1, roles: [ps, worker, coordinator]}]\n"


@pytest.fixture
def app(tmp_path: Path) -> Path:
    folder = write_app(tmp_path, "import parts.blocks\n")
    (folder / "requirements.txt").write_text("humanize\n")
    return folder


def test_what_is_made_again_and_what_is_secret_stays_behind(app: Path) -> None:
    whole = look(app)
    for name in (".git/config", "__pycache__/app.pyc", ".venv/bin/python", "parts/runs/one/result.json", "old.pyc"):
        (app / name).parent.mkdir(parents=True, exist_ok=True)
        (app / name).write_text("left out")
    (app / ".pscluster" / "pi").mkdir(parents=True)
    (app / ".pscluster" / "pi" / "token").write_text("secret")
    found = look(app)
    assert [file.name for file in found.files] == ["app.py", "parts/blocks.py", "requirements.txt"]
    assert found.digest == whole.digest
    assert found.requirements == app / "requirements.txt"


def test_a_file_is_an_app_without_its_neighbours(app: Path) -> None:
    alone = look(app / "parts" / "blocks.py")
    assert [file.name for file in alone.files] == ["app.py"]
    assert alone.requirements is None


def test_every_name_and_every_byte_counts_in_the_digest(app: Path) -> None:
    digests = {look(app).digest}
    (app / "parts" / "blocks.py").write_text("width = 9\n")
    digests.add(look(app).digest)
    (app / "parts" / "blocks.py").rename(app / "blocks.py")
    digests.add(look(app).digest)
    assert len(digests) == 3


def test_a_link_to_a_file_of_the_app_travels_as_that_file(app: Path) -> None:
    (app / "same.py").symlink_to("parts/blocks.py")
    found = {file.name: file.sha256 for file in look(app).files}
    assert found["same.py"] == found["parts/blocks.py"]


def test_a_file_that_changes_while_it_is_read_is_noticed(app: Path) -> None:
    found = look(app)
    (app / "app.py").write_text("other = True\n")
    with pytest.raises(UsageError, match="has changed while the app was read"):
        found.content(found.files[0])


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


def _linked_pipe(app: Path) -> None:
    os.mkfifo(app / "p")
    (app / "a").symlink_to("p")


SPOILED: dict[str, tuple[Callable[[Path], object], str]] = {
    "no entry": (lambda app: (app / "app.py").unlink(), "expected app.py"),
    "link out": (lambda app: (app / "hosts").symlink_to("/etc/hosts"), "outside of the app"),
    "link up": (lambda app: (app / "up").symlink_to(".."), "outside of the app"),
    "link to nothing": (lambda app: (app / "gone").symlink_to("nothing"), "a link to nothing"),
    "link to itself": (lambda app: (app / "loop").symlink_to("loop"), "a link to nothing"),
    "link to a folder": (lambda app: (app / "folder").symlink_to("parts"), "links to a folder"),
    "pipe": (lambda app: os.mkfifo(app / "pipe"), "found a special one"),
    "socket": (lambda app: _socket(app / "s"), "found a special one"),
    "link to a pipe": (lambda app: _linked_pipe(app), "found a special one"),
    "line break in a name": (lambda app: (app / "a\nb.py").touch(), "printable"),
    "no UTF-8 in a name": (lambda app: Path(os.fsdecode(os.fsencode(app) + b"/\xff.py")).touch(), "printable"),
    "backslash in a name": (lambda app: (app / "a\\b.py").touch(), "backslash"),
    "deep folders": (lambda app: (app / "/".join(["d"] * 18)).mkdir(parents=True), "deep"),
    "large file": (lambda app: os.truncate(os.open(app / "x", os.O_CREAT | os.O_RDWR), (64 << 20) + 1), "64 MiB"),
}


@pytest.mark.parametrize("name", SPOILED)
def test_what_cannot_travel_is_refused_in_one_line(app: Path, name: str) -> None:
    spoil, words = SPOILED[name]
    spoil(app)
    with pytest.raises(UsageError, match=words) as refused:
        look(app)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("nothing", "found nothing there"),
        ("app.txt", r"\.py"),
        ("/dev/null", "special file"),
        ("a\0b", "cannot be read"),
    ],
)
def test_a_path_that_is_no_app(tmp_path: Path, path: str, words: str) -> None:
    (tmp_path / "app.txt").touch()
    with pytest.raises(UsageError, match=words):
        look(tmp_path / path)


def test_more_files_than_an_app_has(app: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MOST_FILES", 3)
    look(app)
    (app / "one_more.py").touch()
    with pytest.raises(UsageError, match="at most 3 files"):
        look(app)


def test_the_size_is_that_of_all_files(app: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MOST_BYTES", look(app).size_bytes)
    look(app)
    (app / "zz.bin").write_bytes(b"x")
    with pytest.raises(UsageError, match=r"zz\.bin"):
        look(app)


@pytest.mark.parametrize(
    ("given", "expected"),
    [("apps/digits", "{folder}/apps/digits"), ("../one.py", "{above}/one.py"), ("/srv/app", "/srv/app")],
)
def test_the_path_is_relative_to_the_inventory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str, expected: str
) -> None:
    folder = tmp_path / "cluster"
    folder.mkdir()
    (folder / "inventory.yaml").write_text(INVENTORY)
    monkeypatch.chdir(tmp_path)
    inventory = load("cluster/inventory.yaml", [f"jobs.train.app={given}"])
    assert app_path(inventory) == Path(expected.format(folder=folder, above=tmp_path))


def test_without_one_there_is_no_path(tmp_path: Path) -> None:
    (tmp_path / "inventory.yaml").write_text(INVENTORY)
    assert app_path(load(tmp_path / "inventory.yaml")) is None
