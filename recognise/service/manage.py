"""`python -m recognise.service.manage`: promote, roll back, list; `fab service` starts it."""

import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from core.ground.errors import ClusterError, ExitCode, UsageError
from core.logs import say, say_json
from recognise.service import state
from recognise.service.limits import Limits
from recognise.service.options import memory_of, parser
from recognise.service.received import received
from recognise.service.versions import Version, Versions

_SHORT = 12
ROW = "{:>7}  {:<7}  {:<12}  {:>12}  {}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Change or show the versions of one model; returns the exit code."""
    given = parser("recognise.service.manage", "Versions of a model.").parse_args(arguments)
    try:
        folder = state.folder_of(given.state)
        versions = Versions(
            state.versions_of(Path(given.versions or folder / state.MODELS), given.name),
            replace(Limits(), memory_megabytes=memory_of(given)),
        )
        if given.action == "list":
            _list(versions.listed(), as_json=given.json)
            return ExitCode.DONE
        if given.action == "promote" and not given.model:
            raise UsageError("promote: expected --model EXPORT or --run RUN")
        if given.action == "token" or (given.action == "promote" and not given.versions):
            state.made(folder)
        if given.action == "token":
            say(state.token(folder))
            return ExitCode.DONE
        if given.action == "promote":
            version = _promoted(versions, given.model)
        else:
            version = versions.rollback()
        run = f" (run {version.description.run.folder})" if version.description else ""
        say(
            f"{given.name}: version {version.number}{run} is to be served; a service that runs"
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


def _list(found: Sequence[Version], *, as_json: bool) -> None:
    if as_json:
        say_json({"versions": [_described(version) for version in found]})
        return
    if not found:
        say("no version yet: `fab service promote --model EXPORT` makes the first one")
        return
    say(ROW.format("version", "", "sha256", "bytes", "run"))
    for version in found:
        if version.description is None:
            say(f"{version.number:>7}  damaged: {version.problem}")
            continue
        known = version.description
        served = "current" if version.current else ""
        say(
            ROW.format(
                version.number, served, known.sha256[:_SHORT], f"{known.bytes:,}", known.run.folder
            )
        )


def _described(version: Version) -> dict[str, object]:
    known = version.description
    return {
        "version": version.number,
        "current": version.current,
        "folder": os.path.abspath(version.folder),
        "sha256": None if known is None else known.sha256,
        "bytes": None if known is None else known.bytes,
        "run": None if known is None else known.run.folder,
        "problem": version.problem or None,
    }


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.exit(code)
