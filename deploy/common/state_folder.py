"""Where one cluster's supervisor keeps its files: `.pscluster/<cluster>/` beside the inventory."""

import contextlib
import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from cluster.control.token import STATE, kept_token
from cluster.errors import ClusterError

LONGEST_SOCKET_PATH_BYTES = 107
"""`sun_path` of `struct sockaddr_un` holds 108 bytes with its closing zero (unix(7))."""


@dataclass(frozen=True)
class StateFolder:
    """The paths of one cluster's state. Nothing exists until `create`."""

    path: Path

    @classmethod
    def beside(cls, inventory: Path, cluster: str) -> "StateFolder":
        """The folder of the cluster named `cluster` in the file `inventory`."""
        return cls(inventory.resolve().parent / STATE / cluster)

    @property
    def logs(self) -> Path:
        """Folder of `<role>-<index>.log` and `supervisor.log`."""
        return self.path / "logs"

    @property
    def lock(self) -> Path:
        """Held with flock by the living supervisor."""
        return self.path / "supervisor.lock"

    @property
    def pid(self) -> Path:
        """The supervisor's pid, for people; programs trust the lock."""
        return self.path / "supervisor.pid"

    @property
    def roles(self) -> Path:
        """`state.json`: the role processes alive, so that the next supervisor can clear what a crash left."""
        return self.path / "state.json"

    @property
    def job_lock(self) -> Path:
        """Held with flock by the command that runs a job in the foreground."""
        return self.path / "job.lock"

    @property
    def run_file(self) -> Path:
        """Where a running training names its run folder, so that a restarted coordinator continues there."""
        return self.path / "job.run"

    @property
    def control_socket(self) -> Path:
        """The supervisor's JSON-lines socket."""
        return self._socket_folder() / "supervisor.sock"

    @property
    def notify_socket(self) -> Path:
        """Where role processes report readiness (the sd_notify protocol)."""
        return self._socket_folder() / "notify.sock"

    def log(self, name: str) -> Path:
        """Log file of `worker:1` or `supervisor`."""
        return self.logs / f"{name.replace(':', '-')}.log"

    def token(self) -> str:
        """The cluster's token, made where there is none yet (`cluster.control.token`). After `create`.

        Raises ClusterError.
        """
        try:
            return kept_token(self.path)
        except OSError as error:
            raise ClusterError(
                f"the cluster's token cannot be kept in {self.path}: {error.strerror}; "
                "put the inventory into a folder you may write to"
            ) from error

    def create(self) -> None:
        """Make the folders, readable by their owner only: who can write to the socket can stop the cluster.

        Raises ClusterError when the place cannot be written or the socket folder belongs to another account.
        """
        try:
            self.logs.mkdir(parents=True, exist_ok=True)
            self.path.chmod(0o700)
            ignore = self.path.parent / ".gitignore"
            if not ignore.exists():
                ignore.write_text("# made by pscluster: state of running clusters\n*\n")
            sockets = self._socket_folder()
            sockets.mkdir(mode=0o700, exist_ok=True)
            owner = sockets.lstat().st_uid
        except OSError as error:
            raise ClusterError(
                f"the cluster's state cannot be kept in {self.path}: {error.strerror}; "
                "put the inventory into a folder you may write to"
            ) from error
        if owner != os.getuid():
            raise ClusterError(
                f"{sockets} belongs to another user: put the inventory into a folder with a shorter path"
            )

    def remove_sockets(self) -> None:
        """Remove the sockets and what was made for them alone."""
        for path in (self.control_socket, self.notify_socket):
            path.unlink(missing_ok=True)
        if self._socket_folder() != self.path:
            with contextlib.suppress(OSError):  # never there, or another process put something in
                self._socket_folder().rmdir()

    def _socket_folder(self) -> Path:
        # A deep checkout must not break the sockets: their path length is a limit of the kernel.
        if len(os.fsencode(self.path / "supervisor.sock")) <= LONGEST_SOCKET_PATH_BYTES:
            return self.path
        key = hashlib.sha256(os.fsencode(self.path)).hexdigest()[:16]
        # Not $TMPDIR: two terminals may disagree about it, and must find the same supervisor.
        return Path("/tmp") / f"pscluster-{os.getuid()}-{key}"
