"""The flags of a role process, explicit or from an inventory."""

import argparse
import ipaddress
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from core.control.own_state import CREDENTIALS_VARIABLE, VARIABLE, own_key
from core.control.requests import BY_TOKEN
from core.ground.accounts import account_for_roles
from core.ground.addresses import with_port
from core.ground.errors import UsageError
from core.logs.lines import LogSettings, add_flags, given_or
from core.metrics.process import usable_cores
from core.server.port_guard import is_loopback
from core.server.process import ClaimedDevice

if TYPE_CHECKING:
    from core.inventory import Inventory, Task

RoleName = Literal["ps", "worker"]
_LEAST_PEERS = 16


@dataclass(frozen=True)
class RoleOptions:
    """One role process, completely described by explicit flags, or by an inventory resolved."""

    role: RoleName
    task: int
    host: str
    port: int
    metrics_port: int
    peers: int
    guard: str
    server: str
    intra_op_threads: int
    coordinator: str | None = None
    """Address of the node whose coordinator may restart this process, or BY_TOKEN."""
    shared: str | None = None
    """The folder that all nodes share."""
    logging: LogSettings = LogSettings()  # noqa: RUF009  frozen
    account: int | None = None
    """The account to become before serving; None to keep the one that started it."""
    device: str | None = None
    """Device that it computes on, such as `gpu:1`; None for the processor alone."""
    workers_here: int | None = None
    """Workers that share this machine's cores; None for one."""
    reads: tuple[str, ...] = ()
    """Folders of prepared windows; without them those of this machine."""
    reach: tuple[int, ...] | None = None
    """TCP ports of the other roles, which its graphs exchange tensors with; None for any."""

    @property
    def claimed_device(self) -> ClaimedDevice | None:
        """The device that it takes, or None."""
        if self.device is None:
            return None
        return ClaimedDevice.parse(self.device)

    @property
    def name(self) -> str:
        """`role:task`."""
        return f"{self.role}:{self.task}"

    @property
    def address(self) -> str:
        """`host:port` of the TensorFlow server."""
        return with_port(self.host, self.port)

    @property
    def cores(self) -> int:
        """This machine's cores; a worker's equal share where several workers share them."""
        return max(1, usable_cores() // (self.workers_here or 1))

    @property
    def inter_op_threads(self) -> int:
        """Return how many threads execute graphs, in the server's pool and again in a job's.

        On a parameter server workers + 2: each worker may have a call that waits here, and a thread
        must serve what the calls wait for. On a worker one a core, and four for abandoned calls
        that hold some. They do not grow with the cluster: in `allreduce`, where one function spans
        all workers, its operations receive the others' values without holding a thread.
        """
        if self.role == "ps":
            return self.peers + 2
        return max(2, self.cores) + 4


def parser(role: RoleName) -> argparse.ArgumentParser:
    """The command line of `python -m {role}_node`."""
    result = argparse.ArgumentParser(
        prog=f"python -m {role}_node", description=f"Run one {role} of a cluster."
    )
    result.add_argument(
        "--task", type=_whole(0, 2**31 - 1), required=True, help=f"index of this {role}"
    )
    _add_place(result)
    _add_manner(result)
    return result


def _add_place(result: argparse.ArgumentParser) -> None:
    """Add the flags that say where the task lives."""
    named = result.add_argument_group("from an inventory")
    named.add_argument("--inventory", help="inventory that says where the task lives")
    named.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="override a key (repeatable)",
    )
    explicit = result.add_argument_group("without an inventory")
    explicit.add_argument(
        "--host", help="address announced to the cluster; the metrics port binds it"
    )
    explicit.add_argument("--port", type=_whole(1, 65535), help="port of the TensorFlow server")
    explicit.add_argument(
        "--metrics-port", type=_whole(1, 65535), help="port of /metrics and /ready"
    )
    explicit.add_argument(
        "--peers", type=_whole(1, 2**22), help="workers in the cluster, for a ps's threads"
    )
    explicit.add_argument(
        "--guard",
        choices=("loopback", "none"),
        help="loopback (default for a loopback host): drop what comes from other machines",
    )


