"""`python -m recognise.service.manage`: promote, roll back, list; `fab service` starts it."""

import os
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from core.exported.description import FILES, NAME
from core.ground.errors import ClusterError, ExitCode, UsageError, reason_of
from core.ground.parcel import extract, is_plain_file, piped_tar
from core.logs import say, say_json
from recognise.service import state
from recognise.service.limits import Limits
from recognise.service.options import memory_of, parser
from recognise.service.versions import Version, Versions

LARGEST_BYTES = 256 << 20
"""The largest file: a network for a small node has some megabytes."""
_LARGEST_ARCHIVE_BYTES = LARGEST_BYTES + (8 << 20)
_NAMES = frozenset({NAME, FILES["onnx"], FILES["litert"]})


def received(stream: BinaryIO, folder: Path) -> Path:
    """Write the files of the archive into `folder`, and return it.

    Raises UsageError and ClusterError. A member that is no plain file with a name of ours is
    refused.
    """
    names: set[str] = set()
    try:
        with piped_tar(stream, _LARGEST_ARCHIVE_BYTES) as archive:
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


_SHORT = 12
ROW = "{:>7}  {:<7}  {:<12}  {:>12}  {}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Change or show the versions of one model; returns the exit code."""
    flags = parser("recognise.service.manage", "Versions of a model.").parse_args(arguments)
    try:
        folder = state.folder_of(flags.state)
        versions = Versions(
            state.versions_of(Path(flags.versions or folder / state.MODELS), flags.name),
            replace(Limits(), memory_megabytes=memory_of(flags)),
        )
        if flags.action == "list":
            _list(versions.listed(), as_json=flags.json)
            return ExitCode.DONE
        if flags.action == "promote" and not flags.model:
            raise UsageError("promote: expected --model EXPORT or --run RUN")
        if flags.action == "token" or (flags.action == "promote" and not flags.versions):
            state.made(folder)
        if flags.action == "token":
            say(state.token(folder))
            return ExitCode.DONE
        if flags.action == "promote":
            version = _promoted(versions, flags.model)
        else:
            version = versions.rollback()
        run = f" (run {version.description.run.folder})" if version.description else ""
        say(
            f"{flags.name}: version {version.number}{run} is to be served; a service that runs"
            " takes it over"
        )
        return ExitCode.DONE
    except ClusterError as problem:
        say(str(problem), error=True)
        return problem.exit_code


def _promoted(versions: Versions, model: str) -> Version:
    if model != "-":
        return versions.promote(Path(model))
    with tempfile.TemporaryDirectory(prefix="promoted-") as folder:
        return versions.promote(received(sys.stdin.buffer, Path(folder)))


def _list(versions: Sequence[Version], *, as_json: bool) -> None:
    if as_json:
        say_json({"versions": [_described(version) for version in versions]})
        return
    if not versions:
        say("no version yet: `fab service promote --model EXPORT` makes the first one")
        return
    say(ROW.format("version", "", "sha256", "bytes", "run"))
    for version in versions:
        if version.description is None:
            say(f"{version.number:>7}  damaged: {version.problem}")
            continue
        description = version.description
        if version.current:
            served = "current"
        else:
            served = ""
        say(
            ROW.format(
                version.number,
                served,
                description.sha256[:_SHORT],
                f"{description.bytes:,}",
                description.run.folder,
            )
        )


def _described(version: Version) -> dict[str, object]:
    description = version.description
    return {
        "version": version.number,
        "current": version.current,
        "folder": os.path.abspath(version.folder),
        "sha256": None if description is None else description.sha256,
        "bytes": None if description is None else description.bytes,
        "run": None if description is None else description.run.folder,
        "problem": version.problem or None,
    }


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.exit(code)
