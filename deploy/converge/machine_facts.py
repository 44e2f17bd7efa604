"""What a node is asked (`Questions`) and what is true of it (`MachineFacts`). Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import PurePosixPath
from typing import Any

THROTTLED_NOW = 0x4
"""A bit of `MachineFacts.throttled`."""


@dataclass(frozen=True)
class Questions:
    """What depends on the inventory: the files, units, packages, mounts and folders to look at."""

    files: tuple[str, ...] = ()
    units: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    service_uid: int = 0
    published: tuple[str, ...] = ()
    """Folders whose finished sub-folders are listed, e.g. `/srv/pscluster/shared/wheels`.

    For the node that publishes alone: below a hard mount whose server is gone every look waits
    without an end.
    """
    space: tuple[str, ...] = ()
    """Folders whose free space is asked; one that does not exist stands for the nearest that does.
    """
    unfinished: tuple[str, ...] = ()
    """Folders in which sub-folders that are not complete take room that the next attempt has, or
    uses."""
    bound: tuple[str, ...] = ()
    """Folders that are mounted at another place as well."""
    peers: tuple[str, ...] = ()
    """Addresses of the other nodes that it has to reach."""

    def and_those(self, more: "Questions") -> "Questions":
        """Return these questions and the others, none of them twice."""
        joined: dict[str, Any] = {}
        for question in fields(self):
            existing, added = getattr(self, question.name), getattr(more, question.name)
            if isinstance(existing, tuple):
                joined[question.name] = tuple(dict.fromkeys((*existing, *added)))
            else:
                joined[question.name] = existing or added
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
    files: tuple[str, ...] = ()
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
    controllers: tuple[str, ...]
    cmdline_path: str | None
    clock_offset_seconds: float
    clock_error_seconds: float
    clock_synchronized: bool | None
    disk_free_bytes: Mapping[str, int]
    addresses: Mapping[str, tuple[str, ...]]
    users: Mapping[str, tuple[int, int]]
    uid_owners: Mapping[int, str]
    """The owners by uid, of the numbers that our accounts have or are to have."""
    gid_owners: Mapping[int, str]
    packages: Mapping[str, str]
    files: Mapping[str, FileFact]
    units: Mapping[str, UnitFact]
    mounts: Mapping[str, MountFact]
    """The mount of each point; of several on one point the visible one."""
    fstab: tuple[str, ...]
    exports: tuple[str, ...]
    firewall: str | None
    environments: tuple[str, ...]
    release_environments: Mapping[str, str]
    current: str | None
    published: tuple[str, ...]
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
    data: tuple[str, ...] = ()
    powers: Mapping[str, str] = field(default_factory=dict)
    """The shell and the groups that each account of ours should not have."""
    systemd: int = 0
    unwritable: tuple[str, ...] = ()
    """Folders that root cannot write below."""
    overlay: str = ""
    """The kernel's parameter by which all that is written is lost at the next boot; empty without
    one."""
    machine_id: str = ""
    host_keys: frozenset[str] = frozenset()
    """The public keys of the SSH server."""
    temperature_celsius: float | None = None
    throttled: int | None = None
    more: Mapping[str, object] = field(default_factory=dict)
    """Facts of subjects that have no field here, by the subject's own names."""

    @property
    def python_version(self) -> str | None:
        """`3.11`, without what comes after."""
        if self.python is None:
            return None
        return ".".join(self.python.split(".")[:2])

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
