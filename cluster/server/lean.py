"""A TensorFlow gRPC server through the C API."""

import ctypes

from cluster.errors import ClusterError
from cluster.server.definition import ServerDefinition
from cluster.server.library import Library, find_tensorflow


class LeanServer:
    """Listens from construction on; answers calls from `start` on.

    Between the two it accepts connections and serves none, which is when the port guard is put up. TensorFlow
    servers cannot be stopped ("Clean shutdown is not currently implemented", grpc_server_lib.cc): they end with
    their process. Raises ClusterError with TensorFlow's own words when the server cannot be created or started.
    """

    def __init__(self, definition: ServerDefinition) -> None:
        library = Library(find_tensorflow())
        pointer = ctypes.c_void_p
        self._code = library.function("TF_GetCode", ctypes.c_int, pointer)
        self._message = library.function("TF_Message", ctypes.c_char_p, pointer)
        self._start = library.function("TF_ServerStart", None, pointer, pointer)
        new_server = library.function("TF_NewServer", pointer, ctypes.c_char_p, ctypes.c_size_t, pointer)
        self._status = library.function("TF_NewStatus", pointer)()
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
