"""What is submitted to the coordinator's node: one job, its settings, and the roles it runs on."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from cluster.errors import UsageError

SCHEMA = 1


@dataclass(frozen=True)
class JobRequest:
    """One job as the operator asked for it. Made by `deploy.jobs.node_jobs`, which has validated the inventory.

    `overrides` are `key=value` as for --set, `flags` further flags of `python -m cluster`. `roles` has the metrics
    address (`host:port`) of each role by its name (`ps:0`); it is empty for a job that needs none. `inventory` is the
    operator's own name of the file, for messages. `after` is the id of a job whose good end this one waits for.
    """

    job: str
    inventory: str
    overrides: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    roles: Mapping[str, str] = field(default_factory=dict)
    after: str = ""

    def to_bytes(self) -> bytes:
        """The content of `request.json`."""
        return json.dumps({"schema": SCHEMA, **asdict(self)}, indent=2).encode() + b"\n"

    @classmethod
    def read(cls, path: Path) -> "JobRequest":
        """Read what `to_bytes` wrote. Raises UsageError naming the file where it is something else."""
        try:
            content = json.loads(path.read_bytes())
            if content["schema"] != SCHEMA:
                raise ValueError(f"schema {content['schema']}, this version reads {SCHEMA}")
            return cls(
                str(content["job"]),
                str(content["inventory"]),
                tuple(map(str, content["overrides"])),
                tuple(map(str, content["flags"])),
                {str(name): str(address) for name, address in content["roles"].items()},
                str(content["after"]),
            )
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise UsageError(
                f"{path}: expected the request that `fab job` writes, got {type(error).__name__}: {error}; "
                "`fab deploy start --no-jobs` brings the node to the version of `fab` that wrote it"
            ) from error
