"""The connector of this machine: what `NodeConnection` does over SSH, with child processes."""

import getpass
import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from cluster.atomic_write import atomic_write
from deploy.cluster.connector import (
    KEPT_BYTES,
    KEPT_ERROR_BYTES,
    LINE_BYTES,
    READ_BYTES,
    Kept,
    NodeDeadlineError,
    NodeOutputError,
    NodeUnreachableError,
    NotKeptError,
    Outcome,
    shortened,
)
from deploy.common.command_line import Words, checked, quoted
from deploy.common.parent_death import die_with_parent
from deploy.common.project import environment_for_any_folder

_POLL_SECONDS = 0.25


class Local:
    """A node that is this machine.

    Every command runs as the account that typed `fab`, `root` and `user` included: a local cluster owns nothing that
    is another account's. A command dies with this process.
    """

    def __init__(self, name: str, environment: Mapping[str, str] | None = None) -> None:
        """`environment` adds variables to ours."""
        self._name = name
        self._environment = {**environment_for_any_folder(), **(environment or {})}
        self._children: set[subprocess.Popen[bytes]] = set()
        self._over = False

    @property
    def name(self) -> str:
        """See `Connector`."""
        return self._name

    @property
    def account(self) -> str:
        """See `Connector`."""
        return getpass.getuser()

    def open(self) -> None:
        """See `Connector`."""
        if self._over:
            raise NodeUnreachableError(f"{self.name}: interrupted")

    def run(
        self,
        words: Words,
        *,
        deadline_seconds: float = 30.0,
        stdin: bytes | None = None,
        root: bool = False,
        user: str | None = None,
        kept_bytes: int = KEPT_BYTES,
        into: BinaryIO | None = None,
    ) -> Outcome:
        """See `Connector`."""
        command = quoted(*checked(words))
        kept, said = Kept(kept_bytes, into), Kept(KEPT_ERROR_BYTES)
        begun = time.monotonic()
        overdue = threading.Event()
        with self._started(words, subprocess.PIPE, subprocess.PIPE) as process:

            def end_it() -> None:
                overdue.set()
                _end(process)

            timer = threading.Timer(deadline_seconds, end_it)
            threads = [
                threading.Thread(target=_send, args=(process.stdin, stdin or b""), daemon=True),
                threading.Thread(target=_receive, args=(process.stderr, said), daemon=True),
                timer,
            ]
            for thread in threads:
                thread.start()
            try:
                _receive(process.stdout, kept)
                process.wait()
            except NotKeptError as error:
                raise NodeOutputError(f"{self.name}: what `{shortened(command)}` prints: {error}") from error
            finally:
                _end(process)
                timer.cancel()
                for thread in threads:
                    thread.join()
        if overdue.is_set():
            raise NodeDeadlineError(
                f"{self.name}: not done within {deadline_seconds:.0f} s and ended: `{shortened(command)}`"
            )
        self.open()  # a `hang_up` ended it
        stderr = said.content().decode("utf-8", errors="replace")
        seconds = time.monotonic() - begun
        return Outcome(command, process.returncode, kept.content(), stderr, seconds, kept.left_out_bytes)

    def stream(
        self,
        words: Words,
        on_line: Callable[[str], None],
        *,
        root: bool = False,
        user: str | None = None,
        stop: threading.Event | None = None,
    ) -> int:
        """See `Connector`."""
        rest = b""
        with self._started(words, subprocess.DEVNULL, subprocess.STDOUT) as process:
            try:
                assert process.stdout is not None
                while not (stop is not None and stop.is_set()):
                    if not select.select([process.stdout], [], [], _POLL_SECONDS)[0]:
                        continue
                    received = os.read(process.stdout.fileno(), READ_BYTES)
                    *lines, rest = (rest + received).split(b"\n")
                    if (not received or len(rest) > LINE_BYTES) and rest:
                        lines, rest = [*lines, rest], b""
                    for line in lines:
                        on_line(line.decode("utf-8", errors="replace"))
                    if not received:
                        code = process.wait()
                        self.open()
                        return code
                return -1
            finally:
                _end(process)

    def put(
        self,
        content: Path | bytes,
        remote: str,
        *,
        deadline_seconds: float,
        root: bool = False,
        user: str | None = None,
        mode: int = 0o644,
    ) -> None:
        """See `Connector`. Raises ClusterError where the disk does not take it."""
        atomic_write(Path(remote), content if isinstance(content, bytes) else content.read_bytes())
        Path(remote).chmod(mode)

    def close(self) -> None:
        """See `Connector`."""

    def hang_up(self) -> None:
        """See `Connector`."""
        self._over = True
        for process in tuple(self._children):
            _end(process)

    @contextmanager
    def _started(self, words: Words, stdin: int, stderr: int) -> "Iterator[subprocess.Popen[bytes]]":
        self.open()
        try:
            process = subprocess.Popen(
                checked(words),
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env=self._environment,
                start_new_session=True,
                preexec_fn=die_with_parent(),
            )
        except OSError as error:
            raise NodeUnreachableError(f"{self.name}: {words[0]} cannot be started: {error.strerror}") from error
        self._children.add(process)
        try:
            with process:
                yield process
        finally:
            self._children.discard(process)


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Kill a command that still runs, with everything that it started."""
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def _send(pipe: Any, content: bytes) -> None:
    with suppress(BrokenPipeError), pipe:  # the command ended before it read everything
        pipe.write(content)


def _receive(pipe: Any, kept: Kept) -> None:
    while received := os.read(pipe.fileno(), READ_BYTES):
        kept.add(received)
