"""What a role process keeps once it serves: its libraries and prepared windows, its two ports.

TensorFlow's port executes any graph of any client that reaches it. So a role enters a cage
(`core.cage`) before it has other threads: no graph writes a file, reads what is not listed here,
reaches another process or becomes another program.
"""

import glob
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from core.cage import RESOLVER_FOLDERS, USUAL_DEVICES, calls, python_folders, system_paths
from core.cage.calls import Caged, CallRights
from core.cage.landlock import Rights, existing
from core.ground.accounts import ROLES_ACCOUNT
from core.ground.files import prepared_folder, user_cache
from core.server.options import RoleOptions

OURS = ("core", "kernels", "ps_node", "worker_node")
"""Our packages that a role loads. The folder around them, of a checkout, holds secrets and runs."""
DEVICES = {
    "gpu": ("/dev/nvidia*", "/dev/dri", "/dev/shm"),
    "tpu": ("/dev/accel*", "/dev/vfio", "/dev/apex_*"),
}
"""The files of a kind of device, as shells write them."""
ANY_FREE_PORT = 0
"""gRPC binds one to learn whether there is IPv6. It gives nothing away: a socket that listens
without `bind` gets one too, and Landlock lets it."""
COPIES = Path("/var/cache/pscluster/roles")
"""Prepared windows for roles that root starts, which cannot read below root's home."""


def enter_cage(role: RoleOptions) -> Caged:
    """Give up all but the role's rights, in this thread and all that it starts, for good."""
    return calls.enter_whole_cage(
        rights(role), call_rights(role), changes_account=role.account is not None
    )


def call_rights(role: RoleOptions) -> CallRights:
    """Return which calls a role keeps."""
    if role.device is None:
        return CallRights()
    # CUDA's compiler is a program, which stays in this cage; its driver makes a Unix socket.
    return CallRights(execute=True, families=(calls.UNIX, *calls.NETWORK))


def rights(role: RoleOptions) -> Rights:
    """Return what a role may do. It writes nothing: its log is open already."""
    if role.reach is None:
        connect = None
    else:
        connect = (*role.reach, role.port)
    return Rights(
        read=existing(*system_paths(), *RESOLVER_FOLDERS, *python_folders(OURS), *_data(role)),
        devices=existing(*USUAL_DEVICES, *_devices(role)),
        bind=(ANY_FREE_PORT, role.port, role.metrics_port),
        connect=connect,
    )


def _data(role: RoleOptions) -> Iterator[str]:
    """Yield the folders of prepared windows."""
    yield from role.reads or prepared_folders(role.account)


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


def _devices(role: RoleOptions) -> Iterator[str]:
    if role.claimed_device is not None:
        for pattern in DEVICES[role.claimed_device.kind]:
            yield from glob.glob(pattern)
