"""One node's connector: run a command, follow one, write a file.

SSH (`connection`) and this machine (`local`).
"""

import getpass
import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from core.ground.errors import ClusterError, reason_of
from core.ground.parcel import Content, blocks_of
from deploy.common.command_line import Words, as_account, checked, quoted


class NotKeptError(Exception):
    """More came than may go into the file, or the file's disk does not take it; says which."""


class BoundedOutput:
    """Two halves of at most `most_bytes`, and between them a line about what was left out."""

    def __init__(self, most_bytes: int, into: BinaryIO | None = None) -> None:
        self._half_bytes = most_bytes // 2
        self._most_bytes = most_bytes
        self._into = into
        self._head = bytearray()
        self._tail = bytearray()
        self._bytes = 0

    @property
    def left_out_bytes(self) -> int:
        """The bytes that came and are not kept."""
        if self._into is not None:
            return 0
        return self._bytes - len(self._head) - min(len(self._tail), self._half_bytes)

    def add(self, piece: bytes) -> None:
        """Take what came. Raises NotKeptError where it goes into a file."""
        self._bytes += len(piece)
        if self._into is not None:
            if self._bytes > self._most_bytes:
                raise NotKeptError(f"expected at most {self._most_bytes} bytes, more came")
            try:
                self._into.write(piece)
            except OSError as problem:
                raise NotKeptError(
                    f"cannot be kept on this machine: {problem.strerror}"
                ) from problem
            return
        room = max(0, self._half_bytes - len(self._head))
        self._head += piece[:room]
        self._tail += piece[room:]
        if len(self._tail) > 2 * self._half_bytes:  # now and then: each cut copies what stays
            del self._tail[: len(self._tail) - self._half_bytes]

    def content(self) -> bytes:
        """Return both halves, with a line between them where something is missing."""
        left_out = self.left_out_bytes
        if self._tail:
            tail = bytes(self._tail[-self._half_bytes :])
        else:
            tail = b""
        return (
            bytes(self._head)
            + (f"\n... {left_out} bytes left out\n".encode() if left_out else b"")
            + tail
        )


class CommandInput:
    """Blocks of a command's input; `problem` is the error that ended them early."""

    def __init__(self, blocks: Iterable[bytes]) -> None:
        self._blocks = blocks
        self.problem: Exception | None = None

    def __iter__(self) -> Iterator[bytes]:
        try:
            yield from self._blocks
        except Exception as problem:  # of a thread that sends; `check` raises it in another one
            self.problem = problem

    def check(self, node: str) -> None:
        """Raises ClusterError where they ended early."""
        if self.problem is not None:
            reason = reason_of(self.problem)
            raise ClusterError(
                f"{node}: what travels there cannot be read: {reason}"
            ) from self.problem


DEADLINE_CODES = frozenset({124, 137})
"""Exit codes of coreutils' `timeout`: 124, or 137 after SIGKILL."""

KEPT_BYTES = 8 << 20
"""Output of a command that is kept, half of it the beginning and half the end: no node may fill
our memory."""
KEPT_ERROR_BYTES = 256 << 10
LINE_BYTES = 1 << 20
"""A longer line of a stream is passed on in pieces."""
READ_BYTES = 256 << 10

_LAST_LINES = 6
_WORDS_IN_A_MESSAGE = 120


class NodeUnreachableError(ClusterError):
    """No connection or no login. The message names the node, the cause and the remedy."""

    printed = b""
    """Output of a command before its connection broke."""


class NodeDeadlineError(ClusterError):
    """A command passed its deadline; it was ended on the node too."""


class NodeOutputError(ClusterError):
    """A command printed more than its limit; it was ended."""


@dataclass(frozen=True)
class CommandResult:
    """A command that ended by itself.

    `stdout` lacks `left_out_bytes` in its middle; a line there counts them.
    """

    command: str
    return_code: int
    stdout: bytes
    stderr: str
    seconds: float
    left_out_bytes: int = 0

    @property
    def ok(self) -> bool:
        """Whether the return code is 0."""
        return self.return_code == 0

    @property
    def text(self) -> str:
        """`stdout` decoded; a byte that is no UTF-8 becomes a replacement character."""
        return self.stdout.decode("utf-8", errors="replace")

    @property
    def last_lines(self) -> tuple[str, ...]:
        """The last lines of stderr, or of stdout where stderr is empty."""
        output = self.stderr.strip() or self.text.strip()
        return tuple(output.splitlines()[-_LAST_LINES:])


@dataclass(frozen=True)
class FileToWrite:
    """A file for the node. Another number of bytes than `size_bytes` is no whole one."""

    blocks: Iterable[bytes]
    size_bytes: int
    path: str
    mode: int


Following = tuple[Callable[[], bytes | None], Callable[[], int]]
"""Bytes that a followed command printed next: None for nothing yet, no bytes at its end; and its
return code then."""


