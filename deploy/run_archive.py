"""A run's folder on its way from the coordinator's node: unpacked whole, or not there."""

import io
import os
import shlex
import shutil
import tarfile
from pathlib import Path, PurePosixPath

from cluster.errors import ClusterError


def pack_command(run_folder: str, checkpoints: bool) -> str:
    """The shell command that writes the folder as a compressed archive to its stdout, checkpoints only if asked."""
    path = PurePosixPath(run_folder)
    left_out = [] if checkpoints else [f"--exclude={path.name}/checkpoints"]
    return shlex.join(["tar", "-C", str(path.parent), *left_out, "-czf", "-", "--", path.name])


def unpack(archive: bytes, name: str, into: Path) -> Path:
    """Unpack an archive of the folder `name` to `into/name`, in place of one that is there; its path.

    Only plain files and folders below `name` are taken: an archive from another machine writes nowhere else. Raises
    ClusterError when it is damaged or the place cannot be written.
    """
    target, partial, old = into / name, into / f".{name}.{os.getpid()}.partial", into / f".{name}.{os.getpid()}.old"
    try:
        into.mkdir(parents=True, exist_ok=True)
        try:
            partial.mkdir()
            with tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as members:
                for member in members:
                    _take(members, member, name, partial)
            if target.exists():
                target.rename(old)
            partial.rename(target)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
            shutil.rmtree(old, ignore_errors=True)
    except (OSError, EOFError, tarfile.TarError) as error:
        raise ClusterError(
            f"{target}: the run cannot be kept here: {error}; `fab job attach` fetches it once more"
        ) from error
    return target


def _take(members: tarfile.TarFile, member: tarfile.TarInfo, name: str, partial: Path) -> None:
    parts = PurePosixPath(member.name).parts
    if parts[:1] != (name,) or ".." in parts:
        return
    path = partial.joinpath(*parts[1:])
    if member.isdir():
        path.mkdir(parents=True, exist_ok=True)
    elif member.isfile():
        content = members.extractfile(member)
        if content is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            with content, path.open("wb") as stream:
                shutil.copyfileobj(content, stream)
            os.utime(path, (member.mtime, member.mtime))
