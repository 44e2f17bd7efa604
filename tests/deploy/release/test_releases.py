"""Releases on a node's disk: unpacked, made current, gone back from, removed."""

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from deploy.release.code_wheel import CodeWheel, code_key
from deploy.release.requirements import file_sha256
from deploy.release.scripts import (
    Done,
    Installed,
    ListingError,
    Refusal,
    Release,
    installed_releases,
    list_releases,
    make_current,
    previous,
    remove,
    unneeded,
    unpack_release,
)
from tests.deploy.release.wheels import (
    DEADLINE_SECONDS,
    EXECUTABLE,
    names,
    printed,
    pure_wheel,
    refusal,
    run,
    times,
)

ENVIRONMENTS = ("a" * 16, "b" * 16)


class Node:
    """A node's disk, and what the deployment does to it."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "opt of $(hostname)"
        self.releases = self.root / "releases"
        self._wheels = folder / "wheels"
        for key in ENVIRONMENTS:  # each as good as complete for a release: it has a Python
            home = self.root / "environments" / key
            (home / "bin").mkdir(parents=True)
            (home / "bin" / "python").symlink_to(EXECUTABLE)
            (home / ".complete").touch()

    def code(self, text: str) -> CodeWheel:
        path = pure_wheel(self._wheels / text, "code", text=text)
        return CodeWheel(path, code_key(path.read_bytes()), file_sha256(path), "1.0")

    def unpacking(self, code: CodeWheel, environment: str = ENVIRONMENTS[0]) -> str:
        return unpack_release(code, environment, root=str(self.root))

    def unpack(self, code: CodeWheel, environment: str = ENVIRONMENTS[0]) -> Done:
        return run(self.unpacking(code, environment), code.path.read_bytes())

    def flip(self, key: str) -> Done:
        return run(make_current(key, root=str(self.root)))

    def push(self, text: str, environment: str = ENVIRONMENTS[0]) -> str:
        code = self.code(text)
        self.unpack(code, environment)
        self.flip(code.key)
        return code.key

    def installed(self) -> Installed:
        return installed_releases(printed(list_releases(root=str(self.root))))

    def back(self) -> Release:
        """Where a rollback goes."""
        release = previous(self.installed())
        assert release is not None
        return release

    def text(self) -> str:
        """What the current code says, with its own environment's Python."""
        here = self.root / "current"
        # `code` is a module of Python's own.
        shutil.copyfile(here / "code.py", here / "code_of_release.py")
        python = str(here / "environment" / "bin" / "python")
        words = [python, "-c", "import code_of_release as c; print(c.TEXT)"]
        return subprocess.check_output(words, cwd=here, text=True).strip()


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_a_release_is_unpacked_whole_with_bytecode_and_its_environment(node: Node) -> None:
    """It follows to another environment."""
    code = node.code("one")
    assert node.unpack(code).changed
    folder = node.releases / code.key
    assert os.readlink(folder / "environment") == f"../../environments/{ENVIRONMENTS[0]}"
    assert list(folder.glob("__pycache__/code.*.pyc"))
    assert (folder / "code.py").stat().st_mode & 0o777 == 0o644
    before = times(node.root)
    assert not node.unpack(code).changed
    assert times(node.root) == before
    before = times(folder / "__pycache__")
    assert node.unpack(code, ENVIRONMENTS[1]).changed
    assert os.readlink(folder / "environment").endswith(ENVIRONMENTS[1])
    assert times(folder / "__pycache__") == before


def test_code_that_arrives_damaged_leaves_nothing(node: Node) -> None:
    code = node.code("one")
    for content in (b"", code.path.read_bytes()[:-1]):
        found, line = refusal(node.unpacking(code), content)
        assert found is Refusal.HASH_MISMATCH
        assert "push it again" in line
    assert names(node.releases) == []


def test_a_release_wants_a_complete_environment(node: Node) -> None:
    (node.root / "environments" / ENVIRONMENTS[0] / ".complete").unlink()
    code = node.code("one")
    assert "install it first" in refusal(node.unpacking(code), code.path.read_bytes())[1]
    assert "is not there" in refusal(make_current("c" * 16, root=str(node.root)))[1]


