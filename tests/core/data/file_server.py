"""A server of one file here, which breaks connections when it is told to."""

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from core.data.fetch.download import PublishedSet, bring
from core.data.recordings import silent

CONTENT = bytes(range(256)) * 20_000
HASH = hashlib.sha256(CONTENT).hexdigest()


@dataclass
class Server:
    """What it answers, and what it was asked."""

    url: str = ""
    content: bytes = CONTENT
    ranges: bool = True
    length: bool = True
    breaks_after: list[int] = field(default_factory=list)
    """Bytes of each answer after which the connection is cut, the first ones first."""
    answers: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    """Answers without a body that come before all others."""
    asked: list[dict[str, str]] = field(default_factory=list)

    def answer(self, asked: dict[str, str]) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body for a request with these headers."""
        self.asked.append(asked)
        if self.answers:
            status, headers = self.answers.pop(0)
            return status, {"Content-Length": "0", **headers}, b""
        begin = 0
        if self.ranges and "Range" in asked:
            begin = int(asked["Range"].removeprefix("bytes=").rstrip("-"))
        size = len(self.content)
        headers = {}
        if self.length:
            headers["Content-Length"] = str(size - begin)
        if begin:
            headers["Content-Range"] = f"bytes {begin}-{size - 1}/{size}"
        end = begin + self.breaks_after.pop(0) if self.breaks_after else size
        return 206 if begin else 200, headers, self.content[begin:end]

    def wanted(self, **changes: Any) -> PublishedSet:
        """The set that it has."""
        asked = {"sha256": HASH, "most_bytes": 2 * len(CONTENT), **changes}
        return PublishedSet("mine", self.url, "set.zip", **asked)

    def bring(self, path: Path, **changes: Any) -> list[float]:
        """Fetch it: the pauses between the tries."""
        pauses: list[float] = []
        bring(self.wanted(**changes), path, silent, pauses.append)
        return pauses


@contextmanager
def serving(server: Server) -> Iterator[None]:
    """Answer at `server.url`; afterwards nobody does."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

        def do_GET(self) -> None:
            status, headers, body = server.answer(dict(self.headers))
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            with suppress(ConnectionError):  # where the client has seen enough
                self.wfile.write(body)

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        server.url = f"http://127.0.0.1:{http.server_address[1]}/set.zip"
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield
        finally:
            http.shutdown()
            thread.join()
