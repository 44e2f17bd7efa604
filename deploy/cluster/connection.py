"""One SSH connection to one node: commands and files, each with a deadline that holds on the node too."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deploy.cluster.connector import (
    DEADLINE_CODES,
    READ_BYTES,
    Connector,
    Following,
    Kept,
    NodeUnreachableError,
    shortened,
)
from deploy.cluster.login import PinnedKeys, SshAddress, until_not_busy, why_no_ssh
from deploy.common.command_line import quoted, shell
from deploy.rooted.commands import write_file

if TYPE_CHECKING:
    from fabric import Connection

KEEPALIVE_SECONDS = 10
SILENCE_SECONDS = 120
"""A peer that acknowledges nothing, or takes nothing, for so long is gone: paramiko sends keepalives and never looks
for an answer, and TCP by itself tries on for a quarter of an hour. An upload may wait half a minute for a slow card."""
GRACE_SECONDS = 5
"""After its deadline a command is asked to end, and killed so much later."""

_WRITE = (
    'umask 077; partial=$1.partial; cat >"$partial" && chmod "$2" "$partial" && mv -f "$partial" "$1" '
    '|| { rm -f "$partial"; exit 1; }'
)


class NodeConnection(Connector):
    """A node, connected to when it is first used; every command has a channel of its own.

    Fabric reads the user's SSH configuration and opens the connection; its own policy for host keys, which accepts any,
    is replaced by one that refuses what is not pinned (Fabric 3.2.3 has no setting for it: fabric issue 2071).
    """

    def __init__(self, address: SshAddress, pinned: PinnedKeys, jump: "NodeConnection | None" = None) -> None:
        super().__init__(address.name, address.user)
        self.address = address
        self._pinned = pinned
        self._jump = jump
        self._connection: Connection | None = None
        self._opening = threading.Lock()

    def open(self) -> "Connection":
        """The Fabric connection, opened now if it was not. Raises NodeUnreachableError."""
        with self._opening:
            super().open()
            if self._connection is None or not self._connection.is_connected:
                self._connection = self._open()
            return self._connection

    def _run(
        self, prefix: list[str], words: list[str], stdin: bytes, deadline_seconds: float, kept: Kept, said: Kept
    ) -> int | None:
        limit = ["timeout", "-k", str(GRACE_SECONDS), f"{deadline_seconds:.0f}"]
        channel = self._channel()
        begun = time.monotonic()
        broken = f"{self.name}: the connection broke during `{shortened(quoted(*words))}`"
        try:
            channel.settimeout(deadline_seconds + 2 * GRACE_SECONDS)
            channel.exec_command(quoted(*prefix, *limit, *words))
            _exchange(channel, stdin, kept, said)
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
    def _following(self, prefix: list[str], words: list[str]) -> Iterator[Following]:
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
            channel.exec_command(quoted(*prefix, *shell(_DIES_WITH_ITS_INPUT, *words)))
            yield next_bytes, end
        finally:
            channel.close()

    def _put(self, data: bytes, remote: str, mode: int, **how: Any) -> None:
        # As root never through a link; an account does no harm but its own.
        words = write_file(remote, mode) if how["root"] else shell(_WRITE, remote, f"{mode:o}")
        written = self.run(words, stdin=data, **how)
        if not written.ok:
            raise NodeUnreachableError(f"{self.name}: {remote} cannot be written: {' '.join(written.last_lines)}")

    def close(self) -> None:
        """See `Connector`."""
        with self._opening:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _channel(self) -> Any:
        from paramiko import SSHException

        try:
            return self.open().transport.open_session(timeout=self.address.connect_seconds)
        except (SSHException, OSError, EOFError) as error:
            self.close()
            raise NodeUnreachableError(f"{self.name}: the connection broke: {error}") from error

    def _open(self) -> "Connection":
        jump = None if self._jump is None else self._jump.open()
        try:
            connection = until_not_busy(lambda: self._log_in(jump))  # all nodes that share a jump host come at once
        except Exception as error:
            raise NodeUnreachableError(self._why(error)) from error
        connection.transport.set_keepalive(KEEPALIVE_SECONDS)
        # Of a jump host: by default it may take an hour to say that it does not reach the next machine.
        connection.transport.channel_timeout = self.address.connect_seconds
        _end_when_silent(connection.transport.sock)
        return connection

    def _log_in(self, jump: "Connection | None") -> "Connection":
        from fabric import Connection
        from paramiko import RejectPolicy

        address = self.address
        seconds = address.connect_seconds
        keywords: dict[str, Any] = {"banner_timeout": seconds, "auth_timeout": seconds}
        if address.key is not None:
            keywords["key_filename"] = str(Path(address.key).expanduser())
        connection = Connection(
            address.host,
            user=address.user,
            port=address.port,
            gateway=jump,
            connect_timeout=seconds,
            connect_kwargs=keywords,
        )
        if self._pinned.path.exists():
            connection.client.load_host_keys(str(self._pinned.path))
        connection.client.set_missing_host_key_policy(RejectPolicy())
        try:
            connection.open()
        except BaseException:
            connection.close()
            raise
        return connection

    def _why(self, error: Exception) -> str:
        from paramiko import AuthenticationException, BadHostKeyException, PasswordRequiredException, SSHException

        address = self.address
        where = f"{self.name} ({address.user}@{address.host}:{address.port})"
        if isinstance(error, BadHostKeyException):
            return (
                f"{where}: its host key is not the one that is pinned: another machine may answer there, or the system "
                "was installed again; after comparing the fingerprints, `fab deploy trust` pins the new one"
            )
        if isinstance(error, SSHException) and "not found in known_hosts" in str(error):
            return f"{where}: its host key is not known: `fab deploy trust` shows the fingerprints and records them"
        if isinstance(error, PasswordRequiredException):
            return f"{where}: the private key has a passphrase: load it into the agent (ssh-add)"
        if isinstance(error, AuthenticationException):
            return (
                f"{where}: login refused: put your public key into ~{address.user}/.ssh/authorized_keys there "
                f"(`ssh-copy-id {address.user}@{address.host}`), or name the key in `ssh.key`"
            )
        if isinstance(error, FileNotFoundError):
            return f"{where}: no private key in {error.filename}: correct `ssh.key`"
        if no_ssh := why_no_ssh(error, address.connect_seconds):
            return f"{where}: {no_ssh}"
        what = str(error) or type(error).__name__
        return f"{where}: no connection: {what}; is it switched on, and is the address right?"


def _end_when_silent(connected: object) -> None:
    option = getattr(socket, "TCP_USER_TIMEOUT", None)  # Linux has it
    # Through a jump host, or a proxy of the person's own SSH configuration, it is no socket of ours.
    if option is not None and isinstance(connected, socket.socket):
        connected.setsockopt(socket.IPPROTO_TCP, option, SILENCE_SECONDS * 1000)


def _exchange(channel: Any, stdin: bytes, kept: Kept, said: Kept) -> None:
    """Send all of `stdin` while reading both streams to their ends: any order of the two could block without an end."""

    def send() -> None:
        # The command may end without reading it all, and the deadline closes the channel.
        with suppress(OSError):
            # In pieces: paramiko's sendall copies all that is left for each packet it sends.
            for start in range(0, len(stdin), READ_BYTES):
                channel.sendall(stdin[start : start + READ_BYTES])
            channel.shutdown_write()

    def read_errors() -> None:
        with suppress(OSError):
            while received := channel.recv_stderr(READ_BYTES):
                said.add(received)

    threads = [threading.Thread(target=one, daemon=True) for one in (send, read_errors)]
    for thread in threads:
        thread.start()
    try:
        while received := channel.recv(READ_BYTES):
            kept.add(received)
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
