"""A project's folder from the net brings no token, key of a host, authority or link of its own."""

import os
import stat
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from core.control.own_state import MARK, check, make
from core.control.token import kept_token, read_token
from core.errors import ClusterError
from core.user_cache import user_state
from deploy.cluster.login import PinnedKeys
from deploy.common.file_lock import FileLock
from deploy.common.state_folder import StateFolder
from deploy.supervisor.processes import start_logged
from recognise.service import state as service_state
from tests.habits import needs

ACCOUNT = 65534
THEIRS = "ab" * 32
Use = Callable[[Path], object]


def planted(project: Path) -> Path:
    """What a supplier packed: secrets that he knows, and links to files of the person."""
    state = project / ".pscluster"
    for folder in ("mine/logs", "_service"):
        (state / folder).mkdir(parents=True)
    for name in ("mine/token", "_service/token"):
        (state / name).write_text(f"{THEIRS}\n")
    (state / "mine/known_hosts").write_text("192.0.2.1 ssh-ed25519 AAAA\n")
    (state / "_service/authority.pem").write_text("theirs\n")
    (project / "of-the-person").write_text("precious\n")
    (state / "mine/logs/worker-0.log").symlink_to(project / "of-the-person")
    (state / "mine/logs/supervisor.log").symlink_to(project / "made-by-us")
    (state / ".gitignore").symlink_to(project / "made-by-us")
    return state


def beside(project: Path) -> StateFolder:
    return StateFolder.beside(project / "inventory.yaml", "mine")


def _token(project: Path) -> str:
    make(project / ".pscluster/mine")
    return beside(project).token()


USES: dict[str, Use] = {
    "start": lambda project: beside(project).create(),
    "token": _token,
    "lock": lambda project: FileLock(project / ".pscluster/mine/job.lock").__enter__(),
    "look": beside,
    "service": lambda project: service_state.token(project / ".pscluster/_service"),
    "trust": lambda project: PinnedKeys(beside(project).path / "known_hosts").load(),
}


@pytest.mark.parametrize("use", USES)
def test_what_a_folder_from_the_net_brought_is_set_aside(
    use: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = planted(tmp_path)
    held = USES[use](tmp_path)
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert f"it is {state}.aside-1 now" in said
    for folder in ("mine", "_service"):
        assert read_token(state / folder) != THEIRS
    assert not (state / "_service/authority.pem").exists()
    assert not (state / "mine/known_hosts").exists()
    assert (tmp_path / "of-the-person").read_text() == "precious\n"
    assert not (tmp_path / "made-by-us").exists()
    assert not [path for path in state.rglob("*") if path.is_symlink()]
    check(state)
    assert capsys.readouterr().err == "", "from now on it is ours"
    del held


def test_what_is_ours_of_an_earlier_version_comes_back_as_the_line_says(tmp_path: Path) -> None:
    state = tmp_path / ".pscluster"
    (state / "mine").mkdir(parents=True)
    token = kept_token(state / "mine")
    check(state)
    assert read_token(state / "mine") is None
    for each in (tmp_path / ".pscluster.aside-1").iterdir():  # `mv aside/* .pscluster/`
        each.rename(state / each.name)
    assert beside(tmp_path).token() == token


def test_a_state_is_ours_at_its_path_for_this_account_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = tmp_path / "project"
    project.mkdir()
    state = project / ".pscluster"
    make(state / "mine")
    token = kept_token(state / "mine")
    assert stat.S_IMODE(state.stat().st_mode) == 0o700
    assert stat.S_IMODE((user_state() / "state-key").stat().st_mode) == 0o600
    check(state)
    assert read_token(state / "mine") == token
    project.rename(tmp_path / "moved")
    check(tmp_path / "moved/.pscluster")
    assert read_token(tmp_path / "moved/.pscluster/mine") is None
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another person"))
    check(tmp_path / "moved/.pscluster")
    assert (tmp_path / "moved/.pscluster.aside-2" / MARK).exists()


def test_a_link_in_its_place_is_set_aside_and_what_it_leads_to_stays(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "mine").mkdir(parents=True)
    (tmp_path / ".pscluster").symlink_to(elsewhere)
    beside(tmp_path).create()
    assert (tmp_path / ".pscluster").is_dir()
    assert not (tmp_path / ".pscluster").is_symlink()
    assert [path.name for path in elsewhere.iterdir()] == ["mine"]


def test_commands_that_begin_at_once_make_one_state(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: make(tmp_path / ".pscluster/mine"), range(40)))
    assert sorted(path.name for path in tmp_path.iterdir()) == [".pscluster"]


@pytest.mark.parametrize(
    ("mode", "owner", "said"),
    [
        (
            0o755,
            ACCOUNT,
            r"belongs to another account \(uid 65534\).*copy it into a folder of",
        ),
        (0o777, 0, "every account may write to this project's folder.*`chmod o-w "),
    ],
)
def test_a_project_that_others_could_change_is_refused_by_name(
    mode: int, owner: int, said: str, tmp_path: Path
) -> None:
    needs.root("to give folders to another account")
    project = tmp_path / "project"
    project.mkdir()
    project.chmod(mode)
    os.chown(project, owner, owner)
    with pytest.raises(ClusterError, match=said):
        beside(project).create()
    assert not (project / ".pscluster").exists()


def test_a_state_of_another_account_is_refused(tmp_path: Path) -> None:
    needs.root("to give folders to another account")
    make(tmp_path / ".pscluster")
    os.chown(tmp_path / ".pscluster", ACCOUNT, ACCOUNT)
    with pytest.raises(ClusterError, match="belongs to another account"):
        beside(tmp_path)


def test_in_our_own_state_too_no_link_is_followed(tmp_path: Path) -> None:
    folder = beside(tmp_path)
    folder.create()
    (tmp_path / "of-the-person").write_text(f"{THEIRS}\n")
    for path in (folder.log("worker:0"), folder.lock, folder.path / "token"):
        path.symlink_to(tmp_path / "of-the-person")
    with pytest.raises(OSError, match="symbolic links"):
        start_logged(["true"], folder.log("worker:0"))
    with pytest.raises(OSError, match="symbolic links"):
        FileLock(folder.lock)
    assert folder.token() != THEIRS
    assert (tmp_path / "of-the-person").read_text() == f"{THEIRS}\n"
