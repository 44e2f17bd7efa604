"""State lies where no project lies, for each inventory apart, and for its account alone."""

import os
import stat
from pathlib import Path

import pytest

from core.control.own_state import make_private, state_of, user_state
from core.ground.errors import ClusterError
from deploy.common.state_folder import StateFolder
from recognise.service.state import folder_of
from tests.habits import needs

ACCOUNT = 65534
REFUSED = {
    "account": r"belongs to another account \(uid 65534\): set XDG_STATE_HOME to a folder",
    "mode": "open to other accounts: `chmod 700 /",
    "link": "expected a folder, no link and no file: remove it",
}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of the state: an absolute XDG_STATE_HOME."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


@pytest.mark.parametrize("base", ["", "state", "./state"])
def test_a_project_from_the_net_brings_no_state(
    base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = tmp_path / "project"
    project.mkdir()
    monkeypatch.chdir(project)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_STATE_HOME", base)
    own = tmp_path / "home/.local/state/pscluster"
    assert StateFolder.of(Path("inventory.yaml"), "mine").path.parent == own
    assert folder_of(None).parent == own


def test_each_inventory_has_its_own_state_by_whatever_path_it_is_named(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "link.yaml").symlink_to("mine.yaml")
    monkeypatch.chdir(tmp_path)
    mine = state_of(Path("mine.yaml"), "name" * 15)
    assert mine == state_of(tmp_path / "link.yaml", "name" * 15)
    assert mine.parent == home / "pscluster"
    assert mine.name.startswith("namenamename-")
    assert len(mine.name) == 25
    others = {state_of(Path("other.yaml"), "name" * 15), state_of(Path("mine.yaml"), "name" * 14)}
    assert len({mine, folder_of(None), *others}) == 4


def test_it_is_for_its_account_alone(tmp_path: Path, home: Path) -> None:
    folder = StateFolder.of(tmp_path / "inventory.yaml", "mine")
    folder.create()
    for each in (home, home / "pscluster", folder.path, folder.logs):
        assert stat.S_IMODE(each.stat().st_mode) == 0o700


@pytest.mark.parametrize("above", [True, False])
@pytest.mark.parametrize("what", REFUSED)
def test_what_others_could_change_or_read_is_refused_by_name(
    above: bool, what: str, tmp_path: Path, home: Path
) -> None:
    folder = state_of(tmp_path / "inventory.yaml", "mine")
    place = folder.parent if above else folder
    make_private(folder)
    if what == "account":
        needs.root("to give folders to another account")
        os.chown(place, ACCOUNT, ACCOUNT)
    elif what == "mode":
        place.chmod(0o720 if above else 0o740)
    else:
        place.rename(tmp_path / "elsewhere")
        place.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ClusterError, match=f"^{place}: {REFUSED[what]}"):
        StateFolder.of(tmp_path / "inventory.yaml", "mine")


def test_without_a_home_the_error_names_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", "relative")
    with pytest.raises(ClusterError, match=r"^HOME: expected .* or set XDG_STATE_HOME to a folder"):
        user_state()
