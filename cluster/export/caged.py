"""An export of a run with code: a process in a cage makes it, and this one puts it in its place.

The code of an app runs under the account of the person who exports. So it reads the run, its
recordings and packages alone, writes beside `--out` and windows of its own, makes no socket, and
does not see what else this process's environment says.
"""

import logging
import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from cluster.apps.copy import KeptApp
from cluster.apps.environments import local_environments
from cluster.apps.files import digests_variable
from cluster.export.request import ExportRequest, TrainedRun, export_beside, take_place
from core.cage import landlock
from core.cage.__main__ import FAILED as NO_CAGE
from core.cage.__main__ import caged_command
from core.cage.calls import what_holds
from core.cage.profiles import ROOT, calls_of, profile
from core.control.own_state import user_state
from core.exported.description import NAME, Description
from core.exported.description import read_description as described
from core.ground.children import Child, EndRequest
from core.ground.errors import ClusterError, ExitCode, UsageError
from core.ground.files import PREPARED_VARIABLE, user_cache
from core.logs import say

FLAG = "--in-cage"
PROFILE = "export"
ENDING = EndRequest(signal.SIGTERM, 10.0)
SYSTEMS_OWN = ("/etc", "/run", "/var")
PASSED_VARIABLES = (
    *("PATH", "HOME", "USER", "LOGNAME", "TZ", "XDG_CACHE_HOME", "LD_LIBRARY_PATH", "LD_PRELOAD"),
    *("LANG", "LANGUAGE", "TERM", "COLORTERM", "NO_COLOR", "COLUMNS", "LINES"),
)
PASSED_FAMILIES = ("LC_", "PYTHON", "TF_", "XLA_", "CUDA_", "KERAS_", "OMP_", "OPENBLAS_", "MKL_")
"""Variables that the caged process keeps, and how the names of others begin. Any else may be a
password or the socket of an agent."""
REMEDY = (
    ": the code of a run reads its app, recordings and packages alone when it is exported: name"
    " other files that it needs with --data, and take network and writing out of it"
)


class ChildEnded(ClusterError):
    """The caged process has ended without an export, and has said why."""

    def __init__(self, code: int) -> None:
        """Keep its exit code."""
        super().__init__(f"exit code {code}")
        self.code = code


@dataclass(frozen=True)
class CagedExport:
    """What a person asked for, of which run, and whether progress is shown."""

    request: ExportRequest
    trained: TrainedRun
    app: KeptApp
    data: str | None
    quiet: bool

    def export(self) -> Description:
        """Make it and put it in its place. Raises ClusterError; then nothing is left of it."""
        support = landlock.kernel_coverage()
        caged = what_holds(support, calls_of(PROFILE))
        line = caged.line
        if not support.abi:
            line = f"uncaged and reads whatever you may: {support.reason}"
        if caged.level != logging.INFO:
            say(f"{self.trained.folder}: its code runs {line}", error=True)
        out = self.request.out
        with export_beside(out) as partial:
            folder = partial / out.name
            self._run(partial, folder)
            description = self._checked_export(folder)
            take_place(folder, out)
        return description

    def _run(self, partial: Path, folder: Path) -> None:
        command = caged_command(PROFILE, self._words(folder), **self._slots(partial))
        environment = environment_in_cage(folder, self.app)
        with Child(command, environment=environment, ending=ENDING, new_session=True) as child:
            ended = child.wait()
        if ended < 0:
            raise ClusterError(
                f"{self.trained.folder}: the process that exports it was ended by"
                f" {signal.Signals(-ended).name}: run it again with more memory free"
            )
        if ended:
            raise ChildEnded(ExitCode.FAILED if ended == NO_CAGE else ended)

    def _words(self, folder: Path) -> Sequence[str]:
        request = self.request
        command = [
            *(sys.executable, "-m", "cluster.export", FLAG, f"--run={self.trained.folder}"),
            *(f"--to={request.to}", f"--out={folder}"),
        ]
        if request.quantized:
            command.append("--quantize=dynamic")
        if self.data is not None:
            command.append(f"--data={self.data}")
        if self.quiet:
            command.append("--quiet")
        return command

    def _checked_export(self, folder: Path) -> Description:
        """Return what lies there, if it is what was asked for and nothing else."""
        if folder.is_symlink() or not folder.is_dir():
            raise UsageError(f"{self.trained.folder}: its code left no folder with an export")
        description = described(folder)
        names = {path.name for path in folder.iterdir()}
        requested = (self.request.to, "dynamic" if self.request.quantized else None)
        if (
            names != {NAME, description.file}
            or (description.format, description.quantized) != requested
        ):
            raise UsageError(
                f"{self.trained.folder}: its code left something else than the export that was"
                " asked for"
            )
        return description

    def _slots(self, partial: Path) -> Mapping[str, Sequence[Path]]:
        prepared = prepared_by(self.app)
        with suppress(OSError):
            prepared.mkdir(mode=0o755, parents=True, exist_ok=True)
        read = (self.trained.folder, *self._recordings())
        return slots_in_cage(self.app, read, (partial, prepared))

    def _recordings(self) -> Iterator[Path]:
        """Yield the recordings and their format.

        What the files of the run name, and not the person, is nothing private.
        """
        form = self.trained.options.get("format")
        named: list[Path] = []
        if isinstance(form, str):
            named.append(Path(form).expanduser())
        if self.data is None:
            recordings = Path(self.trained.named or self.trained.source).expanduser()
            named += [recordings, *_sets(recordings)]
        else:
            recordings = Path(self.data).expanduser()
            yield recordings
            yield from _sets(recordings)
        for path in named:
            if path.exists():
                self._refuse_private(path)
                yield path

    def _refuse_private(self, path: Path) -> None:
        place = path.resolve()
        if user_cache().resolve() in place.parents:
            return
        private_folders = (Path.home(), ROOT, user_state(), user_cache())
        around = any(folder.resolve().is_relative_to(place) for folder in private_folders)
        hidden = any(part.startswith(".") for part in place.parts)
        if around or hidden or any(place.is_relative_to(folder) for folder in SYSTEMS_OWN):
            raise UsageError(
                f"{self.trained.folder}: names {path} as its recordings, which may hold what its"
                f" code must not read: name them yourself, --data {path}"
            )


