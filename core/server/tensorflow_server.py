"""The TensorFlow server of a role: definition, lean server through the C API, fallback.

`import tensorflow` and `tf.distribute.Server` idle at about 256 MB of anonymous memory. The same
C++ server, started through the C API of the installed wheel, idles at about 59 MB (x86-64, TF 2.21)
and is up in half the time. The ServerDef is encoded here: three small messages do not justify the
megabytes that `google.protobuf` and its generated modules would cost every role process.
"""

import ctypes
import os
import platform
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from core.ground.errors import ClusterError, ExitCode
from core.server.process import TooLittleMemoryError
from kernels.place import path

PROTOCOL = "grpc"
FRAMEWORK = "libtensorflow_framework.so.2"
LIBRARY = "libtensorflow_cc.so.2"
MACHINES = ("x86_64", "aarch64")
PYTHONS = ((3, 11), (3, 13))
OUT_OF_MEMORY = (
    "cannot allocate memory",
    "failed to map segment",
    "cannot create shared object descriptor",
)


class WheelMissingError(ClusterError):
    """TensorFlow is not installed, or its libraries cannot be loaded here."""

    exit_code = ExitCode.WHEEL_MISSING


@dataclass(frozen=True)
class ServerDefinition:
    """A server that knows itself alone; the coordinator's definition later names the others.

    `task` may have gaps below it. `address` is `host:port`: TensorFlow takes the port from it and
    binds every interface. Thread counts go into the default session configuration. A server needs
    at least workers + 1 inter-op threads: with fewer, calls that wait for each other deadlock
    silently.
    """

    job: str
    task: int
    address: str
    intra_op_threads: int
    inter_op_threads: int

    def encode(self) -> bytes:
        """The serialized tensorflow.ServerDef.

        Field numbers are those of
        tensorflow/core/protobuf/{cluster,tensorflow_server,config}.proto; a test parses the bytes
        with TensorFlow's own classes.
        """
        task = _integer(1, self.task) + _bytes(2, self.address.encode())
        job = _bytes(1, self.job.encode()) + _bytes(2, task)
        configuration = _integer(2, self.intra_op_threads) + _integer(5, self.inter_op_threads)
        return (
            _bytes(1, _bytes(1, job))
            + _bytes(2, self.job.encode())
            + _integer(3, self.task)
            + _bytes(4, configuration)
            + _bytes(5, PROTOCOL.encode())
        )


