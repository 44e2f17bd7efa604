"""What a node is asked (`Questions`), what is true of it (`MachineFacts`), what a role will need.

The memory of a role in a training is estimated from twelve measured figures. Pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from core.ground.errors import ClusterError
from core.inventory.extensions import MODELS, MODES

if TYPE_CHECKING:
    from core.inventory import Inventory
    from core.inventory.fields import Choice
    from core.inventory.training import TrainJob


Texts = tuple[str, ...]
"""Several texts in their order: names, paths, lines."""
THROTTLED_NOW = 0x4
"""A bit of `MachineFacts.throttled`."""


class Sections(dict[str, str]):
    """The parts of a node's answer, by name. Raises ClusterError for one that is missing."""

    def __missing__(self, name: str) -> str:
        raise ClusterError(
            f"the node's answer about itself lacks the part {name!r}: ask again; `fab deploy ssh`"
            " looks at the node by hand"
        )


@dataclass(frozen=True)
class Questions:
    """What depends on the inventory: the files, units, packages, mounts and folders to look at."""

    files: Texts = ()
    units: Texts = ()
    packages: Texts = ()
    uids: tuple[int, ...] = ()
    """The numbers that our accounts have or are to have."""
    published: Texts = ()
    """Folders whose finished sub-folders are listed, e.g. `/srv/pscluster/shared/wheels`.

    For the node that publishes alone: below a hard mount whose server is gone every look waits
    without an end.
    """
    space: Texts = ()
    """Folders whose free space is asked; one that does not exist stands for the nearest that does.
    """
    unfinished: Texts = ()
    """Folders in which sub-folders that are not complete take room that the next attempt has, or
    uses."""
    bound: Texts = ()
    """Folders that are mounted at another place as well."""
    peers: Texts = ()
    """Addresses of the other nodes that it has to reach."""

    def and_those(self, more: "Questions") -> "Questions":
        """Return these questions and the others, none of them twice."""
        joined = {
            question.name: tuple(
                dict.fromkeys((*getattr(self, question.name), *getattr(more, question.name)))
            )
            for question in fields(self)
        }
        return Questions(**joined)


@dataclass(frozen=True)
class FileFact:
    """A file, folder or link on the node.

    `content` is None for what is no plain file; `target` is a link's.
    """

    kind: str
    mode: int
    owner: str
    group: str
    content: bytes | None = None
    target: str | None = None
    modified_seconds: float = 0.0


@dataclass(frozen=True)
class UnitFact:
    """A systemd unit.

    `release` is the one its process was started from, times are seconds since the epoch.
    """

    load: str
    active: str
    sub: str
    enabled: str
    needs_reload: bool
    result: str
    pid: int
    restarts: int
    status: str = ""
    release: str | None = None
    started_seconds: float | None = None
    anonymous_memory_bytes: int | None = None
    files: Texts = ()
    """Its file and the drop-ins, as systemd has read them."""
    identity: str = ""
    """The uid of its process and more groups than that one's, `891:27`; `-` where it has ended."""

    @property
    def running(self) -> bool:
        """Whether systemd counts it as up."""
        return self.active == "active"

    @property
    def starting(self) -> bool:
        """Whether it is on its way up, or waits for its next attempt."""
        return self.active == "activating"


@dataclass(frozen=True)
class MountFact:
    """A mount; its point shows the part `root` of the file system `device` (major:minor)."""

    source: str
    kind: str
    device: str
    root: str = "/"
    read_only: bool = False

    @property
    def waiting(self) -> bool:
        """Whether nothing is mounted yet, and systemd mounts it at the first look."""
        return (self.source, self.kind) == ("systemd-1", "autofs")


