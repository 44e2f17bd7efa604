"""The request for a job, and the archives of its app and of its run.

The operator's machine makes the request, the coordinator's node reads it. The digest of an app's
files travels in it, beside their archive: what is unpacked has to give it again. Archives are
unpacked whole or not at all.
"""

import gzip
import json
import os
import tarfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, BinaryIO

from cluster.apps.files import MOST_BYTES, MOST_FILES, AppFiles, files_of_app
from core.ground.children import finished
from core.ground.errors import ClusterError, UsageError
from core.ground.files import NO_LINK, parsed_json, read_json, whole_folder
from core.ground.parcel import (
    RefusedArchive,
    bounded_tar,
    extract,
    is_plain_file,
    is_plain_name,
    room_on_disk,
    tar_of,
)
from deploy.common.project import environment_for_any_folder, module_command

if TYPE_CHECKING:
    from cluster.programs.program import ProgramRequest
    from core.inventory import Inventory
    from core.inventory.training import TrainJob

SCHEMA = 1
SWEEP = "sweep.yaml"
"""The file of a sweep, in the folder of its job."""
RESUMABLE = ("train", "cv", "run", "sweep")
"""Jobs that another coordinator, or another attempt of a program, continues in the folder of the
run."""


def needs_data(job: str) -> bool:
    """Whether a job reads windows."""
    return job in ("train", "cv", "evaluate")


_PREPARING = "core.data.publish"
"""Runs in a process of its own: no room of the deployment knows how to prepare recordings."""


def prepare_data(train: "TrainJob", seconds: float | None = None) -> dict[str, Any]:
    """Prepare the windows of `jobs.train.data` where they are missing: `key`, `folder`, `files`.

    Raises UsageError for unusable recordings, ClusterError, subprocess.TimeoutExpired.
    """
    data = train.data
    arguments = [] if data.source is None else ["--source", data.source]
    steps, stride = str(data.window_steps), str(data.window_stride)
    arguments += ["--window-steps", steps, "--window-stride", stride]
    arguments += ["--options", json.dumps(data.options()), "--seed", str(train.seed)]
    process = finished(
        module_command(_PREPARING, *arguments),
        environment=environment_for_any_folder(),
        seconds=seconds,
    )
    if process.code != 0:
        kind = UsageError if process.code == UsageError.exit_code else ClusterError
        problem = process.last_error
        raise kind(problem if process.errors.strip() else f"{_PREPARING} ended with {problem}")
    publication: dict[str, Any] = parsed_json(process.output.strip().splitlines()[-1])
    return publication


def needs_roles(inventory: "Inventory", job: str, request: "ProgramRequest | None" = None) -> bool:
    """Return whether a job runs on the cluster's roles.

    A program that runs on the workers' nodes brings its own servers.
    """
    return inventory.needs_roles(job) and (request is None or request.on == "chief")


def roles_of(
    inventory: "Inventory", job: str, request: "ProgramRequest | None" = None
) -> dict[str, str]:
    """Return the metrics address of each role by its name, of none for a job without roles."""
    if not needs_roles(inventory, job, request):
        return {}
    tasks = inventory.tasks()
    return {task.name: task.metrics_address for task in tasks if task.role != "coordinator"}


def unreadable(path: Path, what: str, error: Exception) -> UsageError:
    """Return the error for a file of a job that this version cannot read."""
    return UsageError(
        f"{path}: expected {what} writes, got {type(error).__name__}: {error}; `fab deploy start"
        " --no-jobs` brings the node to the version of `fab` that wrote it"
    )


def content_of(path: Path) -> dict[str, Any]:
    """Return the JSON of a file of a job.

    Raises OSError, and ValueError, KeyError or TypeError for one of another schema.
    """
    content: dict[str, Any] = read_json(path)
    if content["schema"] != SCHEMA:
        raise ValueError(f"schema {content['schema']}, this version reads {SCHEMA}")
    return content


