"""Does a gRPC server answer? Asked in the first bytes of HTTP/2, so that neither TensorFlow nor grpcio is needed."""

import socket
import time

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS = 4
EMPTY_SETTINGS_FRAME = bytes([0, 0, 0, SETTINGS, 0, 0, 0, 0, 0])
HEADER_BYTES = 9
ACKNOWLEDGED = 1


def answers(host: str, port: int, timeout_seconds: float) -> bool:
    """Whether the server sends its SETTINGS frame (RFC 9113, section 3.4) within the time given, connecting included.

    A port that merely listens does not count: a stopped process still completes TCP handshakes. Never raises OSError.
    """
    deadline = time.monotonic() + timeout_seconds
    try:
        with socket.create_connection((host, port), timeout_seconds) as connection:
            connection.settimeout(max(0.001, deadline - time.monotonic()))
            connection.sendall(PREFACE + EMPTY_SETTINGS_FRAME)
            header = b""
            while len(header) < HEADER_BYTES:
                connection.settimeout(max(0.001, deadline - time.monotonic()))
                received = connection.recv(HEADER_BYTES - len(header))
                if not received:
                    return False
                header += received
    except OSError:
        return False
    kind, flags, stream = header[3], header[4], int.from_bytes(header[5:9], "big")
    return kind == SETTINGS and not flags & ACKNOWLEDGED and stream == 0
