"""Root's work in folders that somebody else may have prepared, and changes while it works."""

import hashlib
import os
import stat
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from deploy.rooted.commands import copy_files, make_folder, make_point, remove, write_file
from tests.habits import needs

NOBODY = 65534
PATIENCE_SECONDS = 60.0


@pytest.fixture(autouse=True, scope="module")
def as_root() -> None:
    needs.root("files of other accounts")


def done(words: Sequence[str], stdin: bytes = b"") -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(words, input=stdin, capture_output=True, timeout=PATIENCE_SECONDS, check=False)


def refused(words: Sequence[str], stdin: bytes = b"") -> str:
    ended = done(words, stdin)
    assert ended.returncode == 1
    (line,) = ended.stderr.decode().splitlines()
    return line


def owner(path: Path) -> tuple[int, int]:
    found = path.lstat()
    return found.st_uid, stat.S_IMODE(found.st_mode)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Where an account has a folder of its own, `theirs`; and root's treasure."""
    for parent in (tmp_path, *tmp_path.parents):
        if parent.name.startswith("pytest"):
            parent.chmod(0o755)  # for the account to get there
    theirs, treasure = tmp_path / "theirs", tmp_path / "treasure"
    theirs.mkdir()
    treasure.mkdir()
    (treasure / "file").write_text("of root")
    os.chown(theirs, NOBODY, NOBODY)
    return tmp_path


def state(treasure: Path) -> dict[str, tuple[int, int, bytes]]:
    found = {str(path): (*owner(path), path.read_bytes() if path.is_file() else b"") for path in treasure.rglob("*")}
    return {**found, "": (*owner(treasure), b"")}


def test_a_folder_is_made_with_its_parents_and_set_right(place: Path) -> None:
    path = place / "a b" / "it's" / "home"
    assert done(make_folder(str(path), 0o750, "nobody")).returncode == 0
    assert owner(path) == (NOBODY, 0o750)
    assert owner(path.parent) == (0, 0o755)
    assert done(make_folder(str(path), 0o755)).returncode == 0
    assert owner(path) == (0, 0o755)


def test_a_file_is_written_whole_in_the_place_of_a_link(place: Path) -> None:
    path = place / "file"
    path.symlink_to(place / "treasure" / "file")
    assert done(write_file(str(path), 0o640, "nobody"), b"new").returncode == 0
    assert (path.read_bytes(), owner(path)) == (b"new", (NOBODY, 0o640))
    assert (place / "treasure" / "file").read_text() == "of root"
    assert sorted(one.name for one in place.iterdir()) == ["file", "theirs", "treasure"]
    assert "No such file" in refused(write_file(str(place / "missing" / "file")), b"x")


COMMANDS: dict[str, Callable[[str], list[str]]] = {
    "folder": lambda path: make_folder(path, 0o750, "nobody"),
    "folder below": lambda path: make_folder(f"{path}/below", 0o750, "nobody"),
    "point below": lambda path: make_point(f"{path}/below"),
    "write below": lambda path: write_file(f"{path}/file"),
    "remove below": lambda path: remove(f"{path}/file"),
    "copy below": lambda path: copy_files("/etc", f"{path}/copy", []),
}


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_a_link_of_another_account_is_no_way(place: Path, command: Callable[[str], list[str]]) -> None:
    before = state(place / "treasure")
    link = place / "link"
    link.symlink_to("treasure")
    os.lchown(link, NOBODY, NOBODY)
    line = refused(command(str(link)), b"x")
    assert f"{link}: expected a folder, found a symbolic link" in line
    assert state(place / "treasure") == before


@pytest.mark.parametrize("command", [one for name, one in COMMANDS.items() if name != "folder"])
def test_a_folder_of_another_account_is_no_place_for_root(place: Path, command: Callable[[str], list[str]]) -> None:
    line = refused(command(str(place / "theirs")), b"x")
    assert f"{place}/theirs: expected a folder that only root can change, it belongs to uid {NOBODY}" in line
    assert list((place / "theirs").iterdir()) == []


@pytest.mark.parametrize("mode", [0o777, 0o775])
def test_nor_is_one_that_others_may_write_to(place: Path, mode: int) -> None:
    shared = place / "shared"
    shared.mkdir()
    os.chown(shared, 0, NOBODY)
    shared.chmod(mode)
    assert "expected a folder that only root can change" in refused(write_file(str(shared / "file")), b"x")
    shared.chmod(0o1777)  # as /tmp: nobody can take the place of what root makes there
    assert done(write_file(str(shared / "file")), b"x").returncode == 0


