"""Where one cluster's supervisor keeps its files: `.pscluster/<cluster>/` beside the inventory."""

import contextlib
import hashlib
import os
from pathlib import Path

from core.control.own_state import check, make
from core.control.token import STATE, kept_token
from core.errors import ClusterError

LONGEST_SOCKET_PATH_BYTES = 107
"""`sun_path` of `struct sockaddr_un` holds 108 bytes with its closing zero (unix(7))."""


class StateFolder:
    """The paths of one cluster's state. Nothing exists until `create`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.logs = path / "logs"  # of `<role>-<index>.log` and `supervisor.log`
        self.lock = path / "supervisor.lock"  # held with flock by the living supervisor
        self.pid = path / "supervisor.pid"  # for people; programs trust the lock
        # The role processes alive, so that the next supervisor can clear what a crash left.
        self.roles = path / "state.json"
        self.job_lock = (
            path / "job.lock"
        )  # held with flock by the command that runs a job in the foreground
        # Where a running training names its run folder, so that a restarted coordinator continues
        # there.
        self.run_file = path / "job.run"
        self._sockets = _socket_folder(path)
        self.control_socket = self._sockets / "supervisor.sock"  # JSON lines
        self.notify_socket = (
            self._sockets / "notify.sock"
        )  # role processes report readiness there (sd_notify)

    @classmethod
    def beside(cls, inventory: Path, cluster: str) -> "StateFolder":
        """The folder of the cluster named `cluster` in the file `inventory`.

        Raises ClusterError for a state that another account could change.
        """
        state = inventory.resolve().parent / STATE
        check(state)
        return cls(state / cluster)

    def log(self, name: str) -> Path:
        """Log file of `worker:1` or `supervisor`."""
        return self.logs / f"{name.replace(':', '-')}.log"

    def token(self) -> str:
        """The cluster's token, made where there is none yet (`core.control.token`).

        It needs the folder that `create` makes. Raises ClusterError.
        """
        try:
            return kept_token(self.path)
        except OSError as error:
            raise self._refused("token", error) from error

    def create(self) -> None:
        """Make the folders for their owner alone: a writer of the socket can stop the cluster.

        Raises ClusterError when the place cannot be written or the socket folder belongs to another
        account.
        """
        try:
            make(self.logs)
            self.path.chmod(0o700)
            self._sockets.mkdir(mode=0o700, exist_ok=True)
            owner = self._sockets.lstat().st_uid
        except OSError as error:
            raise self._refused("state", error) from error
        if owner != os.getuid():
            raise ClusterError(
                f"{self._sockets} belongs to another user: put the inventory into a folder with a"
                " shorter path"
            )

    def remove_sockets(self) -> None:
        """Remove the sockets and what was made for them alone."""
        for path in (self.control_socket, self.notify_socket):
            path.unlink(missing_ok=True)
        if self._sockets != self.path:
            with contextlib.suppress(OSError):  # never there, or another process put something in
                self._sockets.rmdir()

    def _refused(self, what: str, error: OSError) -> ClusterError:
        return ClusterError(
            f"the cluster's {what} cannot be kept in {self.path}: {error.strerror}; put the"
            " inventory into a folder you may write to"
        )


def _socket_folder(path: Path) -> Path:
    # A deep checkout must not break the sockets: their path length is a limit of the kernel.
    if len(os.fsencode(path / "supervisor.sock")) <= LONGEST_SOCKET_PATH_BYTES:
        return path
    key = hashlib.sha256(os.fsencode(path)).hexdigest()[:16]
    # Not $TMPDIR: two terminals may disagree about it, and must find the same supervisor.
    return Path("/tmp") / f"pscluster-{os.getuid()}-{key}"