@dataclass(frozen=True)
class JobRequest:
    """One job for the coordinator's node; the sender has validated the inventory.

    `overrides` are `key=value` as for --set, `flags` further flags of `python -m cluster`. `roles`
    has the metrics address (`host:port`) of each role by its name (`ps:0`); it is empty for a job
    that needs none. `inventory` is the operator's own name of the file, for messages. With `after`,
    the id of another job, this one starts once that is done. `app` is the digest of the app whose
    archive lies beside the request; empty without one. `wish` is a `ProgramRequest` as text, of the
    job `run`; its program is a file of the archive beside the request. The processes of a program
    on other nodes show the `token`. `apps` are digests of the operator's own apps: the code of a
    run that the job resumes or evaluates runs on the node only if it is one of them.
    """

    job: str
    inventory: str
    overrides: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    roles: Mapping[str, str] = field(default_factory=dict)
    after: str = ""
    app: str = ""
    wish: str = ""
    token: str = ""
    apps: tuple[str, ...] = ()

    def to_bytes(self) -> bytes:
        """The content of `request.json`."""
        return json.dumps({"schema": SCHEMA, **asdict(self)}, indent=2).encode() + b"\n"

    @classmethod
    def from_file(cls, path: Path) -> "JobRequest":
        """Read what `to_bytes` wrote.

        Raises UsageError, which names the file, for anything else.
        """
        try:
            content = content_of(path)
            return cls(
                str(content["job"]),
                str(content["inventory"]),
                tuple(map(str, content["overrides"])),
                tuple(map(str, content["flags"])),
                {str(name): str(address) for name, address in content["roles"].items()},
                str(content["after"]),
                str(content.get("app", "")),
                str(content.get("wish", "")),
                str(content.get("token", "")),
                tuple(map(str, content.get("apps", ()))),
            )
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise unreadable(path, "the request that `fab job`", error) from error


def request_of(
    inventory: "Inventory",
    job: str,
    overrides: Sequence[str],
    flags: Sequence[str],
    runs: str,
    after: str = "",
    program_request: "ProgramRequest | None" = None,
) -> JobRequest:
    """Return the request for `job`, with runs in the folder `runs`, after the job `after`.

    A run that the operator names becomes the one of that name on the node, a program the file of
    that name there. --json concerns the operator's output only.
    """
    node_overrides = [*overrides, f"runs={json.dumps(runs)}"]
    named = {
        "evaluate": ("jobs.evaluate.run", inventory.jobs.evaluate.run),
        "train": ("jobs.train.from_run", inventory.jobs.train.from_run),
    }
    key, run = named.get(job, ("", None))
    if run is not None:
        node_overrides.append(f"{key}={json.dumps(_on_node(run, runs))}")
    node_flags = [flag for flag in flags if flag != "--json"]
    for index, flag in enumerate(node_flags[:-1]):
        if flag == "--resume" and not node_flags[index + 1].startswith("--"):
            node_flags[index + 1] = _on_node(node_flags[index + 1], runs)
    roles = roles_of(inventory, job, program_request)
    if program_request is None:
        shipped = ""
    else:
        shipped = replace(
            program_request, program=program_request.name, requirements="", bounded=True
        ).to_text()
    return JobRequest(
        job,
        str(inventory.path),
        tuple(node_overrides),
        tuple(node_flags),
        roles,
        after,
        wish=shipped,
    )


def first_id(job: str, now: datetime) -> str:
    """Return the id of the first job of a minute (UTC): `20261121T2230-train`; others have -2."""
    return f"{now:%Y%m%dT%H%M}-{job}"


def _on_node(run: str, runs: str) -> str:
    return f"{runs}/{Path(run).name}"


_BLOCK_BYTES = 1 << 20
MOST_ARCHIVE_BYTES = MOST_BYTES + MOST_FILES * (8 << 10) + _BLOCK_BYTES
"""Headers, long names and padding of each file, and the end."""
_AGAIN = "submit the job again"


def pack_app(app: AppFiles) -> bytes:
    """The archive of the files; the same files give the same bytes.

    Raises UsageError if one has changed meanwhile.
    """
    return tar_of((file.name, app.content(file)) for file in app.files)


def unpack_app(archive: Path, digest: str, into: Path) -> None:
    """Unpack the files of the app into the folder `into`, and remove the archive.

    Takes only plain files with plain names, and no more than an app has. Raises ClusterError, and
    leaves no folder, where the archive is damaged or the files are not those of `digest`.
    """
    try:
        descriptor = os.open(archive, NO_LINK)
        with os.fdopen(descriptor, "rb") as stream, whole_folder(into, 0o750) as partial:
            if os.fstat(descriptor).st_size > MOST_ARCHIVE_BYTES:
                raise RefusedArchive(f"it has more than {MOST_ARCHIVE_BYTES} bytes")
            _unpack_app_files(stream, partial)
            actual_digest = files_of_app(partial).digest
            if actual_digest != digest:
                raise RefusedArchive(
                    f"expected files with the digest {digest:.16}, got {actual_digest:.16}"
                )
        archive.unlink()
    except (
        OSError,
        EOFError,
        ValueError,
        OverflowError,
        tarfile.TarError,
        ClusterError,
    ) as problem:
        raise ClusterError(f"{archive}: the app cannot be unpacked: {problem}: {_AGAIN}") from None


