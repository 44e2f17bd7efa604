"""What is to be changed on a node, and the steps that change it. Pure data."""

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from deploy.cluster.services import ClusterStatus


@dataclass(frozen=True)
class Shell:
    """A script for `sh`, run as root. `hint` is what a person could do when it fails."""

    what: str
    script: str
    deadline_seconds: float = 60.0
    hint: str = ""
    stdin: Path | None = None
    """A file that the script reads; the script then comes as an argument."""


@dataclass(frozen=True)
class Upload:
    """A file written whole; `owner` may be the service account, root otherwise."""

    what: str
    content: bytes | Path | Callable[[], bytes]
    """The content, or a function that makes it when the step's turn has come."""
    path: str
    mode: int = 0o644
    owner: str = "root"
    deadline_seconds: float = 60.0


@dataclass(frozen=True)
class Reconnect:
    """A new SSH connection: whether the way in is still open."""

    what: str
    deadline_seconds: float = 20.0


@dataclass(frozen=True)
class Learn:
    """A script that root runs, and what receives its output; that may raise ClusterError."""

    what: str
    script: str
    receive: Callable[[str], None]
    deadline_seconds: float = 30.0


@dataclass(frozen=True)
class PublishedFile:
    """A file of ours that is to lie in a published folder."""

    name: str
    path: Path
    sha256: str
    size_bytes: int


@dataclass(frozen=True)
class Publish:
    """A folder for all nodes: what it lacks is sent, and all of it is checked there.

    Then it is complete.
    """

    what: str
    folder: str
    files: tuple[PublishedFile, ...]
    user: str | None
    """The account that may write there; None is root."""
    deadline_seconds: float = 1800.0

    @property
    def size_bytes(self) -> int:
        """The size of all files."""
        return sum(file.size_bytes for file in self.files)


class DeploymentDisplay:
    """What a person sees of a deployment while it runs: nothing here.

    Any thread may call every method.
    """

    def line(self, node: str, line: str) -> None:
        """Something was done on `node`, or (without a node) is being done."""

    def stand_still(self) -> None:
        """Move nothing any more: a person is asked. What comes after it is lines."""

    def roles(self, status: ClusterStatus) -> None:
        """The roles as they are now, while they start."""

    def warning(self, line: str) -> None:
        """A line to show once the deployment has ended."""


SILENT = DeploymentDisplay()


@dataclass(frozen=True)
class Call:
    """Something that this process does for a node, such as asking a service manager.

    It raises ClusterError.
    """

    what: str
    action: Callable[[DeploymentDisplay], None]
    deadline_seconds: float = 60.0


Step = Shell | Upload | Learn | Reconnect | Publish | Call


@dataclass(frozen=True)
class Change:
    """One thing that is not as the inventory wants it.

    `diff` shows the texts of a file, where there are any.
    """

    kind: str
    subject: str
    action: str
    detail: str
    steps: tuple[Step, ...]
    diff: str = ""
    runs_jobs: bool = False
    """Whether a start that makes this change runs the inventory's jobs after it."""

    def to_json(self) -> dict[str, Any]:
        """Plain values for `--json`, without the steps."""
        return {
            "kind": self.kind,
            "subject": self.subject,
            "action": self.action,
            "detail": self.detail,
        } | ({"diff": self.diff} if self.diff else {})


class Resource(Protocol):
    """One thing that the inventory wants of a node."""

    def changes(self, facts: Any) -> tuple[Change, ...]:
        """Return what to change; empty where it is so already.

        `facts` are those of the cluster's kind (`Desired.ask`).
        """


def text_diff(path: str, before: bytes | None, after: bytes) -> str:
    """A unified diff of two texts, empty where one is no text."""
    try:
        if before is None:
            old = []
        else:
            old = before.decode().splitlines()
        new = after.decode().splitlines()
    except UnicodeDecodeError:
        return ""
    return "\n".join(
        difflib.unified_diff(
            old, new, f"{path} on the node", f"{path} of the inventory", lineterm=""
        )
    )
