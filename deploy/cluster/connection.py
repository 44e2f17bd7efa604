"""One SSH connection to one node: commands and files, with deadlines that hold there too."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import chain
from typing import TYPE_CHECKING, Any

from deploy.cluster.connector import (
    DEADLINE_CODES,
    READ_BYTES,
    BoundedOutput,
    CommandInput,
    Connector,
    FileToWrite,
    Following,
    NodeUnreachableError,
    shortened,
)
from deploy.cluster.login import PinnedKeys, SshAddress, until_not_busy
from deploy.cluster.refusals import Login, ServersWords, Way, cause_of, open_way, why
from deploy.common.command_line import quoted, shell
from deploy.rooted.commands import write_file

if TYPE_CHECKING:
    from fabric import Connection

KEEPALIVE_SECONDS = 10
SILENCE_SECONDS = 120
"""A peer that acknowledges nothing, or takes nothing, for so long is gone: paramiko sends
keepalives and never looks for an answer, and TCP by itself tries on for a quarter of an hour. An
upload may wait half a minute for a slow card."""
GRACE_SECONDS = 5
"""Time between the deadline, when a command is asked to end, and its kill."""

LONGEST_LINE_BYTES = 4000
"""A longer command line goes through the input of a short one."""

_WRITE = (
    'umask 077; partial=$1.partial; cat >"$partial" && if [ "$(wc -c <"$partial")" -ne "$3" ]; then'
    ' echo "expected $3 bytes" >&2; false; fi && chmod "$2" "$partial" && mv -f "$partial"'
    ' "$1" || { rm -f "$partial"; exit 1; }'
)


class NodeConnection(Connector):
    """A node, connected to when it is first used; every command has a channel of its own.

    OpenSSH says where and how (`openssh.py`), so Fabric gets an empty configuration. Its own policy
    for host keys, which accepts any, is replaced by one that refuses what is not pinned (Fabric
    3.2.3 has no setting for it: fabric issue 2071).
    """

    def __init__(
        self, address: SshAddress, pinned: PinnedKeys, jump: "NodeConnection | None" = None
    ) -> None:
        super().__init__(address.name)
        self.address = address
        self._pinned = pinned
        self._jump = jump
        self._connection: Connection | None = None
        self._way: Way | None = None
        self._opening = threading.Lock()

    @property
    def account(self) -> str:
        """Return the account that the connection logged in as."""
        return self.address.user

    def open(self) -> "Connection":
        """The Fabric connection, opened now if it was not. Raises NodeUnreachableError."""
        with self._opening:
            super().open()
            if self._connection is None or not self._connection.is_connected:
                self._end()
                self._connection = self._open()
            return self._connection

    def _run(
        self,
        prefix: list[str],
        command_line: list[str],
        stdin: CommandInput,
        deadline_seconds: float,
        output: BoundedOutput,
        errors: BoundedOutput,
    ) -> int | None:
        limit = ["timeout", "-k", str(GRACE_SECONDS), f"{deadline_seconds:.0f}"]
        channel = self._channel()
        begun = time.monotonic()
        broken = f"{self.name}: the connection broke during `{shortened(quoted(*command_line))}`"
        try:
            channel.settimeout(deadline_seconds + 2 * GRACE_SECONDS)
            line, before = _sent(quoted(*prefix, *limit, *command_line))
            channel.exec_command(line)
            _exchange(channel, before, stdin, output, errors)
            code = int(channel.recv_exit_status())
        except TimeoutError:
            return None
        except (OSError, EOFError) as error:
            raise NodeUnreachableError(f"{broken}: {error}") from error
        finally:
            channel.close()
        if code in DEADLINE_CODES and time.monotonic() - begun >= deadline_seconds:
            return None
        if code == -1:
            raise NodeUnreachableError(broken)
        return code

    @contextmanager
    def _following(self, prefix: list[str], command_line: list[str]) -> Iterator[Following]:
        channel = self._channel()

        def next_bytes() -> bytes | None:
            try:
                return bytes(channel.recv(READ_BYTES))
            except TimeoutError:
                if not channel.active or not channel.transport.is_active():
                    raise NodeUnreachableError(f"{self.name}: the connection broke") from None
                return None

        def end() -> int:
            code = int(channel.recv_exit_status())
            if code == -1:  # none ever came
                raise NodeUnreachableError(f"{self.name}: the connection broke")
            return code

        try:
            channel.settimeout(0.25)
            channel.set_combine_stderr(True)
            line, before = _sent(quoted(*prefix, *shell(_DIES_WITH_ITS_INPUT, *command_line)))
            channel.exec_command(line)
            channel.sendall(before)
            yield next_bytes, end
        finally:
            channel.close()

    def _put(self, file: FileToWrite, **how: Any) -> None:
        # As root never through a link; an account does no harm but its own.
        if how["root"]:
            command_line = write_file(file.path, file.mode, size_bytes=file.size_bytes)
        else:
            command_line = shell(_WRITE, file.path, f"{file.mode:o}", file.size_bytes)
        written = self.run(command_line, stdin=file.blocks, **how)
        if not written.ok:
            raise NodeUnreachableError(
                f"{self.name}: {file.path} cannot be written: {' '.join(written.last_lines)}"
            )

    def close(self) -> None:
        """Disconnect; the next call connects again."""
        with self._opening:
            self._end()

    def _channel(self) -> Any:
        from paramiko import SSHException

        try:
            return self.open().transport.open_session(timeout=self.address.connect_seconds)
        except (SSHException, OSError, EOFError) as error:
            self.close()
            if str(error) == "Timeout opening channel.":
                raise NodeUnreachableError(
                    f"{self.name}: no session within {self.address.connect_seconds:g} s after the"
                    " login: if it needs longer, as with a slow pam_systemd, raise"
                    " `ssh.connect_seconds`"
                ) from error
            raise NodeUnreachableError(f"{self.name}: the connection broke: {error}") from error

    def _open(self) -> "Connection":
        if self._jump is None:
            jump = None
        else:
            jump = self._jump.open()
        connection = until_not_busy(
            lambda: self._log_in(jump)
        )  # all nodes that share a jump host come at once
        connection.transport.set_keepalive(KEEPALIVE_SECONDS)
        # Of a jump host: by default it may take an hour to say that it does not reach the next
        # machine.
        connection.transport.channel_timeout = self.address.connect_seconds
        _end_when_silent(connection.transport.sock)
        return connection

    def _log_in(self, jump: "Connection | None") -> "Connection":
        from fabric import Config, Connection
        from paramiko import RejectPolicy, SSHConfig

        address = self.address
        seconds = address.connect_seconds
        server_message = ServersWords(f"pscluster.ssh.{self.name}")
        way = None
        connection = None
        try:
            way = open_way(address, jump)
            connection = Connection(
                address.key_name or address.host,  # which names the key: `sock` is the connection
                user=address.user,
                port=address.port,
                config=Config(ssh_config=SSHConfig(), lazy=True),
                connect_timeout=seconds,
                connect_kwargs={
                    "sock": way.sock,
                    "auth_strategy": Login(address, server_message),
                    "banner_timeout": seconds,
                    "auth_timeout": seconds,
                },
            )
            if self._pinned.path.exists():
                connection.client.load_host_keys(str(self._pinned.path))
            connection.client.set_missing_host_key_policy(RejectPolicy())
            connection.client.set_log_channel(server_message.channel)
            connection.open()
        except NodeUnreachableError:
            raise
        except Exception as error:
            raise NodeUnreachableError(
                f"{address.where}: {why(error, address, way)}"
            ) from cause_of(error, way)
        finally:
            if connection is None or not connection.is_connected:
                _close(connection, way)
        self._way = way
        return connection

    def _end(self) -> None:
        _close(self._connection, self._way)
        self._connection = None
        self._way = None


def _close(connection: "Connection | None", way: Way | None) -> None:
    if connection is not None:
        connection.close()
    if way is not None:
        way.close()


def _sent(line: str) -> tuple[str, bytes]:
    """Return the words to execute for a command line, and the first bytes of its input.

    Dropbear ends a connection whose command is longer than 9,000 bytes (MAX_STRING_LEN of its
    sysoptions.h), so a long line is read from the input. `head -c` of coreutils takes no byte more
    than it says.
    """
    content = line.encode()
    if len(content) <= LONGEST_LINE_BYTES:
        return line, b""
    return quoted(*shell('exec sh -c "$(head -c "$1")"', len(content))), content


def _end_when_silent(connected: object) -> None:
    option = getattr(socket, "TCP_USER_TIMEOUT", None)  # Linux has it
    # Through a jump host, or a proxy of the person's own SSH configuration, it is no socket of
    # ours.
    if (
        option is not None
        and isinstance(connected, socket.socket)
        and connected.family != socket.AF_UNIX
    ):
        connected.setsockopt(socket.IPPROTO_TCP, option, SILENCE_SECONDS * 1000)


def _exchange(
    channel: Any, before: bytes, stdin: CommandInput, output: BoundedOutput, errors: BoundedOutput
) -> None:
    """Send `before` and all of `stdin` while reading both streams to their ends.

    Any order of the two could block without an end.
    """

    def send() -> None:
        # The command may end without reading it all, and the deadline closes the channel. Paramiko
        # raises EOFError where the connection is lost while it sends.
        with suppress(OSError, EOFError):
            # In pieces: paramiko's sendall copies all that is left for each packet it sends.
            for block in chain([before], stdin):
                for start in range(0, len(block), READ_BYTES):
                    channel.sendall(block[start : start + READ_BYTES])
        with suppress(OSError, EOFError):
            if stdin.problem is None:
                channel.shutdown_write()
            else:
                channel.close()  # sshd ends the input then: who reads files counts their bytes

    def read_errors() -> None:
        with suppress(OSError):
            while received := channel.recv_stderr(READ_BYTES):
                errors.add(received)

    threads = [threading.Thread(target=target, daemon=True) for target in (send, read_errors)]
    for thread in threads:
        thread.start()
    try:
        while received := channel.recv(READ_BYTES):
            output.add(received)
    except BaseException:
        channel.close()
        raise
    finally:
        for thread in threads:
            thread.join()


# sshd leaves a command alone when its channel goes; a `tail -f` without a reader would stay.
_DIES_WITH_ITS_INPUT = (
    'exec 3<&0; { exec "$@"; } </dev/null & child=$!; '
    "{ cat <&3 >/dev/null; kill $child 2>/dev/null; } & watcher=$!; "
    "wait $child; code=$?; kill $watcher 2>/dev/null; exit $code"
)