def test_root_s_own_links_are_followed_on_the_way(place: Path) -> None:
    (place / "disk").mkdir()
    (place / "srv").symlink_to("disk")
    (place / "opt").symlink_to(place / "srv" / ".." / "disk")
    assert done(make_folder(str(place / "srv" / "made"))).returncode == 0
    assert done(write_file(str(place / "opt" / "made" / "file")), b"x").returncode == 0
    assert (place / "disk" / "made" / "file").read_bytes() == b"x"
    assert done(make_folder(str(place / "srv"), 0o751)).returncode == 0  # somebody put it on another disk
    assert owner(place / "disk") == (0, 0o751)
    assert "found a symbolic link of uid 0" in refused(make_folder(str(place / "srv"), 0o750, "nobody"))
    os.link(place / "srv", place / "twice", follow_symlinks=False)  # by whoever could write here
    for path in (place / "twice", place / "srv"):
        assert "expected a folder" in refused(make_folder(str(path)))
    (place / "round").symlink_to("round")
    assert "expected a folder" in refused(write_file(str(place / "round" / "file")), b"x")


def test_removing_takes_the_link_and_not_what_it_shows(place: Path) -> None:
    before = state(place / "treasure")
    (place / "theirs" / "link").symlink_to(place / "treasure")
    assert done(remove(str(place / "theirs"))).returncode == 0
    assert not (place / "theirs").exists()
    assert state(place / "treasure") == before
    assert done(remove(str(place / "theirs"))).returncode == 0
    assert done(remove(str(place / "nowhere" / "at" / "all"))).returncode == 0


def test_what_an_older_version_gave_away_is_taken_back_with_its_rights(place: Path) -> None:
    theirs = place / "theirs"
    entries = ((1, 7, -1), (2, 7, NOBODY), (4, 5, -1), (16, 7, -1), (32, 5, -1))  # acl(5): the account may all
    acl = struct.pack("<I", 2) + b"".join(struct.pack("<HHi", *entry) for entry in entries)
    try:
        for kind in ("access", "default"):
            os.setxattr(theirs, f"system.posix_acl_{kind}", acl)
    except OSError as problem:
        needs.skip(f"no access lists here: {problem}")
    assert done(make_folder(str(theirs), 0o755)).returncode == 0
    assert owner(theirs) == (0, 0o755)
    assert os.listxattr(theirs) == []


def test_a_tree_that_is_deeper_than_a_program_goes_is_removed(place: Path) -> None:
    deep = "import os\nfor _ in range(3000):\n    os.mkdir('d')\n    os.chdir('d')\n"
    subprocess.run([sys.executable, "-c", deep], cwd=place / "theirs", check=True)
    try:
        assert done(remove(str(place / "theirs"))).returncode == 0
        assert sorted(path.name for path in place.iterdir()) == ["treasure"]
    finally:  # pytest could not
        subprocess.run(["rm", "-rf", str(place / "theirs")], check=True)


@contextmanager
def swapping(place: Path, name: str) -> Iterator[None]:
    """An account that swaps its folder `name` for a link to the treasure and back, as fast as it can."""
    theirs = place / "theirs"
    (theirs / name).mkdir(exist_ok=True)
    os.chown(theirs / name, NOBODY, NOBODY)
    script = (
        'cd "$1"; while :; do mv -T "$2" kept; ln -s ../treasure "$2"; rm -f "$2"; mv -T kept "$2"; done 2>/dev/null'
    )
    words = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "sh", "-c", script, "sh"]
    with subprocess.Popen([*words, str(theirs), name]) as attacker:
        try:
            yield
        finally:
            attacker.kill()


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_a_folder_that_becomes_a_link_meanwhile(place: Path, command: Callable[[str], list[str]]) -> None:
    before = state(place / "treasure")
    with swapping(place, "jobs"):
        for _ in range(25):
            assert done(command(f"{place}/theirs/jobs"), b"x").returncode == 1
    assert state(place / "treasure") == before


def test_a_tree_that_changes_while_it_is_removed(place: Path) -> None:
    """Deep folders that become links below root's own: what they show stays."""
    before = state(place / "treasure")
    for number in range(10):
        with swapping(place, "deep"):
            (place / "theirs" / "more").mkdir(exist_ok=True)
            for count in range(200):
                (place / "theirs" / "more" / str(count)).touch()
            done(remove(str(place / "theirs")))
        if not (place / "theirs").exists():
            (place / "theirs").mkdir()
            os.chown(place / "theirs", NOBODY, NOBODY)
        assert state(place / "treasure") == before, number


def test_a_file_that_changes_while_it_is_copied_is_the_listed_one_or_none(place: Path) -> None:
    good, evil = b"good" * 500_000, b"evil" * 500_000
    listed = [("wheel", hashlib.sha256(good).hexdigest(), len(good))]
    share = place / "theirs"
    (share / "wheel").write_bytes(good)
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            for content in (evil, good):
                (share / "new").write_bytes(content)
                os.replace(share / "new", share / "wheel")

    server = threading.Thread(target=swap)
    server.start()
    codes = set()
    try:
        for number in range(20):
            target = place / f"copy-{number}"
            codes.add(done(copy_files(str(share), str(target), listed)).returncode)
            assert not (target / "wheel").exists() or (target / "wheel").read_bytes() == good
    finally:
        stop.set()
        server.join()
    assert codes <= {0, 72}
