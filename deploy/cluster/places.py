"""Where a deployment keeps things on the nodes, the storage server and the shared folder.

The module is pure.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from core.inventory import Inventory

ROOT = "/opt/pscluster"
ENVIRONMENTS = f"{ROOT}/environments"
EXTRAS = f"{ROOT}/extras"
"""Holds `environments` of the packages that apps and programs need besides, on the nodes where they
run."""
RELEASES = f"{ROOT}/releases"
CURRENT = f"{ROOT}/current"
STATE = "/var/lib/pscluster"
"""Root's, with a folder of an account for each kind of process below it."""
ACCOUNT_HOME = "home"
"""Folder in STATE where jobs keep what they use again (docs/architecture.md)."""
DATA = f"{ROOT}/prepared"
"""Prepared windows on the node's own disk: a worker maps them, and random pages over NFS would come
one by one."""
DEPLOY_STATE = "/var/lib/pscluster-deploy"
"""Notes of the deployment on a node for `reset`."""
CONFIGURATION = "/etc/pscluster"
CERTIFICATES = f"{CONFIGURATION}/service"
"""Root's: the authority of a node's recognition service, and the certificate that it gets."""
CONTROL_TOKEN = f"{CONFIGURATION}/token"
CONTROL_KEYS = f"{CONFIGURATION}/keys"
UNIT_FOLDER = "/etc/systemd/system"
JOB_ACCOUNT = "pscluster"
"""Account of jobs, which own runs, the data of apps and what lies on the shared storage."""
ROLE_ACCOUNT = "pscluster-role"
"""Account of parameter servers and workers, which run any graph and own nothing."""
SERVICE_ACCOUNT = "pscluster-service"
MONITOR_ACCOUNT = "pscluster-monitor"
ACCOUNTS = (JOB_ACCOUNT, ROLE_ACCOUNT, SERVICE_ACCOUNT, MONITOR_ACCOUNT)
"""The accounts of a node, one for each kind of process, in the order of their numbers."""


def account_numbers(inventory: "Inventory") -> "Mapping[str, int]":
    """Return uid and gid of each account, the same on every node."""
    first = inventory.deployment.service_uid
    return {name: first + place for place, name in enumerate(ACCOUNTS)}


@dataclass(frozen=True)
class SharedFolders:
    """The shared folders: `runs` and `data` are written by the coordinator's node alone.

    All nodes read `data`, and `shared`, which only root on the server writes.
    """

    server: str | None
    """Name of the node that exports it; None for an export that exists already."""
    export: str
    mount: str
    source: str
    """The export that NFS clients mount, e.g. `192.168.1.26:/srv/pscluster`."""

    @property
    def shared_mount(self) -> str:
        """The folder where every node finds prepared windows and wheels."""
        return f"{self.mount}/shared"

    @property
    def runs_mount(self) -> str:
        """The folder where the coordinator leaves its runs."""
        return f"{self.mount}/runs"

    @property
    def data_mount(self) -> str:
        """The folder where the coordinator leaves data sets of apps for workers."""
        return f"{self.mount}/data"

    @property
    def publish_folder(self) -> str:
        """Return where files are put for all: the server's own disk, or a mount of an export."""
        if self.server is not None:
            return f"{self.export}/shared"
        return self.shared_mount

    @property
    def publishing_user(self) -> str | None:
        """The account that may write there: root, as None, on a server of ours."""
        if self.server is not None:
            return None
        return JOB_ACCOUNT

    @property
    def published_kinds(self) -> tuple[str, ...]:
        """Return the folders that hold a folder for each published thing."""
        return tuple(f"{self.publish_folder}/{kind}" for kind in ("wheels", "prepared"))

    @staticmethod
    def local(key: str) -> str:
        """A published data set as each node keeps it on its own disk."""
        return f"{DATA}/{key}"

    def published(self, kind: str, key: str) -> str:
        """Folder of a published thing (`wheels`, `prepared`) as `publish_folder` sees it."""
        return f"{self.publish_folder}/{kind}/{key}"

    def seen(self, kind: str, key: str) -> str:
        """Return the path of the `published` folder as every node sees it."""
        return f"{self.shared_mount}/{kind}/{key}"


@dataclass(frozen=True)
class NodePlaces:
    """Where things lie on the coordinator's node."""

    release: str = CURRENT
    state: str = STATE
    user: str = JOB_ACCOUNT

    @property
    def python(self) -> str:
        """The Python that has TensorFlow."""
        return f"{self.release}/environment/bin/python"

    def runs(self, inventory: "Inventory") -> str:
        """The folder that holds the runs: on the shared storage where there is one."""
        if inventory.storage is None:
            return f"{self.state}/runs"
        return shared_folders(inventory).runs_mount


def shared_folders(inventory: "Inventory") -> SharedFolders:
    """The shared folders of an inventory that has a section `storage`."""
    storage = inventory.storage
    assert storage is not None  # refused before anything is planned
    if storage.server is None:
        assert storage.external is not None  # the inventory has one of the two
        server, _, folder = storage.external.partition(":")
        folder = "/" + "/".join(
            filter(None, folder.split("/"))
        )  # as the mount table of a node will have it
        return SharedFolders(None, folder, storage.mount, f"{server}:{folder}")
    address = inventory.hosts[storage.server]
    return SharedFolders(
        storage.server, storage.export, storage.mount, f"{address}:{storage.export}"
    )


def publisher(inventory: "Inventory") -> str:
    """Return the node that publishes folders: the storage server, else the coordinator's node."""
    return shared_folders(inventory).server or inventory.of_role("coordinator")[0].node