class Connector(ABC):
    """The way to one node.

    Every call has a deadline or a `stop`; calls from several threads are allowed.
    """

    def __init__(self, name: str) -> None:
        """`name` is the node's in the inventory."""
        self.name = name
        self._over = False

    @property
    def account(self) -> str:
        """The account that commands run as, unless `root` or `user` says otherwise."""
        return getpass.getuser()

    def open(self) -> object:
        """Connect now, so that the first command does not wait for it.

        Raises NodeUnreachableError.
        """
        if self._over:
            raise NodeUnreachableError(f"{self.name}: interrupted")
        return None

    def run(
        self,
        command_line: Words,
        *,
        deadline_seconds: float = 30.0,
        stdin: bytes | Iterable[bytes] = b"",
        root: bool = False,
        user: str | None = None,
        kept_bytes: int = KEPT_BYTES,
        into: BinaryIO | None = None,
    ) -> CommandResult:
        """Run a command to its end as the account logged in, as root or as `user`.

        Every return code is a result. The command is ended on the node when `deadline_seconds` are
        over. `stdin` is its input, or blocks of it. Of what it prints `kept_bytes` are kept, half
        of them its beginning and half its end; with `into` it goes there instead, and more than
        `kept_bytes` end the command. Raises NodeUnreachableError, NodeDeadlineError,
        NodeOutputError; ClusterError where blocks cannot be read, which ends the command.
        """
        command_line = checked(command_line)
        command = quoted(*command_line)
        output = BoundedOutput(kept_bytes, into)
        errors = BoundedOutput(KEPT_ERROR_BYTES)
        prefix = as_account([], root=root, user=user)
        if isinstance(stdin, bytes):
            stdin = [stdin]
        blocks = CommandInput(stdin)
        self.open()
        begun = time.monotonic()
        try:
            code = self._run(prefix, command_line, blocks, deadline_seconds, output, errors)
        except NodeUnreachableError as error:
            error.printed = output.content()
            raise
        except NotKeptError as error:
            raise NodeOutputError(
                f"{self.name}: what `{shortened(command)}` prints: {error}"
            ) from error
        finally:
            blocks.check(self.name)  # before what its early end brought about
        if code is None:
            raise NodeDeadlineError(
                f"{self.name}: not done within {deadline_seconds:.0f} s and ended:"
                f" `{shortened(command)}`"
            )
        seconds = time.monotonic() - begun
        stderr = errors.content().decode("utf-8", errors="replace")
        return CommandResult(
            command, code, output.content(), stderr, seconds, output.left_out_bytes
        )

    def stream(
        self,
        command_line: Words,
        on_line: Callable[[str], None],
        *,
        root: bool = False,
        user: str | None = None,
        stop: threading.Event | None = None,
    ) -> int:
        """Pass on each line of a command until it ends or `stop` is set.

        The result is its return code, -1 after `stop`.

        The command ends with the call. Raises NodeUnreachableError.
        """
        rest = b""
        with self._following(as_account([], root=root, user=user), checked(command_line)) as (
            next_bytes,
            end,
        ):
            while not (stop is not None and stop.is_set()):
                received = next_bytes()
                if received is None:
                    continue
                *lines, rest = (rest + received).split(b"\n")
                if rest and (not received or len(rest) > LINE_BYTES):
                    lines = [*lines, rest]
                    rest = b""
                for line in lines:
                    on_line(line.decode("utf-8", errors="replace"))
                if not received:
                    return end()
        return -1

    def put(
        self,
        content: Path | Content,
        remote: str,
        *,
        deadline_seconds: float,
        root: bool = False,
        user: str | None = None,
        mode: int = 0o644,
    ) -> None:
        """Write a file, whole or not at all.

        Raises as `run`, and ClusterError where the node cannot keep it.

        As root only below folders that root alone can change, and never through a link.
        """
        with ExitStack() as resources:
            if isinstance(content, Path):
                content = resources.enter_context(content.open("rb"))
            if isinstance(content, bytes):
                size_bytes = len(content)
            else:
                size_bytes = os.fstat(content.fileno()).st_size
            file = FileToWrite(blocks_of(content), size_bytes, remote, mode)
            self._put(file, deadline_seconds=deadline_seconds, root=root, user=user)

    @abstractmethod
    def close(self) -> None:
        """Disconnect; the next call connects again."""

    def hang_up(self) -> None:
        """Disconnect for good: every call, also one under way, raises NodeUnreachableError."""
        self._over = True
        self.close()

    @abstractmethod
    def _run(
        self,
        prefix: list[str],
        command_line: list[str],
        stdin: CommandInput,
        deadline_seconds: float,
        output: BoundedOutput,
        errors: BoundedOutput,
    ) -> int | None:
        """Run a command, its stdout to `output` and its stderr to `errors`.

        The result is None where the command's deadline ended it.

        `prefix` goes before words that another account runs. Raises NodeUnreachableError,
        NotKeptError.
        """

    @abstractmethod
    def _put(self, file: FileToWrite, **how: Any) -> None:
        """Write a file; `how` as `run` takes it."""

    @abstractmethod
    def _following(
        self, prefix: list[str], command_line: list[str]
    ) -> AbstractContextManager[Following]:
        """A command with both of its streams in one; it ends with the context."""


def shortened(command: str) -> str:
    """A command for a message: its beginning and its end."""
    line = " ".join(command.split())
    if len(line) <= _WORDS_IN_A_MESSAGE:
        return line
    return f"{line[: _WORDS_IN_A_MESSAGE // 2]} ... {line[-_WORDS_IN_A_MESSAGE // 2 :]}"
