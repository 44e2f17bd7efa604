"""One line and an exit code of its own where TensorFlow's machine code would end the process by a signal.

SIGILL cannot be foreseen from Python: a wheel built for newer processors dies inside the loader, or at the first
kernel that uses the instruction. Loading the library in a child first would tell, at twice the loading time and memory
on every start of every Pi, and only about the loader. A handler in this process tells in both cases and costs nothing.
"""

import ctypes
import platform
import signal
import sys
from collections.abc import Callable

from cluster.errors import ExitCode
from cluster.server.memory import MEBIBYTE, address_space, headroom

LAST_SECONDS = 2
ALMOST_NONE_BYTES = 32 * MEBIBYTE
"""Below this an abort is put down to memory: std::bad_alloc and a thread that cannot be created both end in abort()."""

_HANDLER = ctypes.CFUNCTYPE(None, ctypes.c_int)
_LIBC = ctypes.PyDLL(None)
"""Its calls keep Python's lock: another thread may wait with it for the loader, in which this one has just crashed."""
_installed: list[object] = []  # what C points to has to stay alive as long as the process


def report_crashes(line_of: Callable[[str], str]) -> None:
    """From now on end with an exit code of its own on an illegal instruction or an abort for want of memory.

    ILLEGAL_INSTRUCTION and TOO_LITTLE_MEMORY, each after one line on stderr: `line_of` makes it of its words. Other
    aborts stay what they are.
    """
    illegal = (
        f"illegal instruction: this processor ({processor()}) lacks one that TensorFlow was built for; "
        "use a machine with a newer processor, or a TensorFlow wheel built for this one"
    )

    def on_illegal_instruction(number: int) -> None:
        _end(line_of(illegal), ExitCode.ILLEGAL_INSTRUCTION)

    def on_abort(number: int) -> None:
        # An abort inside malloc holds its lock, and this handler might wait for it: then SIGALRM ends the process.
        signal.alarm(LAST_SECONDS)
        room = min(headroom(), address_space(), key=lambda bound: bound.available_bytes)
        if room.available_bytes < ALMOST_NONE_BYTES:
            words = f"out of memory: {room.bound} leaves {room.available_bytes // MEBIBYTE} MiB"
            _end(line_of(words), ExitCode.TOO_LITTLE_MEMORY)

    _install(signal.SIGILL, on_illegal_instruction)
    _install(signal.SIGABRT, on_abort)


def processor() -> str:
    """The processor's model as Linux names it, else the machine's architecture."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
            for line in lines:
                key, _, value = line.partition(":")
                if key.strip() in ("model name", "Model"):
                    return value.strip()
    except OSError:
        pass
    return platform.machine()


def _install(number: signal.Signals, handle: Callable[[int], None]) -> None:
    # Python's own signal.signal would only set a flag and return to the instruction that cannot be executed.
    libc = ctypes.CDLL(None, use_errno=True)
    libc.signal.restype, libc.signal.argtypes = ctypes.c_void_p, [ctypes.c_int, _HANDLER]
    handler = _HANDLER(handle)
    _installed.append(handler)
    libc.signal(number, handler)


def _end(line: str, code: ExitCode) -> None:
    text = f"{line}\n".encode()
    _LIBC.write(sys.stderr.fileno() if sys.stderr else 2, text, ctypes.c_size_t(len(text)))
    _LIBC._exit(int(code))
