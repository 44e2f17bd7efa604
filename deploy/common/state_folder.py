"""Where one cluster's supervisor keeps its files, below `$XDG_STATE_HOME/pscluster/`."""

import os
from pathlib import Path

from core.control.own_state import OTHERWISE, kept_token, make_private, state_of
from core.ground.errors import ClusterError

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

    @classmethod
    def of(cls, inventory: Path, cluster: str) -> "StateFolder":
        """The folder of the cluster named `cluster` in the file `inventory`.

        Raises ClusterError for one that is not this account's alone.
        """
        return cls(state_of(inventory, cluster))

    @property
    def control_socket(self) -> Path:
        """The socket of JSON lines. Raises ClusterError where its path is too long for a socket."""
        return self._socket("supervisor.sock")

    @property
    def notify_socket(self) -> Path:
        """The socket at which role processes report readiness (sd_notify). Raises ClusterError."""
        return self._socket("notify.sock")

    def log(self, name: str) -> Path:
        """Log file of `worker:1` or `supervisor`."""
        return self.logs / f"{name.replace(':', '-')}.log"

    def token(self) -> str:
        """The cluster's token, made where there is none yet (`core.control.own_state`).

        It needs the folder that `create` makes. Raises ClusterError.
        """
        try:
            return kept_token(self.path)
        except OSError as error:
            raise self._refused("token", error) from error

    def create(self) -> None:
        """Make the folders for their owner alone: a writer of the socket can stop the cluster.

        Raises ClusterError where the place cannot be written.
        """
        try:
            make_private(self.logs)
        except OSError as error:
            raise self._refused("state", error) from error

    def remove_sockets(self) -> None:
        """Remove the sockets."""
        for path in (self.control_socket, self.notify_socket):
            path.unlink(missing_ok=True)

    def _socket(self, name: str) -> Path:
        path = self.path / name
        if len(os.fsencode(path)) > LONGEST_SOCKET_PATH_BYTES:
            raise ClusterError(
                f"{path}: longer than the {LONGEST_SOCKET_PATH_BYTES} bytes of a socket's path:"
                " set XDG_STATE_HOME to a folder with a shorter path"
            )
        return path

    def _refused(self, what: str, error: OSError) -> ClusterError:
        return ClusterError(
            f"the cluster's {what} cannot be kept in {self.path}: {error.strerror}; {OTHERWISE}"
        )
