"""An export that comes through a pipe: a tar of `export.json` and one model file, as `fab service promote` sends it."""

import tarfile
from pathlib import Path
from typing import BinaryIO

from cluster.errors import ClusterError, UsageError, reason_of
from cluster.exported.description import FILES, NAME

LARGEST_BYTES = 256 << 20
"""Of one file: a network for a small node has some megabytes."""
_NAMES = frozenset({NAME, FILES["onnx"], FILES["litert"]})
_CHUNK_BYTES = 1 << 20


def received(stream: BinaryIO, folder: Path) -> Path:
    """Write the files of the archive into `folder`, and return it. Raises UsageError and ClusterError.

    The names are ours, so no member writes elsewhere; a link or a device is refused.
    """
    names: set[str] = set()
    try:
        with tarfile.open(fileobj=stream, mode="r|") as archive:
            for member in archive:
                if not member.isreg() or member.name not in _NAMES or member.name in names:
                    raise UsageError(f"the archive: expected {', '.join(sorted(_NAMES))}, got {member.name!r:.80}")
                if member.size > LARGEST_BYTES:
                    raise UsageError(f"{member.name}: expected at most {LARGEST_BYTES:,} bytes, got {member.size:,}")
                names.add(member.name)
                _written(archive, member, folder / member.name)
    except (tarfile.TarError, EOFError, ValueError) as problem:
        raise UsageError(f"the archive: expected a whole tar of an export, got {reason_of(problem)}") from None
    except OSError as problem:
        raise ClusterError(f"{folder}: cannot be written ({reason_of(problem)}): free some space") from None
    if NAME not in names or len(names) != 2:
        raise UsageError(f"the archive: expected {NAME} and one model, got {', '.join(sorted(names)) or 'no file'}")
    return folder


def _written(archive: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> None:
    content = archive.extractfile(member)
    assert content is not None  # a regular file
    with content, path.open("xb") as file:
        while chunk := content.read(_CHUNK_BYTES):
            file.write(chunk)
