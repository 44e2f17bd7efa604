"""The lab's places: the cache, a folder for each running lab, and names with a lab's prefix."""

import os
import re
from dataclasses import dataclass
from pathlib import Path

from tests.lab.commands import LabError

PROJECT = Path(__file__).resolve().parents[2]
FILES = Path(__file__).parent / "image_files"
CGROUPS = Path("/sys/fs/cgroup")
REGISTRY = Path("/run/pscluster-lab")
"""The running labs of this machine, of any checkout: one file each, with the path of its folder."""


def cache_folder() -> Path:
    """`$PSCLUSTER_LAB_CACHE`, or `.cache/lab` of the project."""
    folder = Path(os.environ.get("PSCLUSTER_LAB_CACHE") or PROJECT / ".cache" / "lab").resolve()
    if re.search(r"[:,\\\s]", str(folder)):  # overlay's own separators
        raise LabError(
            f"{folder}: expected a path without blanks, colons, commas and backslashes: set"
            " PSCLUSTER_LAB_CACHE"
        )
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@dataclass(frozen=True)
class Places:
    """One lab's name and folder. Everything that it makes outside the folder carries the name."""

    lab: str
    run: Path

    @staticmethod
    def of(lab: str | None = None) -> "Places":
        """The places of the lab of this name; `$PSCLUSTER_LAB` or `lab` if none is given."""
        name = lab or os.environ.get("PSCLUSTER_LAB") or "lab"
        if not re.fullmatch(r"[a-z][a-z0-9]{0,7}", name):
            raise LabError(
                f"lab name {name!r}: expected a lower-case letter and up to seven letters or digits"
            )
        return Places(name, cache_folder() / "run" / name)

    @property
    def state(self) -> Path:
        """The request of `up`, as JSON."""
        return self.run / "lab.json"

    @property
    def key(self) -> Path:
        """The private half of the key that user pi of every node accepts."""
        return self.run / "id_ed25519"

    @property
    def told(self) -> Path:
        """The mount point of lxcfs, in no folder that a person deletes, control groups and all."""
        return REGISTRY / f"{self.lab}-lxcfs"

    @property
    def registered(self) -> Path:
        """This lab's entry among those of the machine."""
        return REGISTRY / self.lab

    def folder(self, node: str) -> Path:
        """A node's card and console."""
        return self.run / node

    def namespace(self, node: str) -> str:
        """Name of a network namespace, as in `ip netns`."""
        return f"{self.lab}-{node}"

    def cable(self, node: str) -> str:
        """The host's end of a node's cable (15 characters at most)."""
        return f"{self.lab}-{node}"

    @property
    def switch(self) -> str:
        """The bridge that all cables end at."""
        return f"{self.lab}-switch"

    def cgroup(self, controller: str, node: str = "") -> Path:
        """A node's control group, or the one above all of the lab's."""
        return CGROUPS / controller / f"pscluster-{self.lab}" / node
