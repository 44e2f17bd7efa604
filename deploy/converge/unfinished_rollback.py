"""A rollback that has not come to its end, kept on the operator's machine: where to, from where, and who is left."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from cluster.atomic_write import atomic_write
from deploy.release.script import checked


@dataclass(frozen=True)
class Rollback:
    """`release` is where it goes; `was` the release each node had at first; `left` are those not known to be there."""

    release: str
    was: Mapping[str, str] = field(default_factory=dict)
    left: tuple[str, ...] = ()


class UnfinishedRollback:
    """The mark in one file: there from before the first node goes back until every one of them has."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> Rollback | None:
        """None without one, or when nobody can read it."""
        try:
            kept: Any = json.loads(self._path.read_text(encoding="utf-8"))
            was = {str(node): str(release) for node, release in kept["was"].items()}
            return Rollback(checked(str(kept["release"])), was, tuple(str(node) for node in kept["left"]))
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            return None

    def write(self, rollback: Rollback) -> None:
        """Keep it; one with nobody left is done, and forgotten. Raises ClusterError."""
        if not rollback.left:
            self.forget()
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(self._path, json.dumps(asdict(rollback)).encode() + b"\n")

    def forget(self) -> None:
        """The nodes are on their way to another release."""
        self._path.unlink(missing_ok=True)
