"""Releases on a node's disk: unpacked, made current, gone back from, removed."""

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from deploy.release.code_wheel import CodeWheel, code_key
from deploy.release.hashes import file_sha256
from deploy.release.history import Installed, ListingError, previous, read, unneeded
from deploy.release.scripts import Done, Refusal, RefusedError, list_releases, make_current, remove, unpack_release
from tests.deploy.release.wheels import DEADLINE_SECONDS, EXECUTABLE, printed, pure_wheel, run, times

ENVIRONMENTS = ("a" * 16, "b" * 16)


class Node:
    """A node's disk, and what the deployment does to it."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "opt of $(hostname)"
        self._wheels = folder / "wheels"
        for key in ENVIRONMENTS:
            self.environment(key)

    def environment(self, key: str) -> None:
        """As good as complete for a release: it has a Python."""
        home = self.root / "environments" / key
        (home / "bin").mkdir(parents=True)
        (home / "bin" / "python").symlink_to(EXECUTABLE)
        (home / ".complete").touch()

    def code(self, text: str) -> CodeWheel:
        path = pure_wheel(self._wheels / text, "code", text=text)
        return CodeWheel(path, code_key(path.read_bytes()), file_sha256(path), "1.0")

    def unpack(self, code: CodeWheel, environment: str = ENVIRONMENTS[0]) -> Done:
        return run(unpack_release(code, environment, root=str(self.root)), code.path.read_bytes())

    def push(self, text: str, environment: str = ENVIRONMENTS[0]) -> str:
        code = self.code(text)
        self.unpack(code, environment)
        run(make_current(code.key, root=str(self.root)))
        return code.key

    def installed(self) -> Installed:
        return read(printed(list_releases(root=str(self.root))))

    def text(self) -> str:
        """What the current code says, with its own environment's Python."""
        here = self.root / "current"
        command = [str(here / "environment" / "bin" / "python"), "-c", "import code_of_release as c; print(c.TEXT)"]
        shutil.copyfile(here / "code.py", here / "code_of_release.py")  # `code` is a module of Python's own
        said = subprocess.run(command, cwd=here, check=True, capture_output=True, text=True)
        return said.stdout.strip()


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_a_release_is_unpacked_whole_with_bytecode_and_its_environment(node: Node) -> None:
    code = node.code("one")
    assert node.unpack(code).changed
    folder = node.root / "releases" / code.key
    assert os.readlink(folder / "environment") == f"../../environments/{ENVIRONMENTS[0]}"
    assert list(folder.glob("__pycache__/code.*.pyc"))
    assert (folder / "code.py").stat().st_mode & 0o777 == 0o644
    before = times(node.root)
    assert not node.unpack(code).changed
    assert times(node.root) == before


def test_a_release_that_is_there_follows_to_another_environment(node: Node) -> None:
    code = node.code("one")
    node.unpack(code)
    before = times(node.root / "releases" / code.key / "__pycache__")
    assert node.unpack(code, ENVIRONMENTS[1]).changed
    assert os.readlink(node.root / "releases" / code.key / "environment").endswith(ENVIRONMENTS[1])
    assert times(node.root / "releases" / code.key / "__pycache__") == before


def test_code_that_arrives_damaged_leaves_nothing(node: Node) -> None:
    code = node.code("one")
    for content in (b"", code.path.read_bytes()[:-1]):
        with pytest.raises(RefusedError, match="push it again") as caught:
            run(unpack_release(code, ENVIRONMENTS[0], root=str(node.root)), content)
        assert caught.value.refusal is Refusal.HASH_MISMATCH
    assert list((node.root / "releases").iterdir()) == []


def test_a_release_wants_a_complete_environment(node: Node) -> None:
    (node.root / "environments" / ENVIRONMENTS[0] / ".complete").unlink()
    with pytest.raises(RefusedError, match="install it first"):
        node.unpack(node.code("one"))
    with pytest.raises(RefusedError, match="is not there"):
        run(make_current("c" * 16, root=str(node.root)))


def test_an_unpacking_that_was_killed_is_begun_anew(node: Node) -> None:
    code = node.code("one")
    text = unpack_release(code, ENVIRONMENTS[0], root=str(node.root))
    process = subprocess.Popen(["sh", "-c", text], start_new_session=True, stdin=subprocess.PIPE)
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not list(node.root.glob("releases/.partial-*")):
        assert time.monotonic() < deadline
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert node.installed().releases == ()
    assert node.unpack(code).changed
    assert [path.name for path in (node.root / "releases").iterdir()] == [code.key]


