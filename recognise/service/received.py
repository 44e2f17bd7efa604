"""An export as `fab service promote` sends it: a tar of `export.json` and one model file."""

import tarfile
from pathlib import Path
from typing import BinaryIO

from core.exported.description import FILES, NAME
from core.ground.errors import ClusterError, UsageError, reason_of
from core.ground.parcel import extract, is_plain_file

LARGEST_BYTES = 256 << 20
"""The largest file: a network for a small node has some megabytes."""
_NAMES = frozenset({NAME, FILES["onnx"], FILES["litert"]})


def received(stream: BinaryIO, folder: Path) -> Path:
    """Write the files of the archive into `folder`, and return it.

    Raises UsageError and ClusterError. A member that is no plain file with a name of ours is
    refused.
    """
    names: set[str] = set()
    try:
        with tarfile.open(fileobj=stream, mode="r|") as archive:
            for member in archive:
                is_ours = is_plain_file(member) and member.name in _NAMES - names
                if not is_ours:
                    raise UsageError(
                        f"the archive: expected {', '.join(sorted(_NAMES))}, got"
                        f" {member.name!r:.80}"
                    )
                if member.size > LARGEST_BYTES:
                    raise UsageError(
                        f"{member.name}: expected at most {LARGEST_BYTES:,} bytes, got"
                        f" {member.size:,}"
                    )
                names.add(member.name)
                extract(archive, member, folder, member.name)
    except (tarfile.TarError, EOFError, ValueError) as problem:
        raise UsageError(
            f"the archive: expected a whole tar of an export, got {reason_of(problem)}"
        ) from None
    except OSError as problem:
        raise ClusterError(
            f"{folder}: cannot be written ({reason_of(problem)}): free some space"
        ) from None
    if NAME not in names or len(names) != 2:
        raise UsageError(
            f"the archive: expected {NAME} and one model, got"
            f" {', '.join(sorted(names)) or 'no file'}"
        )
    return folder
