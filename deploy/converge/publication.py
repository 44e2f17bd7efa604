"""Folders for all nodes: wheels of an environment, and windows prepared on this machine."""

import json
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from core.ground.errors import ClusterError, UsageError
from core.logs import say
from deploy.cluster.fleet import Fleet, Local
from deploy.cluster.places import DATA, SharedFolders, publisher, shared_folders
from deploy.common.command_line import shell
from deploy.common.interrupts import waiting_for
from deploy.converge.apply import apply
from deploy.converge.check import data_of
from deploy.converge.machine_facts import MEGABYTE, MachineFacts, Questions
from deploy.converge.subject import (
    Change,
    Changes,
    DeploymentSpec,
    Publish,
    PublishedFile,
    Shell,
    Subject,
)
from deploy.jobs.apps import reads_its_data
from deploy.jobs.request import needs_data, prepare_data
from deploy.release.requirements import parse_sums
from deploy.release.scripts import script
from deploy.rooted.commands import PYTHON, file_list, file_program

if TYPE_CHECKING:
    from core.inventory import Inventory
    from deploy.release.wheelhouse import Wheelhouse

WHEELHOUSE_BYTES = 400 * MEGABYTE
"""The size of a wheelhouse that is not downloaded yet: 390 MB with TensorFlow 2.21."""
COPY_SECONDS = 600.0
COPY_SECONDS_A_MEGABYTE = 2.0
"""For a data set of 48 MB and for each further megabyte, from a storage server that fifteen nodes
ask at once."""
_PREPARING_SECONDS = 3600.0


@dataclass(frozen=True)
class Publication:
    """One folder, named by what is in it: `kind` is `wheels` or `prepared`."""

    kind: str
    key: str
    files: tuple[PublishedFile, ...]

    @property
    def size_bytes(self) -> int:
        """The size of all files."""
        return sum(file.size_bytes for file in self.files)


def room_needed(
    publications: Sequence[Publication],
    environments: Collection[str],
    complete_folders: Collection[str],
    folders: SharedFolders,
) -> int:
    """Return how many bytes the shared folder has to take.

    The `complete_folders` are there already, and `environments` are to be installed.

    A wheelhouse beside another costs next to nothing that can be known beforehand: what is the same
    is linked.
    """
    lacking = {("wheels", key): WHEELHOUSE_BYTES for key in environments}
    lacking |= {
        (publication.kind, publication.key): publication.size_bytes for publication in publications
    }
    first = not any(
        folder.startswith(folders.published("wheels", "")) for folder in complete_folders
    )
    return sum(
        size_bytes
        for (kind, key), size_bytes in lacking.items()
        if folders.published(kind, key) not in complete_folders and (first or kind != "wheels")
    )


def of_wheelhouse(wheelhouse: "Wheelhouse") -> Publication:
    """The wheels that one kind of node installs."""
    sums = parse_sums(wheelhouse.sums())
    files = tuple(
        PublishedFile(name, wheelhouse.folder / name, sha256, wheelhouse.files[name])
        for name, sha256 in sums.items()
    )
    return Publication("wheels", wheelhouse.key, files)


def publish(publication: Publication, folders: SharedFolders) -> Change:
    """Return the change that sends what the shared folder lacks, as its publisher sees it."""
    name = f"{publication.kind}/{publication.key}"
    folder = folders.published(publication.kind, publication.key)
    step = Publish(f"publish {name}", folder, publication.files, folders.publishing_user)
    return Change(
        "publish",
        name,
        "create",
        f"{len(step.files)} files, {step.size_bytes / MEGABYTE:,.0f} MB",
        (step,),
    )


def copy_seconds(publication: Publication) -> float:
    """Return the seconds that a node may take to copy a published data set."""
    return COPY_SECONDS + COPY_SECONDS_A_MEGABYTE * publication.size_bytes / MEGABYTE


def copy_data(publication: Publication, published_folder: str) -> str:
    """Return shell that copies a published data set to the node's disk, whole, or not at all.

    It checks the files, and keeps the last three sets.

    The storage server is not trusted: of its folder only plain files are taken, and only those that
    were published.
    """
    files = file_list((file.name, file.sha256, file.size_bytes) for file in publication.files)
    program = {"files": files, "python": PYTHON, "program": file_program()}
    return script(
        "converge/copy.sh", root=DATA, key=publication.key, seen=published_folder, **program
    )


