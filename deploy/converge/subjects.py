"""The subjects of a deployment, in the order in which a node is asked about them, and the reset that undoes them."""

from typing import TYPE_CHECKING

from deploy.cluster import places
from deploy.cluster.places import shared_folders
from deploy.common.texts import Inline, filled
from deploy.converge.accounts import ACCOUNTS
from deploy.converge.clock import CLOCK
from deploy.converge.devices import DEVICES
from deploy.converge.firewall import FIREWALL
from deploy.converge.packages import PACKAGES
from deploy.converge.resources import FSTAB_BEGIN, FSTAB_END, WITHOUT_OURS
from deploy.render import storage

if TYPE_CHECKING:
    from cluster.inventory import Inventory

SUBJECTS = [CLOCK, FIREWALL, PACKAGES, ACCOUNTS, DEVICES]
"""The clock first: the answer should be as near to the question as possible."""


def reset_script(inventory: "Inventory", node: str, *, data: bool) -> str:
    """Stops and removes everything of ours, with `data` the shared folder too; prints what it removed, in a line.

    It does not stop at a failure: it removes what it can, and prints what is left at the end. While packages are
    left that could not be removed, the node keeps what it remembers, so that a repeated reset finishes.
    """
    folders = shared_folders(inventory)
    return filled(
        "converge/reset.sh",
        places=places,
        mount=folders.mount,
        export=folders.export,
        serves=node == folders.server,
        data=data,
        fstab_begin=FSTAB_BEGIN,
        fstab_end=FSTAB_END,
        from_fstab_begin=f"/^{FSTAB_BEGIN}$/,$p",
        without_ours=WITHOUT_OURS,
        exports=storage.EXPORTS_PATH,
        settings=storage.SETTINGS_PATH,
        undo=Inline("".join(subject.undo() for subject in SUBJECTS).rstrip("\n")),
    )
