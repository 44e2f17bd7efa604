"""What a person asked for, refused in one line where it cannot be: before TensorFlow is loaded."""

import os
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from tempfile import mkdtemp

from cluster.export.formats.format import FORMATS, Format
from core.ground.errors import UsageError


@dataclass(frozen=True)
class ExportRequest:
    """What a person asked for."""

    to: str
    quantized: bool
    out: Path


def checked(request: ExportRequest) -> type[Format]:
    """The format. Raises UsageError for what cannot be written, before anything is loaded."""
    format_class = FORMATS[request.to]
    if request.quantized and not format_class.quantizable:
        able = " or ".join(name for name, candidate in FORMATS.items() if candidate.quantizable)
        raise UsageError(
            f"--quantize: expected --to {able}, got --to {request.to}, which keeps float32"
        )
    missing = [
        package for module, package in format_class.packages.items() if not _is_there(module)
    ]
    if missing:
        raise UsageError(
            f"--to {request.to}: needs the packages {', '.join(missing)}: install them with `pip"
            f" install {' '.join(missing)}`, or all of them with `pip install 'pscluster[export]'`"
        )
    refuse_taken(request.out)
    return format_class


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def refuse_taken(out: Path) -> None:
    """Raises UsageError unless `out` is free: not there, or an empty folder."""
    if out.is_symlink() or (out.exists() and not out.is_dir()):
        raise UsageError(
            f"--out: expected a new folder, got {out}, which is something else: name another one"
        )
    if out.is_dir() and any(out.iterdir()):
        raise UsageError(
            f"--out: expected a new or an empty folder, {out} holds something: name another one"
        )
    if not out.parent.is_dir():
        raise UsageError(
            f"--out: expected a folder in one that is there, found no {out.parent}: make it first"
        )
    try:
        os.rmdir(mkdtemp(prefix=f".{out.name}.", dir=out.parent))
    except OSError as problem:
        raise UsageError(
            f"--out: {out.parent}: cannot be written ({problem.strerror}): make it writable, or"
            " name another folder"
        ) from None
