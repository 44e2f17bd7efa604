import os
import subprocess
import sys
from pathlib import Path

import pytest

from core.ground.errors import ClusterError, UsageError
from core.ground.locks import FileLock, LockHeldError, held_by
from deploy.commands.opening import choose
from deploy.common.project import environment_for_any_folder
from deploy.common.state_folder import LONGEST_SOCKET_PATH_BYTES, StateFolder
from deploy.supervisor import processes


def test_the_flag_names_the_inventory_before_the_environment_and_the_folder(tmp_path: Path) -> None:
    environ = {"PSCLUSTER_INVENTORY": "b.yaml"}
    assert choose("a.yaml", environ, tmp_path) == (Path("a.yaml"), "--inventory")
    assert choose(None, environ, tmp_path) == (Path("b.yaml"), "$PSCLUSTER_INVENTORY")
    with pytest.raises(UsageError, match="fab init --local"):
        choose(None, {}, tmp_path)
    (tmp_path / "inventory.yaml").touch()
    assert choose(None, {}, tmp_path) == (Path("inventory.yaml"), "./inventory.yaml")


def test_a_path_that_is_too_long_for_a_socket_is_refused_by_name() -> None:
    room = LONGEST_SOCKET_PATH_BYTES - len("//supervisor.sock")
    assert len(os.fsencode(StateFolder(Path("/" + "a" * room)).control_socket)) == 107
    with pytest.raises(ClusterError, match=r"/supervisor\.sock: longer than .* XDG_STATE_HOME"):
        _ = StateFolder(Path("/" + "a" * (room - 1) + "ä")).control_socket


def test_a_state_folder_that_cannot_be_made_is_one_error_with_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ClusterError, match=r"cannot be kept in .*; set XDG_STATE_HOME"):
        StateFolder(tmp_path / "file/local").create()


def test_a_lock_is_held_by_one_process_until_it_dies(tmp_path: Path) -> None:
    path = tmp_path / "x.lock"
    assert held_by(path) is None
    program = "import sys; from pathlib import Path; from core.ground.locks import FileLock\n"
    program += "with FileLock(Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()"
    holder = subprocess.Popen(
        [sys.executable, "-c", program, str(path)],
        env=environment_for_any_folder(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        assert held_by(path) == holder.pid
        with pytest.raises(LockHeldError) as refused:
            FileLock(path)
        assert refused.value.pid == holder.pid
        holder.kill()
    assert held_by(path) is None
    with FileLock(path):
        assert held_by(path) == os.getpid()
    assert held_by(path) is None


def test_a_large_log_is_set_aside_and_one_earlier_log_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "ps-0.log"
    processes.set_aside_if_large(path)
    for text in ("first\n", "second\n"):
        path.write_text(text)
        os.truncate(path, processes.LARGEST_BYTES)
        processes.set_aside_if_large(path)
        assert path.exists()
        os.truncate(path, processes.LARGEST_BYTES + 1)
        processes.set_aside_if_large(path)
        assert not path.exists()
    assert (tmp_path / "ps-0.log.1").read_bytes().startswith(b"second\n")


def test_last_words_are_those_of_this_run(tmp_path: Path) -> None:
    path = tmp_path / "ps-0.log"
    assert processes.last_line(path) == ""
    path.write_text("of an earlier run\n")
    before = path.stat().st_size
    assert processes.last_line(path, since=before) == ""
    with path.open("a") as log:
        log.write("one\n\n  two  \n\n")
    assert processes.last_line(path, since=before) == "two"
    assert processes.last_line(path) == "two"