def test_an_unpacking_that_was_killed_is_begun_anew(node: Node) -> None:
    code = node.code("one")
    words = ["sh", "-c", node.unpacking(code)]
    process = subprocess.Popen(words, start_new_session=True, stdin=subprocess.PIPE)
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not list(node.root.glob("releases/.partial-*")):
        assert time.monotonic() < deadline
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert node.installed().releases == ()
    assert node.unpack(code).changed
    assert names(node.releases) == [code.key]


def test_current_flips_in_one_step_and_never_points_at_nothing(node: Node) -> None:
    first = node.push("one")
    second = node.code("two")
    node.unpack(second)
    watch = 'while [ -e "$1" ]; do :; done; echo gone'
    words = ["sh", "-c", watch, "sh", str(node.root / "current" / "code.py")]
    watcher = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    for _ in range(10):
        assert node.flip(second.key).changed
        assert node.flip(first).changed
    assert watcher.poll() is None
    watcher.kill()
    watcher.communicate()
    before = times(node.root)
    assert not node.flip(first).changed
    assert times(node.root) == before
    assert node.text() == "one"


def test_a_flip_whose_record_was_lost_is_recorded_by_the_next(node: Node) -> None:
    first = node.push("one")
    second = node.push("two")
    history = node.root / "history"
    history.write_text("".join(history.read_text().splitlines(keepends=True)[:-1]))
    assert node.back().key == first
    node.push("three")
    assert node.back().key == second


def test_a_release_changed_by_hand_is_never_current_and_is_unpacked_again(node: Node) -> None:
    changed = node.push("one")
    node.push("two")
    (node.releases / changed / "json.py").symlink_to("/etc/passwd")
    assert "not as it was" in refusal(make_current(changed, root=str(node.root)))[1]
    assert node.unpack(node.code("one")).changed
    assert node.flip(changed).changed


def test_power_lost_on_the_way_from_an_old_release_to_its_new_form(node: Node) -> None:
    key = node.push("one")
    (node.releases / key).rename(node.releases / f".changed-{key}")
    assert not node.unpack(node.code("one")).changed
    assert node.text() == "one"


def test_nothing_to_go_back_to(node: Node, tmp_path: Path) -> None:
    assert (
        previous(installed_releases(printed(list_releases(root=str(tmp_path / "nowhere"))))) is None
    )
    node.push("one")
    assert previous(node.installed()) is None


def test_three_releases_stay_and_environments_while_one_needs_them(node: Node) -> None:
    oldest = node.push("one")
    newer = [node.push(text, ENVIRONMENTS[1]) for text in ("two", "three", "four")]
    (node.releases / ".partial-x").mkdir()
    (node.root / "environments" / ".partial-y").mkdir()
    gone = unneeded(node.installed())
    assert (gone.releases, gone.environments) == ((oldest,), (ENVIRONMENTS[0],))
    text = remove(gone.releases, gone.environments, root=str(node.root))
    assert run(text) == Done(True, "removed 4")
    assert run(text) == Done(False, "nothing to remove")
    assert names(node.releases) == sorted(newer)
    assert names(node.root / "environments") == [ENVIRONMENTS[1]]


def test_the_current_release_stays_though_many_came_after(node: Node) -> None:
    first = node.push("one")
    later = [node.push(text) for text in ("two", "three", "four")]
    node.flip(first)
    assert unneeded(node.installed()).releases == (later[0],)
    assert "is current" in refusal(remove([first], [], root=str(node.root)))[1]
    assert node.text() == "one"


@pytest.mark.parametrize("key", ["", "../../etc", "a" * 15, "A" * 16, "a" * 16 + "\n"])
def test_what_is_no_key_never_reaches_a_script(key: str) -> None:
    with pytest.raises(ValueError, match="hexadecimal"):
        make_current(key)
    for releases, environments in (([key], []), ([], [key])):
        with pytest.raises(ValueError, match="hexadecimal"):
            remove(releases, environments)


@pytest.mark.parametrize(
    "line", ["sudo: a password is required", "release of the day", "history of machines"]
)
def test_a_listing_that_is_none_is_refused(line: str) -> None:
    with pytest.raises(ListingError, match=f"listing of releases, got '{line}'"):
        installed_releases(f"{line}\ncurrent aaaa\nunchanged: listed\n")
