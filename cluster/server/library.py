"""TensorFlow's C API, found in the installed wheel and loaded without importing Python's tensorflow.

`import tensorflow` and `tf.distribute.Server` idle at about 225 MB of anonymous memory, the same C++ server started
through this API at about 84 MB (x86-64, TF 2.21), and it is up in half the time.
"""

import ctypes
import importlib.util
import platform
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cluster.server.failures import TooLittleMemoryError, WheelMissingError

FRAMEWORK = "libtensorflow_framework.so.2"
LIBRARY = "libtensorflow_cc.so.2"
MACHINES = ("x86_64", "aarch64")
PYTHONS = ((3, 11), (3, 13))
OUT_OF_MEMORY = ("cannot allocate memory", "failed to map segment", "cannot create shared object descriptor")


def find_tensorflow() -> Path:
    """The folder of the installed tensorflow package. Raises WheelMissingError naming what stands in the way."""
    found = importlib.util.find_spec("tensorflow")
    if found is None or found.origin is None:
        raise missing()
    folder = Path(found.origin).parent
    for name in (FRAMEWORK, LIBRARY):
        if not (folder / name).is_file():
            raise WheelMissingError(
                f"{folder} has no {name}, which the TensorFlow 2.21 wheels contain: reinstall it (make .venv), "
                "or start the role with --server stock"
            )
    return folder


def missing() -> WheelMissingError:
    """The error for a Python without TensorFlow, with the remedy for this machine."""
    return WheelMissingError(f"TensorFlow is not installed for {sys.executable}: {_remedy()}")


def _remedy() -> str:
    version = sys.version_info[:2]
    if sys.maxsize < 2**32:
        return "this Python is 32-bit and TensorFlow has no 32-bit wheels; install a 64-bit operating system"
    if platform.machine() not in MACHINES:
        return f"TensorFlow has wheels for {' and '.join(MACHINES)}, this machine is {platform.machine()}"
    if not PYTHONS[0] <= version <= PYTHONS[1]:
        return f"its wheels exist for Python 3.11 to 3.13, this is {version[0]}.{version[1]}; install one of those"
    return "run `make .venv`"


class Library:
    """The loaded C API. Loading takes 0.25 s on a PC and a few seconds on a Pi, and holds the interpreter lock."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        # Global, because libtensorflow_cc looks its framework symbols up in what is already loaded.
        self._framework = _load(folder / FRAMEWORK)
        self._library = _load(folder / LIBRARY)

    def function(self, name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
        """The C function `name` with its ctypes result and argument types. Raises WheelMissingError without it."""
        for library in (self._library, self._framework):
            if hasattr(library, name):
                function = library[name]
                function.restype, function.argtypes = result, list(arguments)
                return function
        raise WheelMissingError(f"{self.folder} has no C function {name}: expected TensorFlow 2.21 (make .venv)")


def _load(path: Path) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        if any(phrase in str(error).lower() for phrase in OUT_OF_MEMORY):
            raise TooLittleMemoryError(f"no memory left to load {path.name}: {error}") from error
        raise WheelMissingError(f"{path} cannot be loaded: {error}; reinstall TensorFlow (make .venv)") from error
