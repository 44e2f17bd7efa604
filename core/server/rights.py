"""What a role process keeps once it serves: its libraries and prepared windows, its two ports.

TensorFlow's port executes any graph of any client that reaches it. So a role enters a cage
(`core.cage`) before it has other threads: no graph writes a file, reads what is not listed there,
reaches another process or becomes another program.
"""

from contextlib import suppress
from pathlib import Path

from core.cage.calls import Caged, enter_whole_cage
from core.cage.profiles import calls_of, rights_of
from core.ground.accounts import ROLES_ACCOUNT
from core.ground.files import prepared_folder, user_cache
from core.server.options import RoleOptions

COPIES = Path("/var/cache/pscluster/roles")
"""Prepared windows for roles that root starts, which cannot read below root's home."""


def enter_cage(role: RoleOptions) -> Caged:
    """Give up all but the role's rights, in this thread and all that it starts, for good.

    A role writes nothing: its log is open already.
    """
    name = "role"
    if role.claimed_device is not None:
        name = f"role_{role.claimed_device.kind}"
    reach = None
    if role.reach is not None:
        reach = (*role.reach, role.port)
    rights = rights_of(
        name,
        prepared=role.reads or prepared_folders(role.account),
        ports=(role.port, role.metrics_port),
        reach=reach,
    )
    return enter_whole_cage(rights, calls_of(name), changes_account=role.account is not None)


def prepared_folders(account: int | None) -> tuple[str, ...]:
    """Return where roles of this machine read windows; they are made if they can be."""
    folders = [prepared_folder()]
    if account == ROLES_ACCOUNT:
        folders.append(COPIES)
    for folder in folders:
        with suppress(OSError):
            folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    if not folders[0].is_dir():
        # A container mounts the data that another one prepares later: a cage shows only what lies
        # below a folder that exists by now.
        folders.insert(0, user_cache().parent)
    return tuple(map(str, folders))
