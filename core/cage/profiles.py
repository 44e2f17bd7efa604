"""The profiles of `profiles.toml`: what each kind of caged process may touch.

A process names its profile and fills the slots, such as its own ports and folders.
"""

import glob
import os
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from core.cage.calls import FAMILIES, CallRights
from core.cage.landlock import Rights, existing

ROOT = Path(__file__).resolve().parents[2]
"""The folder around our packages: site-packages, or a checkout, which holds secrets and runs."""
FILE = Path(__file__).with_name("profiles.toml")
Words = Sequence[str]
Fill = Sequence[str | Path | int] | None
"""Paths or ports of a slot; None is any port."""


@dataclass(frozen=True)
class Profile:
    """What one kind of process may touch, in the words of the file."""

    read: Words = ()
    write: Words = ()
    devices: Words = ()
    bind: Words | None = None
    connect: Words | None = None
    packages: Words = ()
    execute: bool = False
    sockets: Words = ()
    free: bool = False

    @property
    def calls(self) -> CallRights:
        """The calls that it keeps."""
        families = tuple(FAMILIES[family] for family in self.sockets)
        return CallRights(self.execute, families, self.free)

    @property
    def slots(self) -> set[str]:
        """The words that are no group of the file."""
        ports = (*(self.bind or ()), *(self.connect or ()))
        return {*self.read, *self.write, *self.devices, *ports} - _groups().keys()

    def rights(self, **slots: Fill) -> Rights:
        """Return the rights with these paths and ports in the slots.

        Paths that this machine lacks are left out. Raises ValueError for other slots than the
        profile has.
        """
        if self.slots != slots.keys():
            raise ValueError(f"a cage: expected {sorted(self.slots)}, got {sorted(slots)}")
        groups = {**_groups(), **slots}
        read, write, devices = (
            existing(*(str(path) for word in words for path in groups[word] or ()))
            for words in (self.read, self.write, self.devices)
        )
        if self.packages:
            read = existing(*read, *python_folders(self.packages))
        return Rights(read, write, devices, _ports(self.bind, groups), _ports(self.connect, groups))


def _ports(words: Words | None, groups: Mapping[str, Fill]) -> tuple[int, ...] | None:
    """Return the ports of these words; None is any port."""
    ports: list[int] = []
    for word in words or ():
        fill = groups[word]
        if fill is None:
            return None
        ports += [int(str(port)) for port in fill]
    return None if words is None else tuple(ports)


@cache
def _tables() -> Mapping[str, dict[str, Any]]:
    return tomllib.loads(FILE.read_text())


@cache
def _groups() -> Mapping[str, Fill]:
    places = {
        name: [path for pattern in patterns for path in glob.glob(pattern)]
        for name, patterns in _tables()["places"].items()
    }
    return {**places, **_tables()["ports"]}


def profile(name: str) -> Profile:
    """Return the profile of this name. Raises TypeError for one with a key that is none."""
    table = {**_tables()[name]}
    return Profile(**{**_tables().get(table.pop("like", ""), {}), **table})


def python_folders(package_names: Iterable[str]) -> Iterator[str]:
    """Yield the folders of these packages of ours, of Python and of the installed packages."""
    for name in package_names:
        yield str(ROOT / name)
    yield from {sys.prefix, sys.base_prefix, sys.exec_prefix, os.path.dirname(sys.executable)}
    tensorflow = find_spec("tensorflow")
    if tensorflow is not None and tensorflow.origin is not None:
        yield os.path.dirname(tensorflow.origin)
    for folder in sys.path:
        if os.path.basename(folder) in ("site-packages", "dist-packages"):
            yield folder
    for folder in os.environ.get("LD_LIBRARY_PATH", "").split(":"):
        if os.path.isabs(folder):
            yield folder