def blamed_on_cage(problem: BaseException) -> str:
    """Return the words on a problem in a cage: with the remedy where it was the cage."""
    cause: BaseException | None = problem
    while cause is not None:
        if isinstance(cause, PermissionError):
            return f"{problem}{REMEDY}"
        cause = cause.__cause__ or cause.__context__
    return str(problem)


def prepared_by(app: KeptApp) -> Path:
    """Return where windows are prepared for this app's code, which no other's training reads."""
    return user_cache() / "prepared-by-code" / app.digest[:16]


def slots_in_cage(
    app: KeptApp, read: Sequence[Path], write: Sequence[Path]
) -> Mapping[str, Sequence[Path]]:
    """Return what code of a run reads besides our packages, and what it writes."""
    packages = [Path(os.environ.get("KERAS_HOME") or "~/.keras").expanduser()]
    if app.environment:
        packages.append(local_environments() / app.environment)
    return {"recordings": [*packages, *read], "made": write}


def environment_in_cage(beside: Path, app: KeptApp) -> dict[str, str]:
    """Return the environment of a caged process, whose own two folders are made `beside` a path."""
    temporary = beside.with_name(f"{beside.name}.tmp")
    temporary.mkdir(mode=0o700)
    packages = beside.with_name(f"{beside.name}.code")
    packages.mkdir()
    for name in profile(PROFILE)["packages"]:
        # Python lists the folder that it searches, and that around them is not to be read.
        (packages / name).symlink_to(ROOT / name)
    return {
        **_passed_variables(os.environ),
        **digests_variable((app.digest,)),
        PREPARED_VARIABLE: str(prepared_by(app)),
        "PYTHONPATH": str(packages),
        "PYTHONSAFEPATH": "1",
        "TMPDIR": str(temporary),
        # Without semaphores it would warn at each import.
        "JOBLIB_MULTIPROCESSING": "0",
    }


def _passed_variables(environment: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in environment.items()
        if name in PASSED_VARIABLES or name.startswith(PASSED_FAMILIES)
    }


def _sets(recordings: Path) -> Iterator[Path]:
    """Yield the files and formats that a file of several sets names."""
    if recordings.suffix not in (".yaml", ".yml") or not recordings.is_file():
        return
    from core.data.described.known_formats import document

    sets = document(recordings)[0].get("sets")
    for entry in sets.values() if isinstance(sets, dict) else ():
        for named in (entry.get("data"), entry.get("format")) if isinstance(entry, dict) else ():
            path = recordings.parent / Path(str(named)).expanduser()
            if path.exists():
                yield path
