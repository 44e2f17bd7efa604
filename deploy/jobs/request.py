"""The request for a job, and the archives of its app and of its run.

The operator's machine makes the request, the coordinator's node reads it. The digest of an app's
files travels in it, beside their archive: what is unpacked has to give it again. Archives are
unpacked whole or not at all.
"""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from cluster.apps.files import MOST_BYTES, MOST_FILES, files_of_app
from core.ground.children import finished
from core.ground.errors import ClusterError, UsageError, reason_of
from core.ground.files import (
    LARGEST_OF_RUN,
    NO_LINK,
    Record,
    parsed_json,
    read_object,
    record_of,
)
from core.ground.parcel import ParcelKind, unpack_folder
from deploy.common.project import environment_for_any_folder, module_command

if TYPE_CHECKING:
    from cluster.programs.program import ProgramRequest
    from core.inventory import Inventory
    from core.inventory.training import TrainJob

SCHEMA = 1
_PROGRAM = "wish"
"""The key of `JobRequest.program` in the file: the releases that a rollback leads to read it so."""
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


def to_bytes(record: Any) -> bytes:
    """Return the content of a file of a job; `read_record` reads it."""
    content = {"schema": SCHEMA, **asdict(record)}
    if isinstance(record, JobRequest):
        content[_PROGRAM] = content.pop("program")
    return json.dumps(content, indent=2).encode() + b"\n"


def read_record(path: Path, kind: type[Record], what: str) -> Record:
    """Read what `to_bytes` wrote: texts, numbers, lists of such, texts by name.

    Raises UsageError, which names the file and `what` writes it, for anything else.
    """
    try:
        content = read_object(path, LARGEST_OF_RUN, SCHEMA)
        del content["schema"]
        if kind is JobRequest:
            content["program"] = content.pop(_PROGRAM, None)
        return record_of(kind, content)
    except OSError as error:
        raise ClusterError(
            f"{path}: cannot be read: {reason_of(error)}: look at its owner and its disk"
        ) from error
    except ValueError as error:
        raise UsageError(
            f"{path}: expected {what} writes, got {error}; `fab deploy start --no-jobs` brings the"
            " node to the version of `fab` that wrote it"
        ) from error


@dataclass(frozen=True)
class JobRequest:
    """One job for the coordinator's node; the sender has validated the inventory.

    `overrides` are `key=value` as for --set, `flags` further flags of `python -m cluster`. `roles`
    has the metrics address (`host:port`) of each role by its name (`ps:0`); it is empty for a job
    that needs none. `inventory` is the operator's own name of the file, for messages. With `after`,
    the id of another job, this one starts once that is done. `app` is the digest of the app whose
    archive lies beside the request; empty without one. `program` is a `ProgramRequest` as text, of
    the job `run`; its file is in the archive beside the request. The processes of a program on
    other nodes show the `token`. `apps` are digests of the operator's own apps: the code of a run
    that the job resumes or evaluates runs on the node only if it is one of them.
    """

    job: str
    inventory: str
    overrides: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    roles: Mapping[str, str] = field(default_factory=dict)
    after: str = ""
    app: str = ""
    program: str = ""
    token: str = ""
    apps: tuple[str, ...] = ()


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
        program=shipped,
    )


def first_id(job: str, now: datetime) -> str:
    """Return the id of the first job of a minute (UTC): `20261121T2230-train`; others have -2."""
    return f"{now:%Y%m%dT%H%M}-{job}"


def _on_node(run: str, runs: str) -> str:
    return f"{runs}/{Path(run).name}"


RUN = ParcelKind(
    "the run cannot be kept here", "`fab job attach` fetches it again", 60_000, 16 << 30
)
"""A run of a month has some thousand files: checkpoints, a log, epochs. A sweep has some twenty a
run."""
APP = ParcelKind(
    "the app cannot be unpacked",
    "submit the job again",
    MOST_FILES,
    MOST_BYTES + MOST_FILES * (8 << 10) + (1 << 20),
)
"""Headers, long names and padding of each file come on top, and the end."""
PROGRAM = ParcelKind("the program cannot be unpacked", "run it again", APP.most_entries, 1 << 30)
MOST_PACKED_BYTES = 4 << 30


def unpack_app(archive: Path, digest: str, into: Path) -> None:
    """Unpack the files of the app as the folder `into`, and remove the archive.

    Raises ClusterError, and leaves no folder, where the archive is damaged or the files are not
    those of `digest`.
    """

    def checked(unpacked: Path) -> None:
        try:
            actual = files_of_app(unpacked).digest
        except UsageError as problem:
            raise ClusterError(f"{into}: {APP.refusal}: {problem}; {APP.remedy}") from None
        if actual != digest:
            raise ClusterError(
                f"{into}: {APP.refusal}: expected files with the digest {digest:.16}, got"
                f" {actual:.16}; {APP.remedy}"
            )

    unpack_file(archive, into, APP, checked)
    archive.unlink()


def unpack_file(
    archive: Path,
    target: Path,
    kind: ParcelKind,
    checked: Callable[[Path], None] = lambda unpacked: None,
) -> Path:
    """Unpack a file of a job as `unpack_folder` does; a link in its place is not followed."""
    try:
        descriptor = os.open(archive, NO_LINK)
    except OSError as problem:
        reason = reason_of(problem)
        raise ClusterError(f"{archive}: {kind.refusal}: {reason}; {kind.remedy}") from None
    with os.fdopen(descriptor, "rb") as stream:
        return unpack_folder(stream, target.name, target.parent, kind, checked)


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
