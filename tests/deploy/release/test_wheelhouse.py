"""A wheelhouse is downloaded once, is completed later, and says in one line what is missing."""

import os
import shutil
import threading
import time
from pathlib import Path

import pytest

from core.ground.errors import ClusterError
from core.ground.locks import FileLock
from deploy.release.requirements import SUMS, environment_key, file_sha256, parse_sums
from deploy.release.wheelhouse import Wheelhouse, make_wheelhouse
from tests.deploy.release.wheels import (
    DEADLINE_SECONDS,
    MACHINE,
    PYTHON,
    names,
    pure_wheel,
    requirements,
)

ALPHA = "alpha-1.0-py3-none-any.whl"


class Cache:
    """The cache of an operator, and a list of what is in an index."""

    def __init__(self, folder: Path, index: Path) -> None:
        self.folder = folder
        self.index = index
        self.said: list[str] = []
        self.list()

    def list(self) -> None:
        """Ask for everything in the index."""
        self.asked = requirements(*sorted(self.index.glob("*.whl")))
        self.key = environment_key(self.asked, PYTHON, MACHINE)

    def make(self) -> Wheelhouse:
        say = self.said.append
        return make_wheelhouse(self.asked, PYTHON, MACHINE, cache=self.folder, say=say)


@pytest.fixture
def cache(tmp_path: Path, index: Path) -> Cache:
    pure_wheel(index, "alpha")
    pure_wheel(index, "beta")
    return Cache(tmp_path / "cache", index)


def test_it_holds_what_was_asked_for_with_hashes_and_sizes(cache: Cache) -> None:
    made = cache.make()
    assert made.key == cache.key == made.folder.name
    assert {*names(made.folder)} == {*made.files}
    wheels = [made.folder / name for name in made.files if name != SUMS]
    assert parse_sums(made.sums()) == {path.name: file_sha256(path) for path in wheels}
    assert made.bytes == sum((made.folder / name).stat().st_size for name in made.files)
    blocks = 4  # of each wheel: a module, its bytecode, two files about it; the third is empty
    assert made.installed_bytes == 2 * blocks * 4096
    assert made == cache.make()


def test_a_complete_one_asks_for_nothing(cache: Cache) -> None:
    made = cache.make()
    cache.said.clear()
    shutil.rmtree(cache.index)
    assert cache.make() == made
    assert cache.said == []


def test_a_wheel_for_older_pythons_alone_comes_too(cache: Cache) -> None:
    """The lock has chosen it: uv ignores the bound that backports-strenum, for LiteRT, has."""
    pure_wheel(cache.index, "gamma", python="<3.11")
    cache.list()
    assert "gamma-1.0-py3-none-any.whl" in cache.make().files


def test_a_missing_wheel_is_one_line_and_the_next_attempt_goes_on(
    cache: Cache, tmp_path: Path
) -> None:
    beta = cache.index / "beta-1.0-py3-none-any.whl"
    kept = beta.rename(tmp_path / beta.name)
    with pytest.raises(
        ClusterError, match=r"^[^\n]*CPython .* are incomplete: .*beta==1\.0[^\n]*$"
    ):
        cache.make()
    kept.rename(beta)
    assert len(cache.make().files) == 4


def test_what_was_cut_off_is_made_good(cache: Cache) -> None:
    folder = cache.folder / cache.key
    (folder / f".pip.{os.uname().nodename}@0-1.partial").mkdir(parents=True)
    (folder / ALPHA).write_bytes(b"half")
    (folder / "older-1.0-py3-none-any.whl").write_bytes(b"of nobody")
    made = cache.make()
    assert {*names(folder)} == {*made.files}


@pytest.mark.parametrize("content", [b"half", None])
def test_one_with_another_file_is_made_again(cache: Cache, content: bytes | None) -> None:
    made = cache.make()
    alpha = made.folder / ALPHA
    alpha.write_bytes(content or bytes(alpha.stat().st_size))
    assert cache.make() == made
    assert file_sha256(alpha) == parse_sums(made.sums())[ALPHA]


def test_another_list_takes_what_is_there_already(cache: Cache) -> None:
    first = cache.make()
    pure_wheel(cache.index, "gamma")
    cache.list()
    second = cache.make()
    assert second.key != first.key
    assert (second.folder / ALPHA).samefile(first.folder / ALPHA)


def test_no_network_is_said(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PIP_NO_INDEX", "PIP_FIND_LINKS"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    # The port "discard": nobody answers.
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    with pytest.raises(ClusterError, match=r"^[^\n]*is the network there[^\n]*$"):
        cache.make()


def test_a_second_one_waits_for_the_first(cache: Cache) -> None:
    made = list[Wheelhouse]()
    second = threading.Thread(target=lambda: made.append(cache.make()))
    with FileLock(cache.folder / f"{cache.key}.lock"):
        second.start()
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not cache.said:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert "waiting for process" in cache.said[0]
        assert made == []
    second.join(DEADLINE_SECONDS)
    assert len(made) == 1
