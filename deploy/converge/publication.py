"""Folders published for all nodes: wheels of an environment, prepared windows. Pure."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from deploy.cluster.places import SERVICE_USER, SharedFolders, shared_folders
from deploy.converge.change import Change, Publish, PublishedFile
from deploy.converge.machine_facts import MachineFacts
from deploy.release.wheelhouse import Wheelhouse, parse_sums

if TYPE_CHECKING:
    from cluster.inventory import Inventory

MEGABYTE = 10**6
WHEELHOUSE_BYTES = 400 * MEGABYTE
"""Of one that is not downloaded yet: 390 MB with TensorFlow 2.21."""


@dataclass(frozen=True)
class Publication:
    """One folder, named by what is in it: `kind` is `wheels` or `prepared`."""

    kind: str
    key: str
    files: tuple[PublishedFile, ...]

    @property
    def size_bytes(self) -> int:
        """Of all files."""
        return sum(file.size_bytes for file in self.files)


def publisher(inventory: "Inventory") -> str:
    """The node through which folders are published: the storage server, or the one that writes to the NAS."""
    return shared_folders(inventory).server or inventory.of_role("coordinator")[0].node


def room_needed(
    publications: Sequence[Publication], environments: Collection[str], there: Collection[str], folders: SharedFolders
) -> int:
    """Bytes that the shared folder has to take, with these folders `there` and these environments to be installed.

    A wheelhouse beside another costs next to nothing that can be known beforehand: what is the same is linked.
    """
    lacking = {("wheels", key): WHEELHOUSE_BYTES for key in environments}
    lacking |= {(one.kind, one.key): one.size_bytes for one in publications}
    first = not any(folder.startswith(folders.published("wheels", "")) for folder in there)
    return sum(
        size_bytes
        for (kind, key), size_bytes in lacking.items()
        if folders.published(kind, key) not in there and (first or kind != "wheels")
    )


def of_wheelhouse(wheelhouse: Wheelhouse) -> Publication:
    """The wheels that one kind of node installs."""
    sums = parse_sums(wheelhouse.sums())
    files = tuple(
        PublishedFile(name, wheelhouse.folder / name, sha256, wheelhouse.files[name]) for name, sha256 in sums.items()
    )
    return Publication("wheels", wheelhouse.key, files)


@dataclass(frozen=True)
class Published:
    """A publication that has to be complete in the shared folder; looked at from the node that can write there."""

    publication: Publication
    folders: SharedFolders

    def changes(self, facts: MachineFacts) -> tuple[Change, ...]:
        """Send what is missing."""
        publication = self.publication
        folder = self.folders.published(publication.kind, publication.key)
        if folder in facts.published:
            return ()
        return publish_changes(publication, self.folders)


def publish_changes(publication: Publication, folders: SharedFolders) -> tuple[Change, ...]:
    """Send what of it is missing."""
    folder = folders.published(publication.kind, publication.key)
    user = None if folders.server is not None else SERVICE_USER
    step = Publish(f"publish {publication.kind}/{publication.key}", folder, publication.files, user)
    detail = f"{len(publication.files)} files, {step.size_bytes / MEGABYTE:,.0f} MB"
    return (Change("publish", f"{publication.kind}/{publication.key}", "create", detail, (step,)),)
