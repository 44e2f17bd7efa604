"""A disk that does not take a checkpoint.

The ones before stay, nothing half-written does, and one line says why.
"""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

import core.ground.files
from core.checkpoints import CheckpointStore
from core.ground.errors import ClusterError
from tests.core.checkpoints.contents import PROJECT, files, newest, numbered
from tests.core.server.processes import python

REFUSED_AT_A_SIZE = """
import resource, sys
from pathlib import Path
from core.checkpoints import CheckpointStore
from core.ground.errors import ClusterError
from tests.core.checkpoints.contents import numbered

folder, size, note, update = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
with CheckpointStore(folder) as store:
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
    try:
        store.write(numbered(7, update=update, size=size, note="x" * note))
    except ClusterError as problem:
        print(problem)
        sys.exit(problem.exit_code)
"""


@pytest.mark.parametrize("update", [1, 2], ids=["in another's place", "a new one"])
@pytest.mark.parametrize(
    ("size", "note", "kind"), [(10_000, 0, "safetensors"), (10, 10_000, "json")]
)
def test_a_file_that_does_not_fit_leaves_what_was_there(
    tmp_path: Path, size: int, note: int, kind: str, update: int
) -> None:
    with CheckpointStore(tmp_path) as store:
        store.write(numbered(0))
        store.write(numbered(1))
    before = files(tmp_path)
    child = python("-c", REFUSED_AT_A_SIZE, str(tmp_path), str(size), str(note), str(update))
    assert child.returncode == 1, child.stderr
    assert child.stdout.startswith(f"{tmp_path}/update-00000000{update}")
    assert child.stdout.endswith(
        f".{kind}: cannot be written (File too large): free some space or change `runs`\n"
    )
    assert child.stdout.count("\n") == 1
    assert files(tmp_path) == before


AS_NOBODY = """
import os, sys
from pathlib import Path
from core.checkpoints import CheckpointStore, read_newest
from core.ground.errors import ClusterError
from tests.core.checkpoints.contents import numbered

folder, action = Path("checkpoints"), sys.argv[1]
if action == "write":
    store = CheckpointStore(folder)
    folder.chmod(0o555)
if os.geteuid() == 0:
    os.seteuid(65534)
try:
    if action == "write":
        store.write(numbered(7))
    elif action == "lock":
        CheckpointStore(folder)
    else:
        found, refused = read_newest(folder)
        print(*refused, None if found is None else found.update, sep="\\n")
except ClusterError as problem:
    print(problem)
    sys.exit(problem.exit_code)
"""


def as_somebody_else(folder: Path, action: str) -> "subprocess.CompletedProcess[str]":
    """Run in `folder`, because root's temporary folder is closed to everybody else."""
    environment = {**os.environ, "PYTHONPATH": str(PROJECT)}
    command = [sys.executable, "-B", "-c", AS_NOBODY, action]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


@pytest.fixture
def place(tmp_path: Path) -> Path:
    place = tmp_path / "open"
    place.mkdir()
    with CheckpointStore(place / "checkpoints") as store:
        store.write(numbered(1))
        store.write(numbered(2))
    return place


@pytest.mark.parametrize(
    ("action", "words"), [("write", "cannot be written"), ("lock", "cannot be locked")]
)
def test_a_folder_of_somebody_else(place: Path, action: str, words: str) -> None:
    before = files(place / "checkpoints")
    if action == "lock":
        (place / "checkpoints" / ".lock").chmod(0o444)
    child = as_somebody_else(place, action)
    (place / "checkpoints").chmod(0o755)
    assert child.returncode == 1, child.stderr
    assert child.stdout.startswith("checkpoints/")
    assert (
        f"{words} (Permission denied): make checkpoints writable for this user or change `runs`"
        in child.stdout
    )
    assert child.stdout.count("\n") == 1
    assert files(place / "checkpoints") == before


