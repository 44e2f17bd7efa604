"""A writer that is killed at any moment leaves what it had written, whole."""

import os
import random
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from core.checkpoints import CheckpointStore, read_newest
from core.ground.errors import ClusterError
from tests.core.checkpoints.contents import PROJECT, files, newest, numbered, version_of


@contextmanager
def writing(folder: Path, keep: int, first: int, size: int) -> Iterator["subprocess.Popen[str]"]:
    """A writer in a process of its own; killed when the block ends, if it was not before."""
    arguments = [str(folder), str(keep), str(first), str(size)]
    command = [sys.executable, "-m", "tests.core.checkpoints.writer", *arguments]
    with subprocess.Popen(command, cwd=PROJECT, stdout=subprocess.PIPE, text=True) as writer:
        try:
            yield writer
        finally:
            writer.kill()


def killed_after(lines: int, folder: Path, keep: int, first: int, size: int) -> list[int]:
    """What a writer said that it had written when it was killed."""
    with writing(folder, keep, first, size) as writer:
        assert writer.stdout is not None
        said = [writer.stdout.readline() for _ in range(lines)]
        writer.kill()
        said += writer.stdout.readlines()
    assert writer.returncode == -signal.SIGKILL
    return [int(found[1]) for line in said if (found := re.fullmatch(r"written (\d+)\n", line))]


def test_killed_at_random_moments(tmp_path: Path) -> None:
    chance = random.Random(3)
    written = -1
    for _ in range(12):
        keep = chance.choice([1, 2, 3])
        said = killed_after(
            chance.randint(1, 40), tmp_path, keep, written + 1, chance.choice([10, 3000, 300_000])
        )
        found, refused = read_newest(tmp_path)
        assert refused == ()
        last = max(said, default=written)
        if found is None:
            assert last == -1
            continue
        # The last one that it said it had written, or the one that it was about to say.
        assert version_of(found) in (last, last + 1)
        assert found.update == version_of(found) // 2
        written = version_of(found)
    with CheckpointStore(tmp_path, keep=1) as store:
        store.write(numbered(written + 2, update=written // 2 + 1))
    assert len(files(tmp_path)) == 2


def test_a_reader_beside_a_writer_always_finds_a_whole_one(tmp_path: Path) -> None:
    latest = -1
    with writing(tmp_path, keep=1, first=0, size=3000) as writer:
        assert writer.stdout is not None
        while writer.stdout.readline() != "written 0\n":
            pass
        for line in iter(writer.stdout.readline, "written 40\n"):
            version, refused = newest(tmp_path)
            assert refused == (), line
            assert version >= latest
            latest = version
    assert latest > 0


def test_a_second_writer_is_refused_by_name_until_the_first_is_dead(tmp_path: Path) -> None:
    with writing(tmp_path, keep=1, first=0, size=10) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        with pytest.raises(ClusterError, match=f"process {writer.pid} does") as refused:
            CheckpointStore(tmp_path)
        assert str(refused.value).startswith(str(tmp_path))
        writer.kill()
        writer.wait()
        with (
            CheckpointStore(tmp_path),
            pytest.raises(ClusterError, match=f"process {os.getpid()} does"),
        ):
            CheckpointStore(tmp_path)
    with CheckpointStore(tmp_path) as store:
        store.write(numbered(1000))
