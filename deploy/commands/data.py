"""`fab data`: published recordings from where they are published, and what recordings hold.

Both work in a process of the data's own room: `fab` reads no recordings.
"""

import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from deploy.commands.edge import end_as_the_job_did, takes
from deploy.commands.flags import Flags, whole_number
from deploy.commands.opening import open_inventory
from deploy.common.project import environment_for_any_folder, module_command

if TYPE_CHECKING:
    from cluster.inventory import TrainJob

MOST_DRAWN = 9


@takes("name out sha256 quiet")
def fetch(flags: Flags) -> None:
    """Fetch a published set into the cache, where a training finds it: `fab data fetch hapt`, uci-har or hhar."""
    words = [flags.name or ""]
    words += ["--out", _here(flags.out)] if flags.out else []
    words += ["--sha256", flags.sha256] if flags.sha256 else []
    _end_as("cluster.data.fetch", *words, *(["--quiet"] if flags.quiet else []))


@takes("name inventory set_ each out json_")
def show(flags: Flags) -> None:
    """Show recordings: classes, people, channels, a few windows; or the first line that is wrong."""
    job = _job(flags)
    words = [
        flags.name or "",
        f"--window-steps={job.data.window_steps}",
        f"--window-stride={job.data.window_stride}",
        f"--seed={job.seed}",
        f"--options={json.dumps(job.data.options())}",
        f"--each={whole_number('--each', flags.each, 0, MOST_DRAWN)}",
    ]
    words += ["--out", _here(flags.out)] if flags.out else []
    _end_as("cluster.data.show", *words, *(["--json"] if flags.json_ else []))


def _here(path: str) -> str:
    return os.path.abspath(os.path.expanduser(path))


def _end_as(module: str, *words: str) -> None:
    """Run the module with the words, and end the command as it ends."""
    end_as_the_job_did(subprocess.run(module_command(module, *words), env=environment_for_any_folder()).returncode)


def _job(flags: Flags) -> "TrainJob":
    """The settings of `jobs.train`: of the inventory that --inventory names, else the defaults, both with --set."""
    if flags.inventory:
        return open_inventory(flags, as_written=True).jobs.train
    from cluster.inventory import load
    from cluster.inventory.templates import local_inventory

    with tempfile.TemporaryDirectory(prefix="pscluster-data-") as folder:
        file = Path(folder, "defaults.yaml")
        file.write_text(local_inventory(1, 1), encoding="utf-8")
        return load(file, flags.set_, check_interfaces=False).jobs.train


DATA_ACTIONS = (fetch, show)
