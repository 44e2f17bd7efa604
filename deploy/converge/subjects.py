"""The subjects of a deployment, in the order in which they count, and the reset of them all."""

from typing import TYPE_CHECKING

from deploy.cluster import places
from deploy.cluster.places import shared_folders
from deploy.common.command_line import Inline, filled
from deploy.converge.code import CODE
from deploy.converge.debian import (
    FSTAB_BEGIN,
    FSTAB_END,
    MOUNTS,
    NODE_ACCOUNTS,
    PACKAGES,
    WITHOUT_OURS,
)
from deploy.converge.hardware import CAGE, CARD, CLOCK, DEVICES
from deploy.converge.monitor import MONITOR, MONITOR_PACKAGE, NODE_EXPORTER
from deploy.converge.publication import DATA_SETS, PUBLICATIONS
from deploy.converge.reachability import REACHABILITY
from deploy.converge.roles import FIREWALL, ROLES
from deploy.converge.serving import SERVICE
from deploy.converge.storage import FOLDERS, NFS_SERVER, NOTED_FOLDERS, STORAGE, mark_of
from deploy.converge.wireguard import KEYS, TUNNEL, TUNNEL_END
from deploy.render import storage

if TYPE_CHECKING:
    from core.inventory import Inventory

SUBJECTS = [
    CLOCK,
    FIREWALL,
    NOTED_FOLDERS,
    NFS_SERVER,
    MONITOR_PACKAGE,
    PACKAGES,
    KEYS,
    TUNNEL,
    NODE_ACCOUNTS,
    FOLDERS,
    DEVICES,
    CARD,
    CAGE,
    REACHABILITY,
    STORAGE,
    MOUNTS,
    PUBLICATIONS,
    CODE,
    DATA_SETS,
    ROLES,
    TUNNEL_END,
    MONITOR,
    SERVICE,
    NODE_EXPORTER,
]
"""The order of questions, of findings, and of the plans within a phase.

The clock is first: its answer should be as near to the question as possible. The folders are noted
before anything is made, and packages whose start would do harm are masked before they come.
"""


def reset_script(inventory: "Inventory", node: str, *, data: bool) -> str:
    """Return shell that stops and removes everything of ours, with `data` the shared folder too.

    It prints what it removed, in a line.

    It does not stop at a failure: it removes what it can, and prints what is left at the end. While
    packages are left that could not be removed, the node keeps what it remembers, so that a
    repeated reset finishes.
    """
    folders = shared_folders(inventory)
    return filled(
        "converge/reset.sh",
        places=places,
        mount=folders.mount,
        export=folders.export,
        mark=mark_of(folders),
        serves=node == folders.server,
        data=data,
        fstab_begin=FSTAB_BEGIN,
        fstab_end=FSTAB_END,
        from_fstab_begin=f"/^{FSTAB_BEGIN}$/,$p",
        without_ours=WITHOUT_OURS,
        exports=storage.EXPORTS_PATH,
        settings=storage.SETTINGS_PATH,
        undo=Inline("".join(subject.undo for subject in SUBJECTS).rstrip("\n")),
    )
