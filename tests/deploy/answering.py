"""An HTTP server in this process, whose answers are given and whose requests are noted."""

import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class Answering(ThreadingHTTPServer):
    """`asked` has the path and the proof of each request."""

    def __init__(self, *statuses: int, body: bytes = b"") -> None:
        """The last of the statuses is that of all later answers too."""
        super().__init__(("127.0.0.1", 0), _Answer)
        self.statuses = [*statuses]
        self.body = body
        self.asked: list[tuple[str, str | None]] = []


class _Answer(BaseHTTPRequestHandler):
    server: Answering

    def do_GET(self) -> None:
        asked = self.server.asked
        asked.append((self.path, self.headers["Authorization"]))
        self.send_response(self.server.statuses[: len(asked)][-1])
        self.send_header("Content-Length", str(len(self.server.body)))
        self.end_headers()
        self.wfile.write(self.server.body)

    def log_message(self, *_: object) -> None:
        """Nothing."""


@contextmanager
def answering(
    *statuses: int, body: bytes = b"", certificate: Path | None = None
) -> Iterator[Answering]:
    """Until the end of the block, with a certificate by TLS."""
    with Answering(*statuses, body=body) as server:
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
