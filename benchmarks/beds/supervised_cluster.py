"""A cluster on this machine, started by `fab` and watched by the supervisor, as for a user."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from core.inventory.templates import local_inventory
from deploy.common.project import OWNER, ROOT
from deploy.common.state_folder import StateFolder

FAB = Path(sys.executable).with_name("fab")
START_SECONDS = 600.0
SUPERVISOR = "PSCLUSTER_SUPERVISOR"


@dataclass(frozen=True)
class SupervisedCluster:
    """The folder with the cluster's inventory; runs lie beside it."""

    folder: Path

    @property
    def inventory(self) -> Path:
        """The cluster's file."""
        return self.folder / "inventory.yaml"

    @property
    def environment(self) -> Mapping[str, str]:
        """Return this environment with the supervisor's socket, as a coordinator gets it."""
        return {**os.environ, SUPERVISOR: str(self.state.control_socket)}

    @property
    def state(self) -> StateFolder:
        """Return where the supervisor keeps its files."""
        return StateFolder.of(self.inventory, "local")

    def fab(
        self, words: Sequence[str], deadline_seconds: float
    ) -> subprocess.CompletedProcess[str]:
        """Run `fab WORDS` to its end. Raises RuntimeError with its last words if it fails."""
        return ended(
            [str(FAB), "-r", str(ROOT), *words, "--inventory", str(self.inventory)],
            self.folder,
            {**os.environ, OWNER: str(os.getpid())},
            deadline_seconds,
        )


def ended(
    command: Sequence[str], folder: Path, environment: Mapping[str, str], deadline_seconds: float
) -> subprocess.CompletedProcess[str]:
    """Run the command in `folder` to its end.

    Raises RuntimeError with its last words if it fails or is not done by the deadline.
    """
    what = " ".join(command[1:5])
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=deadline_seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"{what} was not done after {deadline_seconds:.0f} s") from None
    if done.returncode:
        raise RuntimeError(f"{what} ended with status {done.returncode}: {done.stderr[-2000:]}")
    return done


@contextmanager
def supervised_cluster(workers: int, servers: int) -> Iterator[SupervisedCluster]:
    """Start the roles, wait until each is ready, stop them afterwards."""
    with tempfile.TemporaryDirectory(prefix="pscluster-faults-") as temporary:
        cluster = SupervisedCluster(Path(temporary))
        cluster.inventory.write_text(local_inventory(workers, servers))
        try:
            cluster.fab(["deploy", "start", "--no-jobs"], START_SECONDS)
            yield cluster
        finally:
            cluster.fab(["deploy", "stop", "--yes"], START_SECONDS)
            shutil.rmtree(cluster.state.path)
