"""The windows that jobs read, prepared on the operator's machine and published for all nodes."""

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cluster.errors import ClusterError, UsageError
from deploy.cluster.places import DATA, SharedFolders
from deploy.common.project import environment_for_any_folder, module_command
from deploy.converge.change import PublishedFile
from deploy.converge.publication import Publication

if TYPE_CHECKING:
    from cluster.inventory import Inventory

_PUBLISH = "cluster.data.publish"
"""Asked in a process of its own: deploy does not know how recordings are prepared."""
_SECONDS = 900.0


@dataclass(frozen=True)
class PreparedData:
    """One prepared data set: what to publish, where each node keeps it, and which recordings it is made of."""

    publication: Publication
    local: str
    line: str


def prepared_data(inventory: "Inventory", folders: SharedFolders) -> PreparedData | None:
    """The data set of `jobs.train.data`, prepared now if it was not; None where the inventory names a published one.

    Raises UsageError for recordings that cannot be used.
    """
    job = inventory.jobs.train
    source = job.data.source
    if source is not None and source.startswith((f"{folders.mount}/", f"{DATA}/")):
        return None
    words = [] if source is None else ["--source", source]
    words += ["--window-steps", str(job.data.window_steps), "--window-stride", str(job.data.window_stride)]
    asked = subprocess.run(
        module_command(_PUBLISH, *words, "--seed", str(job.seed)),
        env=environment_for_any_folder(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
    if asked.returncode != 0:
        said = asked.stderr.strip().splitlines()
        problem = said[-1] if said else f"{_PUBLISH} ended with exit code {asked.returncode}"
        raise UsageError(problem) if asked.returncode == UsageError.exit_code else ClusterError(problem)
    made = json.loads(asked.stdout.strip().splitlines()[-1])
    folder = Path(made["folder"])
    files = tuple(
        PublishedFile(name, folder / name, about["sha256"], about["bytes"]) for name, about in made["files"].items()
    )
    publication = Publication("prepared", made["key"], files)
    return PreparedData(publication, folders.local(made["key"]), made["line"])
