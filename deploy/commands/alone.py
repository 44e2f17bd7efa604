"""A job in this process alone, without a named inventory: it gets one in the state folder."""

from pathlib import Path

from core.ground.files import atomic_write
from deploy.commands.flags import Names
from deploy.common.state_folder import StateFolder

NAME = "single"
ORIGIN = (
    "written for this job, which needs no cluster; --inventory FILE takes the settings of another"
)


def inventory_alone(job: str, overrides: Names, folder: Path) -> Path | None:
    """Write the inventory of a job without roles below `folder`; None where it needs roles.

    Its settings are those of `fab init --local`. Raises InventoryError for overrides that do not
    fit, ClusterError where the state folder cannot be written.
    """
    from core.inventory import this_machine
    from core.inventory.loading import loads
    from core.inventory.templates import local_inventory

    state = StateFolder.of(folder / "inventory.yaml", NAME)
    path = state.path / "inventory.yaml"
    text = local_inventory(1, 1, cluster=NAME)
    inventory = loads(text, str(path), overrides, path=path, machine=this_machine())
    if inventory.needs_roles(job):
        return None
    state.create()
    atomic_write(path, text.encode())
    return path