def _add_manner(result: argparse.ArgumentParser) -> None:
    """Add the flags that say how the process runs."""
    result.add_argument(
        "--server", choices=("lean", "stock"), default="lean", help="stock: tf.distribute.Server"
    )
    result.add_argument(
        "--intra-op-threads", type=_whole(1, 2**22), default=1, help="threads inside one operation"
    )
    result.add_argument(
        "--coordinator",
        type=_address,
        metavar="ADDRESS",
        help=(
            "address that may POST /restart to the metrics port, as this machine may; `token`: any"
            f" that proves the key of ${VARIABLE}; without the flag there is no /restart"
        ),
    )
    result.add_argument(
        "--device",
        type=_device,
        metavar="KIND:NUMBER",
        help=(
            "the one device that it sees, e.g. gpu:1, or gpu:1:whole to take all its memory at"
            " once; without it none"
        ),
    )
    result.add_argument(
        "--workers-here",
        type=_whole(1, 2**10),
        metavar="N",
        help="workers that share this machine's cores; without it one",
    )
    result.add_argument(
        "--reads",
        action="append",
        metavar="FOLDER",
        help="prepared windows for graphs (repeatable); without it those of the user's cache",
    )
    result.add_argument(
        "--reach",
        type=_ports,
        metavar="PORT,...",
        help="TCP ports of the other roles; without it graphs may connect to any",
    )
    add_flags(result, "else as the inventory says, else text and info")
    result.add_argument(
        "--shared",
        metavar="FOLDER",
        help="the folder that all nodes share; the metrics report whether it is there",
    )
    result.add_argument(
        "--account",
        type=_whole(1, 2**32 - 2),
        metavar="UID",
        help=(
            "if root starts it: the uid and gid to take before it serves; an unused one for a local"
            " inventory"
        ),
    )
    result.add_argument(
        "--die-with-parent",
        type=_whole(1, 2**22),
        nargs="?",
        const=os.getppid(),
        metavar="PID",
        help=("be killed when the thread that started this process ends; PID: the expected parent"),
    )


def parse(role: RoleName, arguments: Sequence[str] | None) -> argparse.Namespace:
    """The parsed flags; a usage error prints the usage and exits with status 2."""
    flags = parser(role)
    parsed = flags.parse_args(arguments)
    explicit = {"--host": parsed.host, "--port": parsed.port, "--metrics-port": parsed.metrics_port}
    missing = [flag for flag, value in explicit.items() if value is None]
    if parsed.inventory is None and missing:
        flags.error(
            "expected --inventory FILE, or all of --host, --port and --metrics-port (missing:"
            f" {missing})"
        )
    if parsed.inventory is not None and len(missing) < len(explicit):
        flags.error(
            f"--inventory already says what {', '.join(sorted(set(explicit) - set(missing)))} would"
        )
    if parsed.set and parsed.inventory is None:
        flags.error("--set overrides keys of an inventory: give --inventory FILE too")
    return parsed


def options(role: RoleName, parsed: argparse.Namespace) -> RoleOptions:
    """The options from flags without an inventory."""
    values = {
        name: value
        for name, value in vars(parsed).items()
        if name in RoleOptions.__dataclass_fields__
    }
    values["peers"] = parsed.peers or 1
    values["reads"] = tuple(parsed.reads or ())
    values["guard"] = parsed.guard or ("loopback" if is_loopback(parsed.host) else "none")
    return RoleOptions(
        role, logging=given_or(parsed.log_format, parsed.log_level, LogSettings()), **values
    )


def explicit_flags(role: RoleOptions) -> list[str]:
    """Return the command line of a role without its inventory; `options` reads it back."""
    arguments: list[str] = []
    for name, value in vars(role).items():
        if name not in ("role", "logging", "reads", "reach") and value is not None:
            arguments += [f"--{name.replace('_', '-')}", str(value)]
    arguments += cage_flags(role.reads, role.reach)
    return [*arguments, *logging_flags(role.logging)]


def cage_flags(reads: Sequence[str], reach: Sequence[int] | None) -> tuple[str, ...]:
    """Return the flags that say what a role's cage leaves it."""
    flags = tuple(word for folder in reads for word in ("--reads", folder))
    if reach is None:
        return flags
    return (*flags, "--reach", ",".join(map(str, reach)))


