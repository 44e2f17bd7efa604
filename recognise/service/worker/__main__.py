"""The process of one model: it opens the model, then answers on each of its channels until killed.

It reads the export first, gives up its rights, and only then lets the runtime parse the model. The
service starts it (`recognise.service.worker.process`).
"""

import os
import resource
import signal
import socket
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np

from core.cage.calls import forbid_by
from core.cage.landlock import enter, keep_capabilities
from core.cage.profiles import profile
from core.exported.description import model_bytes, read_description
from core.exported.runtimes import Model, import_runtime, open_content
from core.ground.accounts import MODELS_ACCOUNT, become, die_with_parent, why_root
from core.ground.errors import UsageError, reason_of
from core.ground.files import parsed_json
from recognise.service.worker.frames import (
    LOGITS,
    LONGEST_TEXT,
    READY,
    REFUSED,
    WINDOWS,
    ChannelEndedError,
    receive,
    send,
)

MOST_FILES = 64
KEPT = profile("model")
"""It is read before root becomes an account that may not read our packages."""


def main(
    folder: str,
    sha256: str,
    memory_bytes: int,
    most_windows: int,
    parent: int,
    channels: Sequence[int],
    files: tuple[int | None, int | None] = (None, None),
) -> None:
    """Answer until the service ends this process, or has ended itself.

    `channels` and `files` are open: a socket for each model, and the files of the export, where
    they are not read below `folder`.
    """
    for number in (signal.SIGINT, signal.SIGTERM):  # the service decides when this process ends
        signal.signal(number, signal.SIG_IGN)
    sockets = [socket.socket(fileno=descriptor) for descriptor in channels]
    export = Path(folder)
    described, model_file = files
    try:
        die_with_parent(parent)
        description = read_description(export, check_model=False, file=described)
        if description.sha256 != sha256:
            raise UsageError(f"{folder}: it changed while it was opened: try again")
        content = model_bytes(export, description, model_file)
        import_runtime(description, export)
        _give_up_rights(memory_bytes)
        models = [open_content(content, description, export) for _ in sockets]
    except Exception as problem:  # the service says it to a person
        _refuse(sockets[0], problem)
        return
    send(sockets[0], READY)
    for channel, model in zip(sockets[1:], models[1:], strict=True):
        threading.Thread(target=_answer, args=(channel, model, most_windows), daemon=True).start()
    _answer(sockets[0], models[0], most_windows)


def _give_up_rights(memory_bytes: int) -> None:
    """Give up all but computing: this process reads its packages, and writes and asks nothing.

    The kernel takes it first where memory is short. Kernels without Landlock forbid calls alone.
    """
    for limit, most in (
        (resource.RLIMIT_DATA, memory_bytes),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NOFILE, MOST_FILES),
    ):
        resource.setrlimit(limit, (most, most))
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    leave_root()
    # The service says what this kernel does not hold: nothing hears this process.
    enforced = enter(KEPT.rights())
    with suppress(OSError):  # where a container's own filter of calls lets none add another
        forbid_by(enforced, KEPT.calls)


def leave_root() -> None:
    """Become the account of models where this is root and can, without capabilities anyway."""
    if os.geteuid() == 0 and why_root(account=MODELS_ACCOUNT) is None:
        become(MODELS_ACCOUNT)
    with suppress(OSError):  # where a container's own filter of calls refuses it
        keep_capabilities()


def _answer(channel: socket.socket, model: Model, most_windows: int) -> None:
    """Answer one request after another. The process ends when the service does."""
    shape = model.description.input.shape
    window = 4 * int(np.prod(shape))
    while True:
        try:
            kind, content = receive(channel, most_windows * window)
            if kind != WINDOWS or len(content) % window:
                raise ChannelEndedError("expected whole windows")
            windows = np.frombuffer(content, np.float32).reshape(-1, *shape)
        except (ChannelEndedError, OSError):
            os._exit(0)
        try:
            logits = model.logits(windows)
        except Exception as problem:
            _refuse(channel, problem)
        else:
            send(channel, LOGITS, logits.astype("<f4", copy=False).tobytes())


def _refuse(channel: socket.socket, problem: Exception) -> None:
    reason = reason_of(problem)
    if not isinstance(problem, UsageError):
        reason = f"{type(problem).__name__}: {reason}"
    with suppress(OSError):
        send(channel, REFUSED, reason.encode(errors="replace")[:LONGEST_TEXT])


if __name__ == "__main__":
    main(**parsed_json(sys.argv[1]))
