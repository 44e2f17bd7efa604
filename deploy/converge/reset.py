"""Everything that a deployment ever put on a node, taken away again. Pure."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from deploy.cluster import places
from deploy.cluster.places import SharedFolders, shared_folders
from deploy.common.texts import Inline, filled
from deploy.converge.files import FSTAB_BEGIN, FSTAB_END, WITHOUT_OURS
from deploy.converge.subjects import SUBJECTS
from deploy.render import storage

if TYPE_CHECKING:
    from cluster.inventory import Inventory


@dataclass(frozen=True)
class Traces:
    """What to look for. `data`: the shared folder goes too."""

    folders: SharedFolders
    service_uid: int
    data: bool

    @classmethod
    def of(cls, inventory: "Inventory", data: bool) -> Self:
        """For an inventory."""
        return cls(shared_folders(inventory), inventory.deployment.service_uid, data)


def reset_script(traces: Traces, node: str) -> str:
    """Stops and removes everything of ours; prints what was removed, in a line.

    It does not stop at a failure: it removes what it can, and prints what is left at the end. While packages are
    left that could not be removed, the node keeps what it remembers, so that a repeated reset finishes.
    """
    serves = node == traces.folders.server
    fstab = {
        "begin": FSTAB_BEGIN,
        "end": FSTAB_END,
        "from_begin": f"/^{FSTAB_BEGIN}$/,$p",
        "without_ours": WITHOUT_OURS,
    }
    return filled(
        "converge/reset.sh",
        places=places,
        mount=traces.folders.mount,
        export=traces.folders.export,
        serves=serves,
        data=traces.data,
        fstab=fstab,
        exports=storage.EXPORTS_PATH,
        settings=storage.SETTINGS_PATH,
        undo=Inline("".join(subject.undo() for subject in SUBJECTS).rstrip("\n")),
    )