@dataclass(frozen=True)
class JobData:
    """The recordings that the jobs of one cluster read."""

    inventory: "Inventory"

    def publications(self) -> Sequence[Publication]:
        """The folders of windows that the nodes need, prepared now. Raises ClusterError."""
        return ()

    def refuse_missing(self) -> None:
        """Raise UsageError for missing recordings where `publications` does not look for them."""


class DataHere(JobData):
    """The data of a cluster on this machine: each job prepares its windows itself."""

    def refuse_missing(self) -> None:
        """Raise UsageError where a job would find no recordings."""
        train = self.inventory.jobs.train
        if (train.data.source or train.app) is None or not any(
            map(needs_data, self.inventory.jobs.order)
        ):
            return
        precondition = data_of(self.inventory, Local("this machine"))
        if not precondition.holds:
            raise UsageError(precondition.line)


class PublishedData(JobData):
    """The data of a cluster of machines: windows on each node's own disk."""

    @cached_property
    def prepared(self) -> Publication | None:
        """Prepare the data set of `jobs.train.data`, if it is not yet.

        The result is None where the inventory names a published one, and for an app that reads its
        data itself. Raises UsageError for unusable recordings.
        """
        job = self.inventory.jobs.train
        source = job.data.source
        with suppress(UsageError):  # the job's submission says what is wrong with the app
            if reads_its_data(self.inventory):
                return None
        if source is not None and source.startswith(
            (f"{shared_folders(self.inventory).mount}/", f"{DATA}/")
        ):
            return None
        answer = prepare_data(job, _PREPARING_SECONDS)
        folder = Path(answer["folder"])
        files = tuple(
            PublishedFile(name, folder / name, about["sha256"], about["bytes"])
            for name, about in answer["files"].items()
        )
        return Publication("prepared", answer["key"], files)

    def publications(self) -> Sequence[Publication]:
        """Return the prepared windows."""
        if self.prepared is None:
            return ()
        return (self.prepared,)

    def bring(self, fleet: Fleet) -> Sequence[str]:
        """Copy them to the nodes; the overrides that name them there.

        A job may want others than the last start did.
        """
        with waiting_for("preparing the recordings, if they are not yet") as update:
            data = self.prepared
            if data is None:
                return ()
            update("bringing the recordings to the nodes, where they are not yet")
            self._publish(fleet, data)
        return (
            f"jobs.train.data.source={json.dumps(shared_folders(self.inventory).local(data.key))}",
        )

    def _publish(self, fleet: Fleet, publication: Publication) -> None:
        folders = shared_folders(self.inventory)
        node = fleet.nodes[publisher(self.inventory)]
        if not node.run(
            ["test", "-e", f"{folders.published('prepared', publication.key)}/.complete"], root=True
        ).ok:
            apply(
                node,
                "publish",
                [publish(publication, folders)],
                lambda change, seconds: None,
            )
        copy = copy_data(publication, folders.seen("prepared", publication.key))
        # An unreachable node has no worker either; if it comes back, the others have its work.
        seconds = copy_seconds(publication)
        copied = fleet.each(lambda node: node.run(shell(copy), root=True, deadline_seconds=seconds))
        for name, result in copied.items():
            if isinstance(result, ClusterError):
                say(f"{name}: without the windows of this job: {result}", error=True)
            elif not result.ok:
                say(
                    f"{name}: without the windows of this job: {' '.join(result.last_lines)}",
                    error=True,
                )


def _plan_publications(spec: DeploymentSpec, facts: MachineFacts) -> Changes:
    if spec.name != spec.publisher:
        return
    for publication in spec.publications:
        if spec.folders.published(publication.kind, publication.key) not in facts.published:
            yield publish(publication, spec.folders)


def _plan_local_data(spec: DeploymentSpec, facts: MachineFacts) -> Changes:
    """Yield the copies of published data sets to the node's own disk."""
    if spec.environment(facts) is None:
        return
    hint = "is the storage server up, and does it export to this node's address?"
    for publication in spec.publications:
        key = publication.key
        if publication.kind == "prepared" and key not in facts.data:
            folder = spec.folders.seen("prepared", key)
            script = copy_data(publication, folder)
            yield Change(
                "data",
                key,
                "create",
                f"from {folder}",
                (Shell("copy the windows", script, copy_seconds(publication), hint),),
            )


def _questions(spec: DeploymentSpec) -> Questions:
    if spec.name != spec.publisher:
        return Questions()
    return Questions(published=spec.folders.published_kinds)


PUBLICATIONS = Subject("publications", "publish", plan=_plan_publications, questions=_questions)
DATA_SETS = Subject("data sets", "code", plan=_plan_local_data)
