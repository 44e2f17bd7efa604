"""The actions of `fab deploy` that only machines reached over SSH have."""

from typing import Any

from deploy.commands.edge import at_the_edge
from deploy.commands.flags import whole_number
from deploy.commands.opening import Names, ssh_only


@at_the_edge
def push(context: Any, inventory: str | None = None, set_: Names = None, limit: Names = None) -> None:
    """Bring environment and code onto the nodes, without restarting anything."""
    from deploy.commands import ssh_start

    ssh_start.run_phases(ssh_only("push", inventory, set_), "push", limit or ())


@at_the_edge
def storage(context: Any, inventory: str | None = None, set_: Names = None, limit: Names = None) -> None:
    """Set up the shared folder on its server and on the nodes, with the prepared recordings in it."""
    from deploy.commands import ssh_start

    ssh_start.run_phases(ssh_only("storage", inventory, set_), "storage", limit or ())


@at_the_edge
def rollback(
    context: Any, inventory: str | None = None, set_: Names = None, limit: Names = None, serial: str = "0"
) -> None:
    """Go back to the release that was current before, and restart the roles from it."""
    count = whole_number("--serial", serial, 0, 1024)
    from deploy.commands import ssh_rollback

    ssh_rollback.rollback(ssh_only("rollback", inventory, set_), limit or (), count)


@at_the_edge
def reset(
    context: Any,
    inventory: str | None = None,
    set_: Names = None,
    limit: Names = None,
    yes: bool = False,
    with_data: bool = False,
) -> None:
    """Remove everything that was ever installed on the nodes; data and runs only with --with-data. Asks first."""
    from deploy.commands import ssh_day_two

    ssh_day_two.reset(ssh_only("reset", inventory, set_), limit or (), yes, with_data)


@at_the_edge
def trust(
    context: Any, inventory: str | None = None, set_: Names = None, limit: Names = None, yes: bool = False
) -> None:
    """Show the fingerprints of the nodes' host keys and pin them. Asks first."""
    from deploy.commands import ssh_day_two

    ssh_day_two.trust(ssh_only("trust", inventory, set_), limit or (), yes)


@at_the_edge
def ssh(
    context: Any,
    inventory: str | None = None,
    set_: Names = None,
    node: Names = None,
    run_command: str | None = None,
) -> None:
    """A shell on one node (--node NAME), or one command there."""
    from deploy.commands import ssh_day_two

    ssh_day_two.ssh(ssh_only("ssh", inventory, set_), node or (), run_command)
