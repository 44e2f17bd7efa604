"""What a node's unit waits for: a Prometheus that takes the password and answers queries."""

import subprocess
import sys
from pathlib import Path

import bcrypt
import yaml

from deploy.monitor import ready
from deploy.monitor.files import web_configuration
from tests.deploy.answering import answering
from tests.deploy.monitor.watched import basic
from tests.hang import HANG_SECONDS

PASSWORD = "5" * 64


def test_as_a_program_it_waits_until_prometheus_is_ready(tmp_path: Path) -> None:
    """On a node, without our packages beside it."""
    (tmp_path / "password").write_text(f"{PASSWORD}\n")
    with answering(503, 200) as server:  # at first it replays its log
        address = f"127.0.0.1:{server.server_port}"
        words = [sys.executable, "-E", "-s", "-S", str(Path(ready.__file__)), address]
        subprocess.run([*words, str(tmp_path / "password")], check=True, timeout=HANG_SECONDS)
    proof = basic(tmp_path / "password")["Authorization"]
    assert server.asked == [("/-/ready", proof)] * 2


def test_the_settings_demand_this_password_and_are_the_same_for_it() -> None:
    text = web_configuration(PASSWORD)
    assert text == web_configuration(PASSWORD) != web_configuration("6" * 64)
    ((user, digest),) = yaml.safe_load(text)["basic_auth_users"].items()
    assert user == ready.USER
    assert bcrypt.checkpw(PASSWORD.encode(), digest.encode())
