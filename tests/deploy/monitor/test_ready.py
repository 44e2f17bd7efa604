"""What a node's unit waits for: a Prometheus that takes the password and answers queries."""

import http.server
import subprocess
import sys
import threading
from pathlib import Path

import bcrypt
import yaml

from deploy.monitor import ready
from deploy.monitor.files import web_configuration
from tests.deploy.monitor.watched import basic
from tests.hang import HANG_SECONDS

PASSWORD = "5" * 64


class Starting(http.server.BaseHTTPRequestHandler):
    """At first it replays its log, then it answers."""

    asked: list[tuple[str, str | None]]

    def do_GET(self) -> None:
        self.asked.append((self.path, self.headers["Authorization"]))
        self.send_response(503 if len(self.asked) == 1 else 200)
        self.end_headers()

    def log_message(self, *words: object) -> None:
        """Say nothing."""


def test_as_a_program_it_waits_until_prometheus_is_ready(tmp_path: Path) -> None:
    """On a node, without our packages beside it."""
    (tmp_path / "password").write_text(f"{PASSWORD}\n")
    Starting.asked = []
    with http.server.HTTPServer(("127.0.0.1", 0), Starting) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"127.0.0.1:{server.server_port}"
        words = [sys.executable, "-E", "-s", "-S", str(Path(ready.__file__)), address]
        subprocess.run([*words, str(tmp_path / "password")], check=True, timeout=HANG_SECONDS)
        server.shutdown()
    proof = basic(tmp_path / "password")["Authorization"]
    assert Starting.asked == [("/-/ready", proof)] * 2


def test_the_settings_demand_this_password_and_are_the_same_for_it() -> None:
    text = web_configuration(PASSWORD)
    assert text == web_configuration(PASSWORD) != web_configuration("6" * 64)
    ((user, digest),) = yaml.safe_load(text)["basic_auth_users"].items()
    assert user == ready.USER
    assert bcrypt.checkpw(PASSWORD.encode(), digest.encode())
