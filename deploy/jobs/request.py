"""The request for a job: the operator's machine makes it, the coordinator's node reads it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.ground.errors import UsageError
from core.ground.files import read_json

if TYPE_CHECKING:
    from cluster.programs.program import ProgramRequest
    from core.inventory import Inventory

SCHEMA = 1
SWEEP = "sweep.yaml"
"""The file of a sweep, in the folder of its job."""
RESUMABLE = ("train", "cv", "run", "sweep")
"""Jobs that another coordinator, or another attempt of a program, continues in the folder of the
run."""


def needs_data(job: str) -> bool:
    """Whether a job reads windows."""
    return job in ("train", "cv", "evaluate")


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
    def read(cls, path: Path) -> "JobRequest":
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
