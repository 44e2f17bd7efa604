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

from deploy.rooted.commands import (
    PYTHON,
    file_list,
    file_program,
    give_folder,
    make_folder,
    make_point,
    remove,
    write_file,
)
from tests.deploy.release.wheels import names
from tests.habits import needs

NOBODY = 65534
DAEMON = 1
PATIENCE_SECONDS = 60.0


@pytest.fixture(autouse=True, scope="module")
def as_root() -> None:
    needs.root("files of other accounts")


def run(words: Sequence[str], stdin: bytes = b"x") -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(
        words, input=stdin, capture_output=True, timeout=PATIENCE_SECONDS, check=False
    )


def do(words: Sequence[str], stdin: bytes = b"x") -> None:
    done = run(words, stdin)
    assert done.returncode == 0, done.stderr


def refused(words: Sequence[str]) -> str:
    ended = run(words)
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
    (tmp_path / "treasure").mkdir()
    (tmp_path / "treasure" / "file").write_text("of root")
    own(tmp_path / "theirs")
    return tmp_path


def own(folder: Path) -> None:
    """A folder of the account."""
    folder.mkdir(exist_ok=True)
    os.chown(folder, NOBODY, NOBODY)


@pytest.fixture
def untouched(place: Path) -> Iterator[Callable[[], None]]:
    """Asserts that nothing changes in the treasure; called at the end too."""
    treasure = place / "treasure"

    def state() -> list[tuple[object, ...]]:
        file = treasure / "file"
        return [owner(treasure), (names(treasure),), (*owner(file), file.read_bytes())]

    before = state()

    def look() -> None:
        assert state() == before

    yield look
    look()


def test_a_folder_is_made_with_its_parents_and_set_right(place: Path) -> None:
    path = place / "a b" / "it's" / "home"
    do(make_folder(str(path), 0o750, "nobody"))
    assert owner(path) == (NOBODY, 0o750)
    assert owner(path.parent) == (0, 0o755)
    do(make_folder(str(path), 0o755))
    assert owner(path) == (0, 0o755)


@pytest.mark.usefixtures("untouched")
def test_a_folder_is_given_over_with_what_is_in_it_and_nothing_behind_a_link(place: Path) -> None:
    path = place / "theirs"
    own(path / "deep")
    (path / "deep" / "file").write_text("theirs")
    (path / "deep" / "link").symlink_to(place / "treasure" / "file")
    (path / "link").symlink_to(place / "treasure")
    os.link(place / "treasure" / "file", path / "second name")
    os.mkfifo(path / "pipe")
    do(give_folder(str(path), 0o700, "daemon"))
    assert {owner(path / name)[0] for name in ("", "deep", "deep/file")} == {DAEMON}


@pytest.mark.usefixtures("untouched")
def test_a_file_is_written_whole_in_the_place_of_a_link(place: Path) -> None:
    path = place / "file"
    path.symlink_to(place / "treasure" / "file")
    do(write_file(str(path), 0o640, "nobody", 3), b"new")
    for size in (0, 2):
        assert "bytes, 1 came: try it again" in refused(write_file(str(path), size_bytes=size))
    assert (path.read_bytes(), owner(path)) == (b"new", (NOBODY, 0o640))
    assert names(place) == ["file", "theirs", "treasure"]
    assert "No such file" in refused(write_file(str(place / "missing" / "file")))


def copy_files(source: str, target: str, files: list[tuple[str, str, int]]) -> list[str]:
    """As the scripts of installations and data sets do."""
    return [PYTHON, "-I", "-S", "-c", file_program(), "copy", source, target, file_list(files)]


COMMANDS: dict[str, Callable[[str], list[str]]] = {
    "folder": lambda path: make_folder(path, 0o750, "nobody"),
    "give": lambda path: give_folder(path, 0o750, "nobody"),
    "folder below": lambda path: make_folder(f"{path}/below", 0o750, "nobody"),
    "point below": lambda path: make_point(f"{path}/below"),
    "write below": lambda path: write_file(f"{path}/file"),
    "remove below": lambda path: remove(f"{path}/file"),
    "copy below": lambda path: copy_files("/etc", f"{path}/copy", []),
}
every_command = pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)


@every_command
@pytest.mark.usefixtures("untouched")
def test_a_link_of_another_account_is_no_way(
    place: Path, command: Callable[[str], list[str]]
) -> None:
    link = place / "link"
    link.symlink_to("treasure")
    os.lchown(link, NOBODY, NOBODY)
    said = f"{link}: expected a folder, found a symbolic link"
    assert said in refused(command(str(link)))


@pytest.mark.parametrize("name", [name for name in COMMANDS if name not in ("folder", "give")])
def test_a_folder_of_another_account_is_no_place_for_root(place: Path, name: str) -> None:
    theirs = place / "theirs"
    only = f"expected a folder that only root can change, it belongs to uid {NOBODY}"
    assert f"{theirs}: {only}" in refused(COMMANDS[name](str(theirs)))
    assert names(theirs) == []