def _unpack_app_files(stream: BinaryIO, partial: Path) -> None:
    room_bytes = MOST_BYTES
    with bounded_tar(stream, MOST_ARCHIVE_BYTES) as entries:
        for count, entry in enumerate(entries, start=1):
            room_bytes -= entry.size
            if count > MOST_FILES or room_bytes < 0:
                raise RefusedArchive(
                    f"an app has at most {MOST_FILES:,} files and {MOST_BYTES >> 20} MiB"
                )
            extract(entries, entry, partial, entry.name)


MOST_PACKED_BYTES = 4 << 30
MOST_ENTRIES = 60_000
"""A run of a month has some thousand: checkpoints, a log, epochs. A sweep has some twenty a run."""
MOST_UNPACKED_BYTES = 16 << 30
MOST_RATIO = 100
"""The ratio of unpacked to packed bytes: logs shrink to a tenth, weights hardly at all."""
FREE_BYTES = 64 << 20
"""Allowed whatever the ratio: a short log that repeats one line is no attack."""

_NO_ARCHIVE = (ValueError, OverflowError, RecursionError)
"""Errors that tarfile raises beside its own for other content."""


def pack_command(run_folder: str, checkpoints: bool) -> list[str]:
    """Return the command that prints the folder compressed, with checkpoints only if asked."""
    path = PurePosixPath(run_folder)
    # Those of the runs of a sweep too, which lie in its folder.
    kinds = ("checkpoints", "runs/*/checkpoints")
    if checkpoints:
        left_out = []
    else:
        left_out = [f"--exclude={path.name}/{kind}" for kind in kinds]
    return ["tar", "-C", str(path.parent), *left_out, "-czf", "-", "--", path.name]


def unpack_folder(
    archive: BinaryIO,
    name: str,
    into: Path,
    checked: Callable[[Path], None] = lambda unpacked: None,
    most_bytes_of: Callable[[Sequence[str]], int] = lambda path_segments: MOST_UNPACKED_BYTES,
) -> Path:
    """Unpack an archive of the folder `name` to `into/name`, replacing what is there; its path.

    `checked` gets the unpacked folder before anything is replaced, and refuses it by raising
    ClusterError. `most_bytes_of` says of the segments of a file's path how long it may be;
    with 0 it is left out.

    Takes only plain files and folders below `name`, and no more of them than a run has: an archive
    from another machine writes nowhere else and fills no disk, which is looked at before each file.
    Raises ClusterError when it is damaged, larger than that, or the place cannot be written.
    """
    target = into / name
    try:
        if PurePosixPath(name).parts != (name,) or name in ("..", "/"):
            raise RefusedArchive(f"{name!r}: expected the plain name of a folder")
        into.mkdir(parents=True, exist_ok=True)
        with whole_folder(target) as partial:
            _unpack_entries(archive, name, partial, most_bytes_of)
            checked(partial)
    except (OSError, EOFError, tarfile.TarError, zlib.error, *_NO_ARCHIVE) as error:
        raise ClusterError(
            f"{target}: the run cannot be kept here: {error}; `fab job attach` fetches it again"
        ) from error
    return target


def _unpack_entries(
    archive: BinaryIO, name: str, partial: Path, most_bytes_of: Callable[[Sequence[str]], int]
) -> None:
    """Unpack every entry. Raises RefusedArchive beyond the size of a run."""
    packed_bytes = archive.seek(0, os.SEEK_END)
    archive.seek(0)
    room = room_on_disk(partial)
    most_bytes = min(MOST_UNPACKED_BYTES, max(FREE_BYTES, MOST_RATIO * packed_bytes))
    with gzip.open(archive) as unpacked, bounded_tar(unpacked, most_bytes) as members:
        for count, member in enumerate(members, start=1):
            if count > MOST_ENTRIES:
                raise RefusedArchive(
                    f"expected at most {MOST_ENTRIES} files in a run, there are more"
                )
            path_segments = PurePosixPath(member.name).parts
            if path_segments[:1] != (name,) or not all(map(is_plain_name, path_segments)):
                continue
            if member.isdir():
                partial.joinpath(*path_segments[1:]).mkdir(parents=True, exist_ok=True)
            elif is_plain_file(member):
                most = most_bytes_of(path_segments[1:])
                if member.size > most > 0:
                    raise RefusedArchive(
                        f"{member.name:.200}: expected at most {most:,} bytes, got {member.size:,}"
                    )
                if not most:
                    continue
                room -= member.size
                if room < 0:
                    raise RefusedArchive("its files would fill this disk: free some of it")
                extract(members, member, partial, "/".join(path_segments[1:]))