def _integer(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _bytes(field: int, payload: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(payload)) + payload


def _varint(value: int) -> bytes:
    if value < 0:
        raise ValueError(f"expected a value of at least 0, got {value}")
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def find_tensorflow() -> Path:
    """The folder of the installed tensorflow package.

    Raises WheelMissingError that names the obstacle.
    """
    spec = find_spec("tensorflow")
    if spec is None or spec.origin is None:
        raise missing()
    folder = Path(spec.origin).parent
    for name in (FRAMEWORK, LIBRARY):
        if not (folder / name).is_file():
            raise WheelMissingError(
                f"{folder} has no {name}, which the TensorFlow 2.21 wheels contain: reinstall it"
                " (make .venv), or start the role with --server stock"
            )
    return folder


def missing() -> WheelMissingError:
    """The error for a Python without TensorFlow, with the remedy for this machine."""
    return WheelMissingError(f"TensorFlow is not installed for {sys.executable}: {_remedy()}")


def _remedy() -> str:
    version = sys.version_info[:2]
    if sys.maxsize < 2**32:
        return (
            "this Python is 32-bit and TensorFlow has no 32-bit wheels; install a 64-bit operating"
            " system"
        )
    if platform.machine() not in MACHINES:
        return (
            f"TensorFlow has wheels for {' and '.join(MACHINES)}, this machine is"
            f" {platform.machine()}"
        )
    if not PYTHONS[0] <= version <= PYTHONS[1]:
        return (
            f"its wheels exist for Python 3.11 to 3.13, this is {version[0]}.{version[1]}; install"
            " one of those"
        )
    return "run `make .venv`"


class Library:
    """The loaded C API.

    Loading takes 0.25 s on a PC and a few seconds on a Pi, and holds the interpreter lock.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        # Global: libtensorflow_cc looks up its framework symbols in the loaded libraries.
        self._framework = _load(folder / FRAMEWORK)
        self._library = _load(folder / LIBRARY)

    def function(self, name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
        """The C function `name` with its ctypes result and argument types.

        Raises WheelMissingError without it.
        """
        for library in (self._library, self._framework):
            if hasattr(library, name):
                function = library[name]
                function.restype = result
                function.argtypes = list(arguments)
                return function
        raise WheelMissingError(
            f"{self.folder} has no C function {name}: expected TensorFlow 2.21 (make .venv)"
        )


def _load(path: Path) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        if any(phrase in str(error).lower() for phrase in OUT_OF_MEMORY):
            raise TooLittleMemoryError(f"no memory left to load {path.name}: {error}") from error
        raise WheelMissingError(
            f"{path} cannot be loaded: {error}; reinstall TensorFlow (make .venv)"
        ) from error


def library_refused(why: str) -> str:
    """Say that our own operations are not there, and what that means."""
    return (
        f"{path()} cannot be loaded: {why.splitlines()[0]}; trainings on this worker take"
        " --set jobs.train.arithmetic=tensorflow"
    )


class LeanServer:
    """TensorFlow's server through its C API.

    It listens from construction on and answers calls from `start` on.

    Between the two it accepts connections and serves none: put up the port guard then. TensorFlow
    servers cannot be stopped ("Clean shutdown is not currently implemented", grpc_server_lib.cc):
    they end with their process. Raises ClusterError with TensorFlow's own words when the server
    cannot be created or started.
    """

    def __init__(self, definition: ServerDefinition) -> None:
        library = Library(find_tensorflow())
        pointer = ctypes.c_void_p
        self._code = library.function("TF_GetCode", ctypes.c_int, pointer)
        self._message = library.function("TF_Message", ctypes.c_char_p, pointer)
        self._start = library.function("TF_ServerStart", None, pointer, pointer)
        new_server = library.function(
            "TF_NewServer", pointer, ctypes.c_char_p, ctypes.c_size_t, pointer
        )
        self._status = library.function("TF_NewStatus", pointer)()
        self.refused: str | None = None
        """Why there are no operations of `kernels`; None where there are."""
        load = library.function("TF_LoadLibrary", pointer, ctypes.c_char_p, pointer)
        # Before the server: it copies the list of operations.
        load(str(path()).encode(), self._status)
        if self._code(self._status):
            self.refused = library_refused(self._message(self._status).decode(errors="replace"))
        encoded = definition.encode()
        self._server = new_server(encoded, len(encoded), self._status)
        self._check(f"no TensorFlow server on {definition.address}")

    def start(self) -> None:
        """Begin to answer calls, on threads of TensorFlow's own; returns at once."""
        self._start(self._server, self._status)
        self._check("the TensorFlow server did not start")

    def _check(self, what: str) -> None:
        if self._code(self._status):
            raise ClusterError(f"{what}: {self._message(self._status).decode(errors='replace')}")


class StockServer:
    """The fallback, `tf.distribute.Server`, for wheels whose C API `LeanServer` does not fit.

    It behaves like `LeanServer`, and takes 256 MB instead of 59 MB of anonymous memory, because it
    imports Python's TensorFlow. Raises ClusterError with TensorFlow's own words.
    """

    def __init__(self, definition: ServerDefinition) -> None:
        if find_spec("tensorflow") is None:
            raise missing()
        # A caged role writes no file, as Python does to try a folder, and reads none at home.
        tempfile.tempdir = "/tmp"
        os.environ["KERAS_HOME"] = os.devnull
        import tensorflow as tf

        self._errors = tf.errors.OpError
        self.refused: str | None = None
        try:
            tf.load_op_library(str(path()))
        except self._errors as error:
            self.refused = library_refused(error.message)
        configuration = tf.compat.v1.ConfigProto(
            intra_op_parallelism_threads=definition.intra_op_threads,
            inter_op_parallelism_threads=definition.inter_op_threads,
        )
        try:
            self._server = tf.distribute.Server(
                tf.train.ClusterSpec({definition.job: {definition.task: definition.address}}),
                job_name=definition.job,
                task_index=definition.task,
                protocol=PROTOCOL,
                config=configuration,
                start=False,
            )
        except self._errors as error:
            raise ClusterError(
                f"no TensorFlow server on {definition.address}: {error.message}"
            ) from error

    def start(self) -> None:
        """Begin to answer calls, on threads of TensorFlow's own; returns at once."""
        try:
            self._server.start()
        except self._errors as error:
            raise ClusterError(f"the TensorFlow server did not start: {error.message}") from error