@dataclass(frozen=True)
class MachineFacts:
    """One node.

    Sizes are in bytes; `clock_offset_seconds` is its clock minus ours, `clock_error_seconds` the
    doubt.
    """

    os_id: str
    os_version: str
    machine: str
    bits: int
    kernel: str
    model: str
    python: str | None
    python_bits: int
    cores: int
    memory_bytes: int
    available_bytes: int
    controllers: Texts
    cmdline_path: str | None
    clock_offset_seconds: float
    clock_error_seconds: float
    clock_synchronized: bool | None
    disk_free_bytes: Mapping[str, int]
    addresses: Mapping[str, Texts]
    users: Mapping[str, tuple[int, int]]
    uid_owners: Mapping[int, str]
    """The owners by uid, of the numbers that our accounts have or are to have."""
    gid_owners: Mapping[int, str]
    packages: Mapping[str, str]
    files: Mapping[str, FileFact]
    units: Mapping[str, UnitFact]
    mounts: Mapping[str, MountFact]
    """The mount of each point; of several on one point the visible one."""
    fstab: Texts
    exports: Texts
    firewall: str | None
    environments: Texts
    release_environments: Mapping[str, str]
    current: str | None
    published: Texts
    listening: Mapping[int, str] = field(default_factory=dict)
    listening_uids: Mapping[int, int] = field(default_factory=dict)
    """The account of the process that listens on each port."""
    leftover_bytes: Mapping[str, int] = field(default_factory=dict)
    """The bytes of attempts that did not end, by folder: the next one removes or completes them."""
    real_paths: Mapping[str, str] = field(default_factory=dict)
    """Folders that are mounted elsewhere as well, with all links followed."""
    shared_answers: bool = True
    """Whether the folder that was asked for what is published there said anything in time."""
    sources: Mapping[str, str] = field(default_factory=dict)
    """The address that packets to another node's address leave from, by the latter."""
    data: Texts = ()
    powers: Mapping[str, str] = field(default_factory=dict)
    """The shell and the groups that each account of ours should not have."""
    systemd: int = 0
    unwritable: Texts = ()
    """Folders that root cannot write below."""
    overlay: str = ""
    """The kernel's parameter by which all that is written is lost at the next boot; empty without
    one."""
    machine_id: str = ""
    host_keys: frozenset[str] = frozenset()
    """The public keys of the SSH server."""
    temperature_celsius: float | None = None
    throttled: int | None = None
    more: Mapping[str, Any] = field(default_factory=dict)
    """Facts of subjects that have no field here, by the subject's own names."""

    @property
    def python_version(self) -> str | None:
        """`3.11`, without what comes after."""
        if self.python is None:
            return None
        return ".".join(self.python.split(".")[:2])

    @property
    def own_addresses(self) -> frozenset[str]:
        """The IPv4 addresses of all interfaces."""
        return frozenset(address for some in self.addresses.values() for address in some)

    def place(self, path: str) -> tuple[str, str]:
        """The file system that a path is on, and where in it: a bind mount of it shows the same."""
        path = self.real_paths.get(path, path)
        point = max(
            (
                mount_point
                for mount_point in self.mounts
                if PurePosixPath(path).is_relative_to(mount_point)
            ),
            key=len,
            default=None,
        )
        if point is None:
            return "", path
        mount = self.mounts[point]
        return mount.device, str(PurePosixPath(mount.root) / PurePosixPath(path).relative_to(point))

    def text(self, path: str) -> str:
        """Return the text of a file without blanks around it; empty where there is none."""
        file = self.files.get(path)
        if file is None or file.content is None:
            return ""
        return file.content.decode(errors="replace").strip()

    def unit(self, name: str) -> UnitFact | None:
        """A unit that systemd has a file for."""
        fact = self.units.get(name)
        if fact is None or fact.load == "not-found":
            return None
        return fact


MEGABYTE = 10**6
LARGEST_SHARE = 0.8
"""The share of a node's memory for all its roles; the rest is the system's, and for pages of
TensorFlow's libraries."""

_MEASURED_UNITS = (32, 128)
_MEASURED_SLOTS = (4, 16)
_MEASURED_MEGABYTES: Mapping[str, tuple[tuple[int, int], tuple[int, int]]] = {
    "ps": ((74, 102), (75, 98)),  # without the rows of a step, which are counted by themselves
    "worker": ((90, 151), (89, 123)),  # the library's passes have fewer rows of smaller slots
    "coordinator": ((297, 317), (300, 321)),
}
"""Anonymous memory while three layers of 32 and of 128 units train, each process at its highest: in
four slots, and in sixteen of `sync` (`python -m benchmarks.memory`; x86-64, TF 2.21)."""

_BYTES_OF_ELEMENT = 4
IDLE_MEGABYTES = 59
"""Anonymous memory of a waiting role, mostly of TensorFlow (experiments/pages/performance.md)."""
REMEMBERED_BYTES = 2**25
"""The most that a process remembers of windows (kMostBytes of kernels/native/recall.cc)."""


