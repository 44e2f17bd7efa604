"""The gate before a program's port, kept by the process that runs it."""

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cluster.inventory.templates import free_ports
from cluster.programs.process import ProgramProcess
from deploy.common.project import environment_for_any_folder
from tests.habits import needs

LISTENS = Path(__file__).with_name("listens.py")
KNOCK = """
import os, socket, sys
"".encode("idna")
os.setuid(65534)
with socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=10) as connection:
    try:
        connection.sendall(b"knock")
        answer = connection.recv(5)
    except ConnectionError:
        answer = b""
print(answer)
"""


def said(process: ProgramProcess, until: bytes) -> bytes:
    heard, end = b"", time.monotonic() + 60
    while until not in heard:
        assert time.monotonic() < end, heard
        heard += process.read() or b""
        time.sleep(0.01)
    return heard


@pytest.fixture(scope="module")
def gated() -> None:
    # In a process of its own: a filter of this one would be that of every program too.
    words = [sys.executable, "-m", "cluster.server.port_guard"]
    asked = subprocess.run(words, env=environment_for_any_folder(), capture_output=True, text=True, check=True)
    if "no gate" in json.loads(asked.stdout)["accounts"]["line"]:
        needs.skip("this kernel allows no gate")


def greet(port: int) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(b"knock")
        return connection.recv(5)


def test_this_account_passes_and_the_program_learns_the_address(
    gated: None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (port,) = free_ports(1)
    process = ProgramProcess([sys.executable, str(LISTENS), str(port)], os.environ, tmp_path, port)
    try:
        said(process, b"listens")
        assert [greet(port), greet(port)] == [b"hello", b"hello"]
        assert said(process, b"got 127.0.0.1 True b'knock'\ngot").count(b"True") >= 1
        while process.poll() is None:
            time.sleep(0.01)
        assert process.poll() == 0
        assert caplog.text == ""
    finally:
        process.close()


def test_another_account_is_closed_unread(gated: None, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    needs.root("becomes another account")
    (port,) = free_ports(1)
    process = ProgramProcess([sys.executable, str(LISTENS), str(port)], os.environ, tmp_path, port)
    try:
        said(process, b"listens")
        alien = subprocess.run([sys.executable, "-c", KNOCK, str(port)], capture_output=True, text=True, timeout=60)
        assert alien.stdout == "b''\n", alien.stderr
        assert greet(port) == b"hello"
        heard = said(process, b"got")
        assert heard.count(b"got") == 1
        assert "65534" in caplog.text
        assert "closed unread" in caplog.text
    finally:
        process.close()


def test_other_ports_of_the_program_are_its_own(gated: None, tmp_path: Path) -> None:
    port, guarded = free_ports(2)
    process = ProgramProcess([sys.executable, str(LISTENS), str(port)], os.environ, tmp_path, guarded)
    try:
        said(process, b"listens")
        assert [greet(port), greet(port)] == [b"hello", b"hello"]
        said(process, b"got 127.0.0.1")
    finally:
        process.close()
