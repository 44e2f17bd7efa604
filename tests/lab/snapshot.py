"""The difference between a node and its image, in a form that can be compared."""

import hashlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.lab.card import Card
from tests.lab.commands import LabError

IGNORED = (
    "var/log",
    "var/cache",
    "var/lib/dpkg",
    "var/lib/apt",
    "var/lib/systemd",
    "run",
    "tmp",
    "var/tmp",
    "dev",
)
"""Folders whose contents change by themselves, or record past installations."""

UNIT_KINDS = (".service", ".socket", ".mount", ".automount", ".timer", ".path", ".swap")


@dataclass(frozen=True)
class Snapshot:
    """`units`: state by unit; `files`: a description by path, where it is not as on the image."""

    units: dict[str, str]
    files: dict[str, str]

    def differences(self, after: "Snapshot") -> list[str]:
        """One line for each unit and file that differs in `after`; empty when none does."""
        return [
            *_differences("unit", self.units, after.units, "not there"),
            *_differences("file", self.files, after.files, "as on the image"),
        ]


def snapshot(card: Card, unit_files: str, active_units: str) -> Snapshot:
    """Compare the card with its image and with what systemctl listed.

    Raises:
        LabError: The card is a file system image that only the node itself has mounted.
    """
    if card.image_file is not None:
        raise LabError(
            f"{card.folder.name} has a small card of its own, which only the node itself can read"
        )
    units = {
        name: state for name, _, state in (line.partition(" ") for line in unit_files.splitlines())
    }
    for line in active_units.splitlines():
        name, _, active = line.split()[:3]
        # Units of the system come and go (a clean-up, a service for D-Bus); only ours count.
        if (
            name.endswith(UNIT_KINDS)
            and active in ("active", "failed", "activating")
            and not name.startswith("systemd-")
        ):
            units[f"{name} (loaded)"] = active
    return Snapshot(units, dict(_changed(card)))


def _changed(card: Card) -> Iterator[tuple[str, str]]:
    for place, prefix in ((card.upper, Path()), (card.folder / "srv", Path("srv"))):
        for folder, folders, files in os.walk(place):
            inside = prefix / Path(folder).relative_to(place)
            folders[:] = [name for name in folders if (inside / name).as_posix() not in IGNORED]
            for name in [*folders, *files]:
                path = inside / name
                now = describe(Path(folder, name))
                before = describe_first(card.lower, path)
                if now != before:
                    yield path.as_posix(), now


def describe_first(layers: tuple[Path, ...], path: Path) -> str:
    """A path's description in the topmost layer that has it; empty where none has."""
    return next((describe(layer / path) for layer in layers if os.path.lexists(layer / path)), "")


def describe(path: Path) -> str:
    """Kind, mode, owner and content; a whiteout of the overlay is `removed`."""
    status = path.lstat()
    kind = stat.S_IFMT(status.st_mode)
    owner = f"{status.st_uid}:{status.st_gid}"
    if kind == stat.S_IFCHR and status.st_rdev == 0:
        return "removed"
    if kind == stat.S_IFLNK:
        return f"link {owner} -> {path.readlink()}"
    mode = f"{status.st_mode & 0o7777:04o}"
    if kind == stat.S_IFREG:
        with path.open("rb") as file:
            return f"file {mode} {owner} {hashlib.file_digest(file, 'sha256').hexdigest()}"
    if kind != stat.S_IFDIR:
        return f"special {mode} {owner}"
    hides = "trusted.overlay.opaque" in os.listxattr(path)
    return f"folder {mode} {owner}{' without what the image has in it' if hides else ''}"


def _differences(
    what: str, before: dict[str, str], after: dict[str, str], absent: str
) -> Iterator[str]:
    for name in sorted(before.keys() | after.keys()):
        if before.get(name) != after.get(name):
            yield f"{what} {name}: was {before.get(name, absent)}, is {after.get(name, absent)}"
