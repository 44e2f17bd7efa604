"""A writer whose lock went to another process, as over NFS after a partition.

It writes nothing more.
"""

import fcntl
from pathlib import Path

import pytest

from core.checkpoints import CheckpointStore, Superseded, WriterLock
from tests.core.checkpoints.contents import files, newest, numbered


def test_the_old_writer_is_refused_and_the_new_one_s_checkpoint_stays(tmp_path: Path) -> None:
    with CheckpointStore(tmp_path) as old:
        old.write(numbered(1))
        assert old._lock is not None
        fcntl.flock(old._lock._descriptor, fcntl.LOCK_UN)  # the storage server gave it away
        with CheckpointStore(tmp_path) as new:
            new.write(numbered(2))
            before = files(tmp_path)
            with pytest.raises(Superseded, match=r"no longer the writer .* epoch was 1 and is 2"):
                old.write(numbered(3))
            assert files(tmp_path) == before
            new.write(numbered(4))
    assert newest(tmp_path) == (4, ())


def test_each_writer_has_an_epoch_of_its_own_after_every_kind_of_file(tmp_path: Path) -> None:
    for content, expected in ((None, 1), ("123\n", 1), ("123\n41\n", 42), ("nonsense", 1), ("", 1)):
        if content is not None:
            (tmp_path / ".lock").write_text(content)
        lock = WriterLock(tmp_path)
        lock.refuse_if_superseded()
        lock.release()
        assert (tmp_path / ".lock").read_text().split()[1] == str(expected)


def test_a_lock_that_was_removed_is_lost(tmp_path: Path) -> None:
    lock = WriterLock(tmp_path)
    (tmp_path / ".lock").unlink()
    with pytest.raises(Superseded, match="a person or a program removed the lock"):
        lock.refuse_if_superseded()
    lock.release()
