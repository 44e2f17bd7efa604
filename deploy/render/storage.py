"""NFS: the server's exports and settings, the clients' lines of fstab. Pure."""

from typing import TYPE_CHECKING

from deploy.cluster.places import SharedFolders

if TYPE_CHECKING:
    from core.inventory import Inventory

EXPORTS_PATH = "/etc/exports.d/pscluster.exports"
SETTINGS_PATH = "/etc/nfs.conf.d/pscluster.conf"
OLD_NFS_UNITS = ("rpcbind.socket", "rpcbind.service", "rpc-statd.service")
"""Units for NFS before version 4: each listens on its own ports, at every address. nfs-server runs
without them."""
_THREADS_FOR_A_CLIENT = 2
_LEAST_THREADS = 8
_COMMON = "sync,no_subtree_check"


def exports(inventory: "Inventory", folders: SharedFolders) -> str:
    """Return an entry a client address: `shared` read-only, the runs for the coordinator's alone.

    The data of apps is read-only for all but the coordinator's node, which writes it. All files of
    clients belong to the service account (`all_squash`).
    """
    uid = inventory.deployment.service_uid
    squashed = f"{_COMMON},all_squash,anonuid={uid},anongid={uid}"
    admitted = inventory.admitted
    clients = [admitted[name] for name in admitted if name != folders.server]
    coordinator = inventory.of_role("coordinator")[0]
    if coordinator.node == folders.server:
        writer = None
    else:
        writer = admitted.get(coordinator.node)
    lines = [
        "# Written by pscluster from the inventory: one entry for each node, never a wildcard."
    ]
    if clients:
        readers = " ".join(f"{address}(ro,{squashed})" for address in clients)
        users = " ".join(
            f"{address}({'rw' if address == writer else 'ro'},{squashed})" for address in clients
        )
        lines += [f"{folders.export}/shared {readers}", f"{folders.export}/data {users}"]
    if writer is not None:
        lines.append(f"{folders.export}/runs {writer}(rw,{squashed})")
    return "\n".join(lines) + "\n"


def server_settings(inventory: "Inventory") -> str:
    """Return nfs.conf: version 4 alone, with threads for the number of clients.

    `vers2=n` is for rpc.mountd, which opens its own ports while any version before 4 is on.
    """
    threads = max(_LEAST_THREADS, _THREADS_FOR_A_CLIENT * len(inventory.nodes))
    return f"# Written by pscluster.\n[nfsd]\nthreads={threads}\nvers2=n\nvers3=n\nvers4=y\nudp=n\n"


def fstab_lines(inventory: "Inventory", node: str, folders: SharedFolders) -> tuple[str, ...]:
    """Return one node's mounts of the shared folders: NFS, or a bind mount on the server.

    NFS mounts at the first access. `nofail` and the automount let a Pi boot while the server is
    down. A later access waits for the server (`hard`), because an abandoned write damages a
    checkpoint.
    """
    coordinator = inventory.of_role("coordinator")[0].node
    folder_names = ["shared", "data", *(["runs"] if node == coordinator else [])]
    if node == folders.server:
        # Without the disk of the export, systemd would make empty folders in its place and show
        # those.
        options = f"bind,nofail,x-systemd.requires-mounts-for={folders.export}"
        return tuple(
            f"{folders.export}/{part} {folders.mount}/{part} none {options} 0 0"
            for part in folder_names
        )
    options = (
        "hard,_netdev,nofail,noatime,nodev,nosuid,x-systemd.automount,x-systemd.mount-timeout=30"
    )
    if (
        folders.server is None
    ):  # an external export holds both, and only the coordinator writes to it
        if node == coordinator:
            access = "rw"
        else:
            access = "ro"
        return (f"{folders.source} {folders.mount} nfs4 {access},{options} 0 0",)
    access_to = {"shared": "ro", "data": "rw" if node == coordinator else "ro", "runs": "rw"}
    return tuple(
        f"{folders.source}/{part} {folders.mount}/{part} nfs4 {access_to[part]},{options} 0 0"
        for part in folder_names
    )
