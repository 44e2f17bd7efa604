"""NFS: the server's exports and settings, the clients' lines of fstab. Pure."""

from typing import TYPE_CHECKING

from deploy.cluster.places import SharedFolders

if TYPE_CHECKING:
    from cluster.inventory import Inventory

EXPORTS_PATH = "/etc/exports.d/pscluster.exports"
SETTINGS_PATH = "/etc/nfs.conf.d/pscluster.conf"
OLD_NFS_UNITS = ("rpcbind.socket", "rpcbind.service", "rpc-statd.service")
"""Units for NFS before version 4: each listens on its own ports, at every address. nfs-server runs without them."""
_THREADS_FOR_A_CLIENT = 2
_LEAST_THREADS = 8
_COMMON = "sync,no_subtree_check"


def exports(inventory: "Inventory", folders: SharedFolders) -> str:
    """One entry a client address: the shared folder read-only for all, the runs for the coordinator's node alone.

    The data of apps is read-only for all but the coordinator's node, which writes it.

    All files of clients belong to the service account (`all_squash`).
    """
    uid = inventory.deployment.service_uid
    squashed = f"{_COMMON},all_squash,anonuid={uid},anongid={uid}"
    clients = [inventory.hosts[node.name] for node in inventory.nodes if node.name != folders.server]
    coordinator = inventory.of_role("coordinator")[0]
    writer = None if coordinator.node == folders.server else inventory.hosts[coordinator.node]
    lines = ["# Written by pscluster from the inventory: one entry for each node, never a wildcard."]
    if clients:
        readers = " ".join(f"{address}(ro,{squashed})" for address in clients)
        users = " ".join(f"{address}({'rw' if address == writer else 'ro'},{squashed})" for address in clients)
        lines += [f"{folders.export}/shared {readers}", f"{folders.export}/data {users}"]
    if writer is not None:
        lines.append(f"{folders.export}/runs {writer}(rw,{squashed})")
    return "\n".join(lines) + "\n"


def server_settings(inventory: "Inventory") -> str:
    """nfs.conf: version 4 alone, which needs one port, and threads for the number of clients (Debian starts 8).

    `vers2=n` is for rpc.mountd, which opens its own ports while any version before 4 is on.
    """
    threads = max(_LEAST_THREADS, _THREADS_FOR_A_CLIENT * len(inventory.nodes))
    return f"# Written by pscluster.\n[nfsd]\nthreads={threads}\nvers2=n\nvers3=n\nvers4=y\nudp=n\n"


def fstab_lines(inventory: "Inventory", node: str, folders: SharedFolders) -> tuple[str, ...]:
    """The shared folders on one node: over NFS at the first access, by a bind mount on the server itself.

    `nofail` and the automount let a Pi boot while the server is down. A later access waits for the server (`hard`),
    because an abandoned write damages a checkpoint.
    """
    coordinator = inventory.of_role("coordinator")[0].node
    parts = ["shared", "data", *(["runs"] if node == coordinator else [])]
    if node == folders.server:
        return tuple(f"{folders.export}/{part} {folders.mount}/{part} none bind,nofail 0 0" for part in parts)
    options = "hard,_netdev,nofail,noatime,nodev,nosuid,x-systemd.automount,x-systemd.mount-timeout=30"
    if folders.server is None:  # an external export holds both, and only the coordinator writes to it
        access = "rw" if node == coordinator else "ro"
        return (f"{folders.source} {folders.mount} nfs4 {access},{options} 0 0",)
    access_to = {"shared": "ro", "data": "rw" if node == coordinator else "ro", "runs": "rw"}
    return tuple(
        f"{folders.source}/{part} {folders.mount}/{part} nfs4 {access_to[part]},{options} 0 0" for part in parts
    )
