import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from benchmarks.beds.cpu_quota import CONTROLLER, limited, period_of, why_not
from tests.habits import needs

ENDLESS = [sys.executable, "-c", "while True: pass"]


def groups_of(process_id: int) -> list[Path]:
    """Those that hold the process; others of this machine come and go."""
    holding = []
    for group in CONTROLLER.glob("pscluster-*"):
        with suppress(OSError):  # it has gone meanwhile
            if str(process_id) in (group / "cgroup.procs").read_text().split():
                holding.append(group)
    return holding


def test_a_controller_that_is_not_there_is_said_in_a_line(tmp_path: Path) -> None:
    assert why_not(tmp_path / "none") == f"no cpu controller of cgroup v1 at {tmp_path / 'none'}"


def test_a_folder_that_makes_no_cgroups_is_refused_and_left_as_it_was(tmp_path: Path) -> None:
    needs.root("as another user, the folder alone does not decide")
    (tmp_path / "cgroup.procs").touch()
    assert "know no cpu.cfs_quota_us" in why_not(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["cgroup.procs"]


def test_the_period_is_as_long_as_the_least_quota_of_the_kernel_asks_for() -> None:
    assert period_of(0.2) == 10_000
    assert period_of(0.05) == 20_000


def test_the_group_of_a_process_that_died_goes_too() -> None:
    needs.possible(why_not())
    process = subprocess.Popen(ENDLESS)
    with limited({process.pid: 0.5}):
        (group,) = groups_of(process.pid)
        process.kill()
        process.wait()
    assert not group.exists()
