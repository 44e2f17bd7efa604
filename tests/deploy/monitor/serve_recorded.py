"""`serve_recorded.py FILE`: answers every GET with the file; prints the port of loopback that it
took."""

import sys
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import TCPServer

TEXT = Path(sys.argv[1]).read_bytes()


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
        self.send_header("Content-Length", str(len(TEXT)))
        self.end_headers()
        self.wfile.write(TEXT)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the name is http.server's
        """Nothing."""


with TCPServer(("127.0.0.1", 0), Handler) as server:
    print(server.server_address[1], flush=True)
    server.serve_forever()
