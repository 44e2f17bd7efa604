"""The last line of a role whose machine code crashes: an illegal instruction, or no memory left."""

import contextlib
import ctypes
import platform
import re
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from core.ground.errors import ExitCode
from core.server.memory import MEBIBYTE, address_space, headroom

LAST_SECONDS = 2
ALMOST_NONE_BYTES = 32 * MEBIBYTE
"""Memory below which an abort counts as want of memory: std::bad_alloc and a failed thread
end in abort()."""

_HANDLER = ctypes.CFUNCTYPE(None, ctypes.c_int)
_LIBC = ctypes.PyDLL(None)
"""Its calls keep Python's lock: another thread may wait with it for the loader, in which this one
has just crashed."""
_installed: list[object] = []  # C points to these, so they must live as long as the process


def report_crashes(line_of: Callable[[str], str]) -> None:
    """Report crashes of TensorFlow's machine code from now on.

    Each ends the process with exit code ILLEGAL_INSTRUCTION or TOO_LITTLE_MEMORY.

    Before that comes one line on stderr, which `line_of` makes of its words. Other aborts stay as
    they are.

    Python cannot foresee SIGILL: a wheel built for newer processors dies inside the loader, or at
    the first kernel that uses the instruction. Loading the library in a child first would show it,
    at twice the loading time and memory on every start of every Pi, and only for the loader. A
    handler in this process shows both and costs nothing.
    """
    illegal = (
        f"illegal instruction: this processor ({processor()}) lacks one that TensorFlow was built"
        " for; use a machine with a newer processor, or a TensorFlow wheel built for this one"
    )

    def on_illegal_instruction(number: int) -> None:
        _die(line_of(illegal), ExitCode.ILLEGAL_INSTRUCTION)

    def on_abort(number: int) -> None:
        # An abort inside malloc holds its lock. If this handler waits for it, SIGALRM ends the
        # process.
        signal.alarm(LAST_SECONDS)
        room = min(headroom(), address_space(), key=lambda bound: bound.available_bytes)
        if room.available_bytes < ALMOST_NONE_BYTES:
            reason = f"out of memory: {room.bound} leaves {room.available_bytes // MEBIBYTE} MiB"
            _die(line_of(reason), ExitCode.TOO_LITTLE_MEMORY)

    _install(signal.SIGILL, on_illegal_instruction)
    _install(signal.SIGABRT, on_abort)


def processor() -> str:
    """The processor's model according to Linux, else the machine's architecture."""
    with contextlib.suppress(OSError):
        match = re.search(
            r"^(?:model name|Model)\s*:(.*)$",
            Path("/proc/cpuinfo").read_text(errors="replace"),
            re.M,
        )
        if match:
            return match[1].strip()
    return platform.machine()


def _install(number: signal.Signals, handle: Callable[[int], None]) -> None:
    # signal.signal would only set a flag and return to the illegal instruction.
    libc = ctypes.CDLL(None, use_errno=True)
    libc.signal.restype = ctypes.c_void_p
    libc.signal.argtypes = [ctypes.c_int, _HANDLER]
    handler = _HANDLER(handle)
    _installed.append(handler)
    libc.signal(number, handler)


def _die(line: str, code: ExitCode) -> None:
    text = f"{line}\n".encode()
    _LIBC.write(sys.stderr.fileno() if sys.stderr else 2, text, ctypes.c_size_t(len(text)))
    _LIBC._exit(int(code))
