"""The lab's cluster of the shipped inventory: sixteen Pis and their operator."""

import base64
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deploy.converge.monitor import MONITOR_PASSWORD
from deploy.monitor.ready import USER
from deploy.release.code_wheel import PACKAGES
from tests.deploy.playing import eventually
from tests.lab.lab import Lab
from tests.lab.operator import Operator
from tests.lab.places import PROJECT
from tests.lab.snapshot import Snapshot

HUB = "rpi11"
"""Shared folder, parameter server, coordinator and a worker."""
INSTALLING = ("rpi01", HUB)
"""These install the environment; the other nodes have it from a seed, as after an earlier
deployment."""
NODES = [f"rpi{number:02d}" for number in range(1, 17)]
EPOCHS = 3
SHORT = ("--set", "jobs.pi.samples=32000000", "--set", f"jobs.train.epochs={EPOCHS}")
PORTS = (2222, 2223, 2224, 8470, 9090, 9200, 9201, 9202, 9203, 9204, 2049)
"""TensorFlow's, those of metrics and page, the NFS server's."""
WELL_SECONDS = 180.0


@dataclass(frozen=True)
class SixteenPis:
    """The lab, its operator, and its nodes' first snapshots."""

    lab: Lab
    operator: Operator
    before: Mapping[str, Snapshot]

    def wait_until_well(self) -> None:
        """Returns when `status` reports every node as healthy."""
        eventually(self.operator.well, "all nodes are well", WELL_SECONDS)

    def prometheus(self, what: str) -> Any:
        """What the monitor on rpi02 answers to another node."""
        password = self.lab.ssh("rpi02", f"sudo cat {MONITOR_PASSWORD}").stdout.strip()
        proof = base64.b64encode(f"{USER}:{password}".encode()).decode()
        read = (
            "import sys, urllib.request; asked = urllib.request.Request(sys.argv[1],"
            ' headers={"Authorization": "Basic " + sys.argv[2]});'
            " print(urllib.request.urlopen(asked, timeout=5).read().decode())"
        )
        url = f"http://192.168.1.17:9090/api/v1/{what}"
        answer = self.lab.ssh("rpi03", f"python3 -c '{read}' '{url}' {proof}")
        return json.loads(answer.stdout)["data"]

    def release_of(self, node: str, unit: str) -> str:
        """The release that a role's process started from."""
        where = f"sudo readlink /proc/$(systemctl show -p MainPID --value {unit})/cwd"
        return Path(self.lab.ssh(node, where).stdout.strip()).name


def changed_copy(folder: Path) -> Path:
    """A checkout with another comment in the code, with this one's environment and cache."""
    folder.mkdir()
    for name in (*PACKAGES, "tools"):
        shutil.copytree(PROJECT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("fabfile.py", "pyproject.toml", "uv.lock"):
        shutil.copyfile(PROJECT / name, folder / name)
    (folder / ".cache").symlink_to(PROJECT / ".cache")
    with (folder / "core/ground/errors.py").open("a") as file:
        file.write("# A second release.\n")
    return folder