@pytest.mark.parametrize("mode", [0o777, 0o775])
def test_nor_is_one_that_others_may_write_to(place: Path, mode: int) -> None:
    shared = place / "shared"
    shared.mkdir()
    os.chown(shared, 0, NOBODY)
    shared.chmod(mode)
    words = write_file(str(shared / "file"))
    assert "expected a folder that only root can change" in refused(words)
    shared.chmod(0o1777)  # as /tmp: nobody can take the place of what root makes there
    do(words)


def test_root_s_own_links_are_followed_on_the_way(place: Path) -> None:
    disk = place / "disk"
    srv = place / "srv"
    disk.mkdir()
    srv.symlink_to("disk")
    (place / "opt").symlink_to(srv / ".." / "disk")
    do(make_folder(str(srv / "made")))
    do(write_file(str(place / "opt" / "made" / "file")))
    assert (disk / "made" / "file").read_bytes() == b"x"
    do(make_folder(str(srv), 0o751))  # somebody put it on another disk
    assert owner(disk) == (0, 0o751)
    given_away = make_folder(str(srv), 0o750, "nobody")
    assert "found a symbolic link of uid 0" in refused(given_away)
    os.link(srv, place / "twice", follow_symlinks=False)  # by whoever could write here
    (place / "round").symlink_to("round")
    for words in (
        make_folder(str(place / "twice")),
        make_folder(str(srv)),
        write_file(str(place / "round" / "file")),
    ):
        assert "expected a folder" in refused(words)


@pytest.mark.usefixtures("untouched")
def test_removing_takes_the_link_and_not_what_it_shows(place: Path) -> None:
    theirs = place / "theirs"
    (theirs / "link").symlink_to(place / "treasure")
    do(remove(str(theirs)))
    assert not theirs.exists()
    do(remove(str(theirs)))
    do(remove(str(place / "nowhere" / "at" / "all")))
    (place / "file").touch()
    do(remove(str(place / "file")))
    assert not (place / "file").exists()


def test_what_an_older_version_gave_away_is_taken_back_with_its_rights(place: Path) -> None:
    theirs = place / "theirs"
    # acl(5): the account may all.
    entries = ((1, 7, -1), (2, 7, NOBODY), (4, 5, -1), (16, 7, -1), (32, 5, -1))
    acl = struct.pack("<I", 2) + b"".join(struct.pack("<HHi", *entry) for entry in entries)
    try:
        for kind in ("access", "default"):
            os.setxattr(theirs, f"system.posix_acl_{kind}", acl)
    except OSError as problem:
        needs.skip(f"no access lists here: {problem}")
    do(make_folder(str(theirs), 0o755))
    assert owner(theirs) == (0, 0o755)
    assert os.listxattr(theirs) == []


def test_a_tree_that_is_deeper_than_a_program_goes_is_removed(place: Path) -> None:
    deep = "import os\nfor _ in range(3000):\n    os.mkdir('d')\n    os.chdir('d')\n"
    subprocess.run([sys.executable, "-c", deep], cwd=place / "theirs", check=True)
    try:
        do(remove(str(place / "theirs")))
        assert names(place) == ["treasure"]
    finally:  # pytest could not
        subprocess.run(["rm", "-rf", str(place / "theirs")], check=True)


SWAP = """
cd "$1"
while :; do mv -T "$2" kept; ln -s ../treasure "$2"; rm -f "$2"; mv -T kept "$2"; done 2>/dev/null
"""


@contextmanager
def swapping(place: Path, name: str) -> Iterator[None]:
    """An account swaps its folder `name` for a link to the treasure and back, very fast."""
    theirs = place / "theirs"
    own(theirs / name)
    account = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
    with subprocess.Popen([*account, "sh", "-c", SWAP, "sh", str(theirs), name]) as attacker:
        try:
            yield
        finally:
            attacker.kill()


@every_command
@pytest.mark.usefixtures("untouched")
def test_a_folder_that_becomes_a_link_meanwhile(
    place: Path, command: Callable[[str], list[str]]
) -> None:
    with swapping(place, "jobs"):
        for _ in range(25):
            assert run(command(f"{place}/theirs/jobs")).returncode == 1


def test_a_tree_that_changes_while_it_is_removed(
    place: Path, untouched: Callable[[], None]
) -> None:
    """Deep folders that become links below root's own: what they show stays."""
    theirs = place / "theirs"
    for _ in range(10):
        with swapping(place, "deep"):
            (theirs / "more").mkdir(exist_ok=True)
            for count in range(200):
                (theirs / "more" / str(count)).touch()
            run(remove(str(theirs)))
        own(theirs)
        untouched()


def test_a_file_that_changes_while_it_is_copied_is_the_listed_one_or_none(place: Path) -> None:
    good, evil = (word * 500_000 for word in (b"good", b"evil"))
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
            copy = place / f"copy-{number}"
            codes.add(run(copy_files(str(share), str(copy), listed)).returncode)
            assert not (copy / "wheel").exists() or (copy / "wheel").read_bytes() == good
    finally:
        stop.set()
        server.join()
    assert codes <= {0, 72}