def test_current_flips_in_one_step_and_never_points_at_nothing(node: Node) -> None:
    first, second = node.push("one"), node.code("two")
    node.unpack(second)
    watcher = subprocess.Popen(
        ["sh", "-c", 'while [ -e "$1" ]; do :; done; echo gone', "sh", str(node.root / "current" / "code.py")],
        stdout=subprocess.PIPE,
        text=True,
    )
    for _ in range(10):
        assert run(make_current(second.key, root=str(node.root))).changed
        assert run(make_current(first, root=str(node.root))).changed
    assert watcher.poll() is None
    watcher.kill()
    watcher.communicate()
    before = times(node.root)
    assert not run(make_current(first, root=str(node.root))).changed
    assert times(node.root) == before
    assert node.text() == "one"


def test_a_rollback_goes_to_what_was_current_before(node: Node) -> None:
    first, second = node.push("one"), node.push("two", ENVIRONMENTS[1])
    never_current = node.code("three")
    node.unpack(never_current)
    there = node.installed()
    assert there.current == second
    assert [release.key for release in there.releases] == [second, first, never_current.key]
    back = previous(there)
    assert back is not None
    assert (back.key, back.environment) == (first, ENVIRONMENTS[0])
    run(make_current(back.key, root=str(node.root)))
    assert node.text() == "one"
    again = previous(node.installed())
    assert again is not None
    assert again.key == second


def test_a_flip_whose_record_was_lost_is_recorded_by_the_next(node: Node) -> None:
    first, second = node.push("one"), node.push("two")
    history = node.root / "history"
    history.write_text("".join(f"{line}\n" for line in history.read_text().splitlines()[:-1]))
    back = previous(node.installed())
    assert back is not None
    assert back.key == first
    node.push("three")
    back = previous(node.installed())
    assert back is not None
    assert back.key == second


def test_nothing_to_go_back_to(node: Node, tmp_path: Path) -> None:
    assert previous(read(printed(list_releases(root=str(tmp_path / "nowhere"))))) is None
    node.push("one")
    assert previous(node.installed()) is None


def test_three_releases_stay_and_environments_while_one_needs_them(node: Node) -> None:
    keys = [node.push(text, ENVIRONMENTS[number > 0]) for number, text in enumerate(("one", "two", "three", "four"))]
    (node.root / "releases" / ".partial-x").mkdir()
    (node.root / "environments" / ".partial-y").mkdir()
    gone = unneeded(node.installed())
    assert (gone.releases, gone.environments) == ((keys[0],), (ENVIRONMENTS[0],))
    assert unneeded(node.installed(), also_needed=[ENVIRONMENTS[0]]).environments == ()
    text = remove(gone.releases, gone.environments, root=str(node.root))
    assert run(text) == Done(True, "removed 4")
    assert run(text) == Done(False, "nothing to remove")
    assert sorted(path.name for path in (node.root / "releases").iterdir()) == sorted(keys[1:])
    assert [path.name for path in (node.root / "environments").iterdir()] == [ENVIRONMENTS[1]]


def test_the_current_release_stays_though_many_came_after(node: Node) -> None:
    first = node.push("one")
    later = [node.push(text) for text in ("two", "three", "four")]
    run(make_current(first, root=str(node.root)))
    assert unneeded(node.installed()).releases == (later[0],)
    with pytest.raises(RefusedError, match="is current"):
        run(remove([first], [], root=str(node.root)))
    assert node.text() == "one"


@pytest.mark.parametrize("key", ["", "../../etc", "a" * 15, "A" * 16, "a" * 16 + "\n"])
def test_what_is_no_key_never_reaches_a_script(key: str) -> None:
    for render in (make_current, lambda key: remove([key], []), lambda key: remove([], [key])):
        with pytest.raises(ValueError, match="hexadecimal"):
            render(key)


def test_a_listing_that_is_none_is_refused() -> None:
    for line in ("sudo: a password is required", "release of the day", "history of machines"):
        with pytest.raises(ListingError, match=f"listing of releases, got '{line}'"):
            read(f"{line}\ncurrent aaaa\nunchanged: listed\n")