def reach(inventory: "Inventory") -> tuple[int, ...]:
    """Return the ports that graphs of roles connect to.

    The coordinator's is not among them: it calls roles, and no role calls it.
    """
    return tuple(sorted({task.port for task in inventory.tasks() if task.role in ("ps", "worker")}))


def logging_flags(settings: LogSettings) -> tuple[str, ...]:
    """Return the flags that differ from the default.

    A role's command line changes only with what it does.
    """
    flags = {"--log-format": (settings.format, "text"), "--log-level": (settings.level, "info")}
    return tuple(
        word for flag, (value, usual) in flags.items() if value != usual for word in (flag, value)
    )


def _address(text: str) -> str:
    if text == BY_TOKEN:
        if own_key("") is None:
            raise argparse.ArgumentTypeError(
                f"`token` needs the cluster's token in ${VARIABLE}, which is not set, or in the"
                f" file `token` of ${CREDENTIALS_VARIABLE}"
            )
        return text
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"expected an IP address or `token`, got {text!r}"
        ) from None


def _ports(text: str) -> tuple[int, ...]:
    return tuple(_whole(1, 65535)(port) for port in text.split(",") if port)


def _device(text: str) -> str:
    try:
        return str(ClaimedDevice.parse(text))
    except ValueError as problem:
        raise argparse.ArgumentTypeError(str(problem)) from None


def device_flags(inventory: "Inventory", task: "Task") -> tuple[str, ...]:
    """Return the flag of a worker that takes a device; others have none."""
    settings = inventory.jobs.train.device
    number = settings.of_worker(task, inventory.workers_beside(task))
    if number is None:
        return ()
    return "--device", str(ClaimedDevice(settings.kind, number, not settings.memory_growth))


def peers(inventory: "Inventory") -> int:
    """The number of workers that a server's thread pool allows: a power of two, at least 16.

    A server needs a thread for each worker (docs/engine.md). The power of two leaves room, so that
    one worker more does not restart every role.
    """
    return max(_LEAST_PEERS, 1 << (len(inventory.of_role("worker")) - 1).bit_length())


def workers_here(inventory: "Inventory", task: "Task") -> int | None:
    """Return how many workers share a worker's machine; None for one, and for other roles."""
    count = len(inventory.workers_beside(task)) if task.role == "worker" else 1
    return count if count > 1 else None


def _whole(low: int, high: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = low - 1
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(
                f"expected a whole number from {low} to {high}, got {text!r}"
            )
        return value

    return read


def resolve(role: RoleName, parsed: argparse.Namespace) -> RoleOptions:
    """The options of a task that an inventory places.

    Raises InventoryError listing all problems of the file, UsageError when it has no such task.
    """
    # Imported here: pydantic and its modules cost a third of a whole lean server; see role.main.
    from core.inventory import load

    inventory = load(parsed.inventory, parsed.set)
    tasks = {task.index: task for task in inventory.of_role(role)}
    if parsed.task not in tasks:
        raise UsageError(
            f"--task {parsed.task}: {parsed.inventory} has {role} tasks {sorted(tasks)}"
        )
    return placed(role, inventory, tasks[parsed.task], parsed)


def placed(
    role: RoleName, inventory: "Inventory", task: "Task", parsed: argparse.Namespace
) -> RoleOptions:
    """Return the options of a task of this inventory; flags in `parsed` go before its keys."""
    resolved = dict(
        vars(parsed),
        host=task.host,
        port=task.port,
        metrics_port=task.metrics_port,
        peers=peers(inventory),
        guard=parsed.guard or ("loopback" if inventory.one_host else "none"),
        shared=parsed.shared or inventory.shared_folder,
        log_format=parsed.log_format or inventory.logging.format,
        log_level=parsed.log_level or inventory.logging.level,
        account=parsed.account or (account_for_roles() if inventory.one_host else None),
        device=parsed.device or next(iter(device_flags(inventory, task)[1:]), None),
        workers_here=parsed.workers_here or workers_here(inventory, task),
        reach=parsed.reach or reach(inventory),
    )
    return options(role, argparse.Namespace(**resolved))
