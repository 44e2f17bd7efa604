"""How the files of a checkpoint are called, and which of them a folder holds."""

import re
from collections.abc import Iterator
from pathlib import Path

from cluster.atomic_write import PARTIAL

LARGEST_UPDATE = 10**18 - 1

# The digits are ASCII's and the number has one spelling, so that a name and an update belong to each other.
_MANIFEST = re.compile(r"update-([0-9]{9}|[1-9][0-9]{9,17})\.json")
_TENSORS = re.compile(r"update-([0-9]{9}|[1-9][0-9]{9,17})(-again)?\.safetensors")
_PARTIAL = re.compile(rf"\.update-[0-9]+.*{re.escape(PARTIAL)}")


def manifest_name(update: int) -> str:
    """`update-000000740.json`."""
    return f"update-{update:09d}.json"


def tensors_names(update: int) -> tuple[str, str]:
    """The two names that the tensors of an update may have.

    Writing an update again takes the name that the present manifest does not use, so that its rename replaces the
    checkpoint at once: with one name there would be a moment of old manifest and new tensors.
    """
    stem = f"update-{update:09d}"
    return f"{stem}.safetensors", f"{stem}-again.safetensors"


def manifests(folder: Path) -> list[tuple[int, Path]]:
    """Updates and paths of the manifests in `folder`, the newest first. Raises OSError."""
    return sorted(_numbered(folder, _MANIFEST), reverse=True)


def tensors_files(folder: Path) -> list[tuple[int, Path]]:
    """Updates and paths of the tensors files in `folder`. Raises OSError."""
    return list(_numbered(folder, _TENSORS))


def partials(folder: Path) -> list[Path]:
    """What interrupted writes left in `folder`. Raises OSError."""
    return [path for path in folder.iterdir() if _PARTIAL.fullmatch(path.name)]


def _numbered(folder: Path, pattern: re.Pattern[str]) -> Iterator[tuple[int, Path]]:
    for path in folder.iterdir():
        if found := pattern.fullmatch(path.name):
            yield int(found[1]), path