def test_a_file_that_may_not_be_read_is_refused_by_name(place: Path) -> None:
    (place / "checkpoints" / "update-000000002.safetensors").chmod(0)
    child = as_somebody_else(place, "read")
    assert child.stdout.splitlines() == [
        "checkpoints/update-000000002.safetensors: cannot be read (Permission denied)",
        "1",
    ]


def test_a_folder_that_may_not_be_read_is_one_line(place: Path) -> None:
    (place / "checkpoints").chmod(0)
    child = as_somebody_else(place, "read")
    (place / "checkpoints").chmod(0o755)
    assert child.returncode == 1, child.stderr
    assert (
        child.stdout
        == "checkpoints: checkpoints cannot be looked for (Permission denied): make it a folder"
        " that this user may read\n"
    )


def test_an_error_behind_the_manifest_leaves_the_checkpoint_that_it_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []

    def sync(folder: Path) -> None:
        synced.append(folder)
        if len(synced) == 2:  # behind the manifest
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    with CheckpointStore(tmp_path) as store:
        store.write(numbered(1))
        monkeypatch.setattr(core.ground.files, "sync_folder", sync)
        with pytest.raises(ClusterError, match="Input/output error"):
            store.write(numbered(2))
    assert newest(tmp_path) == (2, ())


INTERRUPTED = """
import itertools, sys
from pathlib import Path
from core.checkpoints import CheckpointStore
from tests.core.checkpoints.contents import numbered, version_of

folder, again, reached = sys.argv[1], sys.argv[2] == "again", -1

def interrupt(event, arguments):
    global reached
    on_disk = event in ("open", "os.rename", "os.remove")
    if reached >= 0 and on_disk and str(arguments[0]).startswith(folder):
        reached -= 1
        if reached < 0:
            print(event)
            raise KeyboardInterrupt

sys.addaudithook(interrupt)
with CheckpointStore(Path(folder), keep=1) as store:
    store.write(numbered(0))
    for version in itertools.count(1):
        update = 0 if again else version
        reached = version - 1
        try:
            store.write(numbered(version, update=update))
        except KeyboardInterrupt:
            found, refused = store.newest()
            assert refused == () and version_of(found) in (version, version - 1), (version, refused)
            assert not list(Path(folder).glob("*.partial"))
            store.write(numbered(version, update=update))
            assert len(list(Path(folder).glob("[!.]*"))) == 2
        else:
            break
"""


@pytest.mark.parametrize("what", ["new", "again"])
def test_an_interruption_before_any_step_of_a_write_leaves_a_whole_one(
    tmp_path: Path, what: str
) -> None:
    """A new checkpoint, and one in another's place, whose steps differ."""
    child = python("-c", INTERRUPTED, str(tmp_path), what)
    assert child.returncode == 0, child.stderr
    steps = child.stdout.split()
    renames = [number for number, step in enumerate(steps) if step == "os.rename"]
    assert len(renames) == 2, "of the tensors and of the manifest"
    assert steps[renames[1] + 1] == "open", "the folder, to sync it"
    assert "os.remove" in steps


def test_folders_that_a_file_system_cannot_sync_are_taken_as_they_are() -> None:
    with pytest.raises(OSError, match="Invalid argument"):
        os.fsync(descriptor := os.open("/proc", os.O_RDONLY))
    os.close(descriptor)
    core.ground.files.sync_folder(Path("/proc"))


def test_leftovers_of_a_killed_writer_go_with_the_next_write(tmp_path: Path) -> None:
    with CheckpointStore(tmp_path, keep=2) as store:
        store.write(numbered(1))
        store.write(numbered(5))
        for name in (
            ".update-000000006.safetensors.4711.partial",
            ".update-000000006.json.4711.partial",
            "update-000000003.safetensors",
            "update-000000005-again.safetensors",
            "update-000000009.safetensors",
        ):
            (tmp_path / name).write_bytes(b"left")
        store.write(numbered(6))
    assert newest(tmp_path) == (6, ())
    assert sorted(files(tmp_path)) == [
        "update-000000005.json",
        "update-000000005.safetensors",
        "update-000000006.json",
        "update-000000006.safetensors",
        "update-000000009.safetensors",
    ]