@dataclass(frozen=True)
class RoleMemory:
    """Anonymous bytes of one process of each role."""

    ps: int
    worker: int
    coordinator: int

    def of(self, role: str) -> int:
        """Bytes of one process of `role`."""
        return {"ps": self.ps, "worker": self.worker, "coordinator": self.coordinator}[role]


def estimate(units: int, extra_vectors: int = 0, part: int = 4, prepared: int = 4) -> RoleMemory:
    """Return the bytes of each role for layers of `units` (both directions together).

    They follow straight lines through the measured widths and counts. Between them they are within
    what one run differs from another; beyond 128 units they are a guess to warn with.
    `extra_vectors` float32 vectors of the model's size are added to the parameter server, for what
    keeps more there than parameters and optimizer slots. A worker computes `part` slots at
    once, and the coordinator prepares functions for parts of up to `prepared`; less than four of
    them take no less.
    """

    def megabytes(role: str, count: int) -> float:
        few, many = _MEASURED_MEGABYTES[role]
        least, most = _MEASURED_SLOTS
        share = (max(count, least) - least) / (most - least)
        low, high = (a + share * (b - a) for a, b in zip(few, many, strict=True))
        slope = (high - low) / (_MEASURED_UNITS[1] - _MEASURED_UNITS[0])
        return max(low, low + slope * (units - _MEASURED_UNITS[0]))

    ps, worker, coordinator = (
        round(megabytes(role, count) * MEGABYTE)
        for role, count in (("ps", prepared), ("worker", part), ("coordinator", prepared))
    )
    return RoleMemory(
        ps + extra_vectors * _BYTES_OF_ELEMENT * _parameters(units), worker, coordinator
    )


def memory_of_roles(inventory: "Inventory", cores: Mapping[str, int]) -> RoleMemory:
    """Return the bytes of each role for the inventory's training.

    `cores` by node decide what `auto` slots become.
    """
    from core.inventory.slots import cores_of_workers

    train = inventory.jobs.train
    workers = inventory.of_role("worker")
    own_model = train.app is not None
    cores_of_each = cores_of_workers(workers, cores)
    auto = train.auto_slots(len(workers), cores_of_each, own_model=own_model).number
    number = train.slots if isinstance(train.slots, int) else auto
    if train.by_library(own_model=own_model):
        # One call computes all slots of a part, so that only parts cost memory.
        shared = MODES[train.mode].shares_batches()
        number = min(number, 1 << (len(workers) - 1).bit_length()) if shared else 1
    return training_memory(train.mode, number, len(workers), train.model)


def training_memory(mode: str, slots: int, workers: int, model: "Choice") -> RoleMemory:
    """Bytes for a training in `mode` of a network described by the section `model`."""
    units = MODELS[model.name].widest_layer(model)
    rows = MODES[mode].server_vectors(slots)
    if not MODES[mode].shares_batches():
        # Each worker computes whole batches, by one function.
        return _remembering(model, estimate(units, rows, part=slots))
    worker_slots = max(1, -(-slots // max(1, workers)))
    part = 1 << (worker_slots - 1).bit_length()  # aligned subtrees: 1, 2, 4 and so on
    return _remembering(model, estimate(units, rows, part, prepared=slots))


def alone(train: "TrainJob") -> int:
    """Bytes of one process that trains by itself, in mode `single`.

    It takes what a coordinator takes, and what a worker takes beside its server.
    """
    if isinstance(train.slots, int):
        number = train.slots
    else:
        number = _MEASURED_SLOTS[0]
    units = MODELS[train.model.name].widest_layer(train.model)
    role_memory = _remembering(train.model, estimate(units, part=number, prepared=number))
    return role_memory.coordinator + role_memory.worker - IDLE_MEGABYTES * MEGABYTE


def _remembering(model: "Choice", memory: RoleMemory) -> RoleMemory:
    """Add what a worker remembers of its windows, where the network measures them."""
    if not MODELS[model.name].remembers_statistics():
        return memory
    return replace(memory, worker=memory.worker + REMEMBERED_BYTES)


def _parameters(units: int) -> int:
    """Count the parameters of three plain layers of `units` on nine channels and six classes.

    Other models are taken for these.

    Each layer is a projection and an LSTM of 4 units (2 units + 1) parameters; 27,590 at 32 units,
    429,830 at 128.
    """
    return 26 * units**2 + 30 * units + 6
