"""A coordinator's node that is this machine, with a played systemd and played coordinators."""

import getpass
import json
import os
import shlex
import signal
import sys
from pathlib import Path

from core.inventory import Inventory, load
from deploy.cluster.places import NodePlaces
from deploy.common.project import ROOT
from deploy.jobs.node_jobs import NodeJobs
from deploy.jobs.records import JobsRoot
from tests.deploy.local_shell import LocalShell
from tests.deploy.playing import eventually, gone

INVENTORY = """schema: 1
cluster: pi
connection: ssh
nodes: [{{name: rpi11, address: 127.0.0.1, roles: [storage, ps, worker, coordinator]}}]
storage: {{server: rpi11, mount: {mount}}}
jobs: {{train: {{mode: single}}}}
"""
HERE = Path(__file__).parent


class JobNode:
    """Everything in one folder; `how` is what the next coordinator does (see play_run.py)."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.journal = folder / "journal"
        self.root = JobsRoot(folder / "state")
        self.root.jobs.mkdir(parents=True)
        release = folder / "release"
        release.mkdir()
        for package in ("core", "cluster", "deploy"):
            (release / package).symlink_to(ROOT / package)
        (release / "environment").symlink_to(Path(sys.executable).parent.parent)
        (folder / "bin").mkdir()
        systemctl = folder / "bin" / "systemctl"
        script = shlex.join([sys.executable, str(HERE / "play_systemctl.py"), str(folder)])
        systemctl.write_text(f'#!/bin/sh\nexec {script} "$@"\n')
        systemctl.chmod(0o755)
        inventory = folder / "inventory.yaml"
        inventory.write_text(INVENTORY.format(mount=folder / "mount"))
        self.inventory: Inventory = load(inventory, [f"runs={folder / 'here' / 'runs'}"])
        paths = {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
        self.shell = LocalShell(paths)
        self.places = NodePlaces(str(release), str(self.root.path), user=getpass.getuser())

    def jobs(self, *overrides: str) -> NodeJobs:
        return NodeJobs(self.shell, self.inventory, overrides, self.places)

    def play(self, how: str) -> None:
        player = [str(HERE / "play_run.py"), str(self.journal), how]
        command = [
            sys.executable,
            str(HERE / "drive_node_job.py"),
            "--log",
            str(self.root.path),
            "%i",
            *player,
        ]
        (self.folder / "unit.json").write_text(json.dumps({"command": command}))

    def waiting(self) -> tuple[NodeJobs, str]:
        """A training that runs until it is interrupted: the jobs, and its name."""
        self.play("waits")
        jobs = self.jobs()
        name = jobs.submit("train", [])
        self.until_it_waits()
        return jobs, name

    def asked(self) -> list[str]:
        """The arguments of the latest coordinator."""
        words: list[str] = json.loads(self.journal.read_text())
        return words

    def until_it_waits(self) -> None:
        eventually(Path(f"{self.journal}.waits").exists, "the coordinator's wait")

    def pid(self, name: str) -> int:
        return int((self.folder / f"{name}.pid").read_text())

    def end(self) -> None:
        """Kill what is left."""
        for path in self.folder.glob("*.pid"):
            pid = int(path.read_text())
            if not gone(pid):
                os.kill(pid, signal.SIGKILL)
            eventually(lambda pid=pid: gone(pid), "the end of a job")  # type: ignore[misc]
