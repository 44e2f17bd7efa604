"""The windows of the jobs: prepared on the operator's machine, published for all nodes."""

import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from cluster.errors import ClusterError, UsageError
from cluster.logs.terminal import say
from deploy.cluster.cluster import Fleet
from deploy.cluster.local import Local
from deploy.cluster.places import DATA, SharedFolders, shared_folders
from deploy.common.command_line import shell
from deploy.common.project import environment_for_any_folder, module_command
from deploy.common.waiting import waiting_for
from deploy.converge.apply import apply
from deploy.converge.change import PublishedFile
from deploy.converge.check import recordings_of
from deploy.converge.code import COPY_SECONDS, copy_data
from deploy.converge.publication import Publication, publish_changes, publisher
from deploy.jobs.request import needs_data

if TYPE_CHECKING:
    from cluster.inventory import Inventory

_PUBLISH = "cluster.data.publish"
"""Runs in a process of its own: deploy does not know how to prepare recordings."""
_SECONDS = 900.0


@dataclass(frozen=True)
class PreparedData:
    """One prepared data set: what to publish, its folder on each node, and a line about its recordings."""

    publication: Publication
    local: str
    line: str


class JobData(Protocol):
    """The recordings that the jobs of one cluster read."""

    def publications(self) -> Sequence[Publication]:
        """The folders of windows that the nodes need, prepared now. Raises ClusterError."""

    def refuse_missing(self) -> None:
        """Raise UsageError where recordings are missing and `publications` does not look for them."""


class DataHere:
    """`JobData` of a cluster on this machine: each job prepares its windows itself."""

    def __init__(self, inventory: "Inventory") -> None:
        self._inventory = inventory

    def publications(self) -> Sequence[Publication]:
        """See `JobData`."""
        return ()

    def refuse_missing(self) -> None:
        """See `JobData`."""
        source = self._inventory.jobs.train.data.source
        if source is None or not any(map(needs_data, self._inventory.jobs.order)):
            return
        found = recordings_of(Local("this machine"), source)
        if not found.holds:
            raise UsageError(found.line)


class PublishedData:
    """`JobData` of a cluster of machines: windows on each node's own disk."""

    def __init__(self, inventory: "Inventory") -> None:
        self._inventory = inventory

    @cached_property
    def prepared(self) -> PreparedData | None:
        """See `prepared_data`."""
        return prepared_data(self._inventory, shared_folders(self._inventory))

    def publications(self) -> Sequence[Publication]:
        """See `JobData`."""
        return () if self.prepared is None else (self.prepared.publication,)

    def refuse_missing(self) -> None:
        """See `JobData`."""

    def bring(self, fleet: Fleet) -> Sequence[str]:
        """Copy them to the nodes; the overrides that name them there. A job may want others than the last start did."""
        with waiting_for("preparing the recordings, if they are not yet") as update:
            data = self.prepared
            if data is None:
                return ()
            update("bringing the recordings to the nodes, where they are not yet")
            self._publish(fleet, data.publication)
        return (f"jobs.train.data.source={json.dumps(data.local)}",)

    def _publish(self, fleet: Fleet, publication: Publication) -> None:
        folders = shared_folders(self._inventory)
        node = fleet.nodes[publisher(self._inventory)]
        if not node.run(["test", "-e", f"{folders.published('prepared', publication.key)}/.complete"], root=True).ok:
            apply(node, "publish", publish_changes(publication, folders), lambda change, seconds: None)
        copy = copy_data(publication, folders.seen("prepared", publication.key))
        # An unreachable node has no worker either; if it comes back, the others have its work.
        copied = fleet.each(lambda node: node.run(shell(copy), root=True, deadline_seconds=COPY_SECONDS))
        for name, result in copied.items():
            if isinstance(result, ClusterError):
                say(f"{name}: without the windows of this job: {result}", error=True)
            elif not result.ok:
                say(f"{name}: without the windows of this job: {' '.join(result.last_lines)}", error=True)


def prepared_data(inventory: "Inventory", folders: SharedFolders) -> PreparedData | None:
    """The data set of `jobs.train.data`, prepared now if necessary; None where the inventory names a published one.

    Raises UsageError for unusable recordings.
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
