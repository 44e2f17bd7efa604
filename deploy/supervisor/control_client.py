"""The client of a cluster's supervisor, with errors for a person (see `deploy.supervisor.control_server`)."""

import json
import os
from collections.abc import Generator
from pathlib import Path
from typing import Any

from cluster.control.lines import SupervisorConnection
from cluster.errors import ClusterError
from deploy.cluster.services import ClusterStatus


class NobodyListensError(ClusterError):
    """There is no supervisor at the socket."""


class ControlClient:
    """One request a connection. Every wait has a deadline, because a supervisor may be stopped or stuck."""

    def __init__(
        self,
        path: Path,
        deadline_seconds: float = 10.0,
        owner: int | None = None,
        stop_command: str = "fab deploy stop",
    ) -> None:
        """`owner` is the uid that the supervisor must have, ours by default.

        `stop_command` is what to type against a supervisor that does not answer.
        """
        self._path = path
        self._deadline_seconds = deadline_seconds
        self._stop_command = stop_command
        self._owner = os.getuid() if owner is None else owner

    def status(self) -> ClusterStatus:
        """The cluster as it is now."""
        return ClusterStatus.from_json(self.ask("status"))

    def ask(self, verb: str, **request: Any) -> dict[str, Any]:
        """The reply to one verb.

        Raises NobodyListensError without a supervisor, ClusterError when it refuses or does not answer in time.
        """
        with self._connect() as connection:
            return self._exchange(connection, verb, **request)

    def watch(self) -> Generator[ClusterStatus, None, None]:
        """The status now and after every change; every step waits at most the deadline. Raises as `ask`."""
        with self._connect() as connection:
            yield ClusterStatus.from_json(self._exchange(connection, "watch"))
            while True:
                yield ClusterStatus.from_json(self._read(connection, "watch"))

    def _connect(self) -> SupervisorConnection:
        try:
            connection = SupervisorConnection(self._path, self._deadline_seconds)
        except (FileNotFoundError, ConnectionRefusedError) as error:
            raise NobodyListensError(f"no supervisor listens at {self._path}") from error
        except OSError as error:
            raise ClusterError(
                f"the supervisor at {self._path} cannot be reached: {error}; `{self._stop_command}` ends what is left"
            ) from error
        # A socket may lie in /tmp, where another account may have taken the name first.
        if connection.listener != self._owner:
            with connection:
                raise ClusterError(
                    f"the process that listens at {self._path} belongs to user {connection.listener}, not to user "
                    f"{self._owner}: use the account that started the cluster, or put the inventory into a folder with "
                    "a shorter path"
                )
        return connection

    def _exchange(self, connection: SupervisorConnection, verb: str, **request: Any) -> dict[str, Any]:
        try:
            connection.send(verb, **request)
        except OSError as error:
            raise self._hung_up(error) from error
        return self._read(connection, verb)

    def _read(self, connection: SupervisorConnection, verb: str) -> dict[str, Any]:
        try:
            line = connection.read()
        except TimeoutError as error:
            raise ClusterError(
                f"the supervisor at {self._path} did not answer {verb!r} within {self._deadline_seconds:.0f} s; "
                f"`{self._stop_command}` ends it by force"
            ) from error
        except OSError as error:
            raise self._hung_up(error) from error
        if not line:
            raise ClusterError(
                f"the supervisor at {self._path} ended before it answered {verb!r}; "
                f"`{self._stop_command}` ends what is left"
            )
        try:
            reply = json.loads(line)
        except ValueError:
            reply = None
        if not isinstance(reply, dict):
            raise ClusterError(
                f"the supervisor at {self._path} answered {verb!r} with {line[:80]!r}: expected an object"
            )
        if not reply.get("ok"):
            raise ClusterError(str(reply.get("error", reply)))
        return reply

    def _hung_up(self, error: OSError) -> ClusterError:
        return ClusterError(
            f"the supervisor at {self._path} hung up: {error}; `{self._stop_command}` ends what is left"
        )
