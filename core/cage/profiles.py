"""The profiles of `profiles.toml`: what each kind of caged process may touch.

A process names its profile and fills the slots, such as its own ports and folders.
"""

import glob
import os
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from core.cage.calls import FAMILIES, CallRights
from core.cage.landlock import Rights, existing

ROOT = Path(__file__).resolve().parents[2]
"""The folder around our packages: site-packages, or a checkout, which holds secrets and runs."""
FILE = Path(__file__).with_name("profiles.toml")
PATHS = ("read", "write", "devices")
PORTS = ("bind", "connect")
OTHERS = ("packages", "execute", "sockets", "free", "like")

Fill = Sequence[str | Path | int] | None
"""Paths or ports of a slot; None is any port."""


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


def profile(name: str) -> Mapping[str, Any]:
    """Return the lines of a profile. Raises ValueError for a name or a line that is none."""
    tables = _tables()
    if name not in tables:
        raise ValueError(f"{FILE}: expected the name of a profile there, got {name!r}")
    lines = {**tables.get(tables[name].get("like", ""), {}), **tables[name]}
    if unknown := lines.keys() - {*PATHS, *PORTS, *OTHERS}:
        expected = ", ".join((*PATHS, *PORTS, *OTHERS))
        raise ValueError(f"{FILE}: [{name}]: expected lines of {expected}, got {sorted(unknown)}")
    return lines


def calls_of(name: str) -> CallRights:
    """Return the calls that a profile keeps. Raises KeyError for a family that is none."""
    lines = profile(name)
    families = tuple(FAMILIES[family] for family in lines.get("sockets", ()))
    return CallRights(lines.get("execute", False), families, lines.get("free", False))


def rights_of(name: str, **slots: Fill) -> Rights:
    """Return the rights of a profile with these paths and ports in its slots.

    Paths that this machine lacks are left out. Raises ValueError for other slots than it has.
    """
    lines = profile(name)
    groups = {**_groups(), **slots}
    expected = {word for right in (*PATHS, *PORTS) for word in lines.get(right, ())}
    if expected - _groups().keys() != slots.keys():
        raise ValueError(
            f"{FILE}: [{name}]: expected paths or ports for {sorted(expected - _groups().keys())},"
            f" got some for {[*slots]}"
        )
    read, write, devices = (
        existing(*(str(path) for word in lines.get(right, ()) for path in groups[word] or ()))
        for right in PATHS
    )
    if "packages" in lines:
        read = existing(*read, *python_folders(lines["packages"]))
    bind, connect = (_ports(lines.get(right), groups) for right in PORTS)
    return Rights(read, write, devices, bind, connect)


def _ports(words: Sequence[str] | None, groups: Mapping[str, Fill]) -> tuple[int, ...] | None:
    """Return the ports of these words; None is any port."""
    if words is None:
        return None
    ports: list[int] = []
    for word in words:
        fill = groups[word]
        if fill is None:
            return None
        ports += [int(str(port)) for port in fill]
    return tuple(ports)


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
