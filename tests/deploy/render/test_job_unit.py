import re
import subprocess
from pathlib import Path

import pytest

from cluster.inventory import Inventory, load
from deploy.cluster.places import NodePlaces
from deploy.common.project import ROOT
from deploy.render.units import job_unit, unit_of_job
from tests.habits import needs


@pytest.fixture
def inventory() -> Inventory:
    return load(ROOT / "inventory.yaml", check_interfaces=False)


def test_the_unit_runs_one_job_as_the_service_user(inventory: Inventory) -> None:
    lines = job_unit(inventory).splitlines()
    python = "/opt/pscluster/current/environment/bin/python"
    assert f"ExecStart={python} -m deploy.jobs.node_job %i --root /var/lib/pscluster" in lines
    assert "User=pscluster" in lines
    assert not [line for line in lines if line.startswith(("StandardOutput=", "StandardError="))]  # root would open it
    assert "Environment=HOME=/var/lib/pscluster/home XDG_CACHE_HOME=/var/lib/pscluster/home/cache" in lines
    assert "ReadWritePaths=/var/lib/pscluster /mnt/pscluster/runs -/mnt/pscluster/data" in lines
    assert unit_of_job("20261121T2230-train") == "pscluster-job@20261121T2230-train.service"


@pytest.fixture
def unit(tmp_path: Path, inventory: Inventory) -> Path:
    """The unit as a file, of programs that are on this machine."""
    needs.tool("systemd-analyze")
    release = tmp_path / "release"
    (release / "environment" / "bin").mkdir(parents=True)
    (release / "environment" / "bin" / "python").symlink_to("/bin/true")
    path = tmp_path / "pscluster-job@one.service"
    path.write_text(job_unit(inventory, NodePlaces(str(release), user="root")))
    return path


def test_systemd_understands_every_line(unit: Path) -> None:
    done = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False)
    ours = [line for line in done.stderr.splitlines() if unit.name in line]
    assert (done.returncode, ours) == (0, []), done.stderr


def test_its_exposure_is_at_most_two(unit: Path) -> None:
    unit.write_text(unit.read_text().replace("User=root", "User=pscluster"))
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--no-pager", str(unit)],
        capture_output=True,
        text=True,
        check=False,
    )
    found = re.search(r"Overall exposure level for \S+: ([0-9.]+)", done.stdout)
    assert found is not None, done.stdout + done.stderr
    assert float(found[1]) <= 2.0, done.stdout
