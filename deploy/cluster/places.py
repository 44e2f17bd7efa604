"""Where a deployment keeps things: on the nodes, on the storage server, in the folder that all share. Pure."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cluster.inventory import Inventory

ROOT = "/opt/pscluster"
ENVIRONMENTS = f"{ROOT}/environments"
EXTRAS = f"{ROOT}/extras"
"""Holds `environments` of the packages that apps and programs need besides, on the nodes where they run."""
RELEASES = f"{ROOT}/releases"
CURRENT = f"{ROOT}/current"
STATE = "/var/lib/pscluster"
"""The service account's own folder: jobs on the coordinator's node."""
ACCOUNT_HOME = "home"
"""In STATE: the only folder there that belongs to the account (docs/architecture.md)."""
DATA = f"{ROOT}/prepared"
"""Prepared windows on the node's own disk: a worker maps them, and random pages over NFS would come one by one."""
DEPLOY_STATE = "/var/lib/pscluster-deploy"
"""What the deployment remembers on a node for `reset`."""
CONFIGURATION = "/etc/pscluster"
UNIT_FOLDER = "/etc/systemd/system"
SERVICE_USER = "pscluster"


@dataclass(frozen=True)
class SharedFolders:
    """The shared folders, written by the coordinator's node alone: `runs`, and `data`, which all read.

    All read `shared` too, and only root on the server writes it.
    """

    server: str | None
    """Name of the node that exports it; None for an export that exists already."""
    export: str
    mount: str
    source: str
    """What NFS clients mount, e.g. `192.168.1.26:/srv/pscluster`."""

    @property
    def shared_mount(self) -> str:
        """Where every node finds prepared windows and wheels."""
        return f"{self.mount}/shared"

    @property
    def runs_mount(self) -> str:
        """Where the coordinator leaves its runs."""
        return f"{self.mount}/runs"

    @property
    def data_mount(self) -> str:
        """Where the coordinator leaves the data sets of apps, and workers read them."""
        return f"{self.mount}/data"

    @property
    def publish_folder(self) -> str:
        """Where files are put for all: on the server's own disk, or through the mount of an existing export."""
        return f"{self.export}/shared" if self.server is not None else self.shared_mount

    @staticmethod
    def local(key: str) -> str:
        """A published data set as each node keeps it on its own disk."""
        return f"{DATA}/{key}"

    def published(self, kind: str, key: str) -> str:
        """Folder of a published thing (`wheels`, `prepared`) as `publish_folder` sees it."""
        return f"{self.publish_folder}/{kind}/{key}"

    def seen(self, kind: str, key: str) -> str:
        """The same as every node sees it."""
        return f"{self.shared_mount}/{kind}/{key}"


@dataclass(frozen=True)
class NodePlaces:
    """Where things lie on the coordinator's node."""

    release: str = CURRENT
    state: str = STATE
    user: str = SERVICE_USER

    @property
    def python(self) -> str:
        """The Python that has TensorFlow."""
        return f"{self.release}/environment/bin/python"

    def runs(self, inventory: "Inventory") -> str:
        """The folder that holds the runs: on the shared storage where there is one."""
        return f"{self.state}/runs" if inventory.storage is None else shared_folders(inventory).runs_mount


def shared_folders(inventory: "Inventory") -> SharedFolders:
    """The shared folders of an inventory that has a section `storage`."""
    storage = inventory.storage
    assert storage is not None  # refused before anything is planned
    if storage.server is None:
        assert storage.external is not None  # the inventory has one of the two
        server, _, folder = storage.external.partition(":")
        folder = "/" + "/".join(filter(None, folder.split("/")))  # as the mount table of a node will have it
        return SharedFolders(None, folder, storage.mount, f"{server}:{folder}")
    address = inventory.hosts[storage.server]
    return SharedFolders(storage.server, storage.export, storage.mount, f"{address}:{storage.export}")
