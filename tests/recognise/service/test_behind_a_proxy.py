"""A proxy that changes Host and leaves out Upgrade: what works, and the reasons."""

import json
import re
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect
from websockets.typing import Origin

from tests.deploy.playing import eventually
from tests.habits import needs
from tests.ports import free_port
from tests.recognise.exports import export
from tests.recognise.service.running import Service
from tests.recognise.service.streaming import event
from tests.tables import table

PAGE = Path(__file__).parents[3] / "docs" / "service.md"
PUBLIC = "har.example"
EXPORT = export
WORDS = ("--host-name", PUBLIC)


def handshake(running: Service, port: int, url: str, origin: str) -> tuple[int, str]:
    """Return the status that a page's stream gets, and its first event or the refusal."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as plain:
        try:
            with connect(
                url, origin=Origin(origin), sock=plain, compression=None, proxy=None
            ) as connection:
                connection.send(json.dumps({"schema": 1, "token": running.token}))
                return 101, str(event(connection)["event"])
        except InvalidStatus as refused:
            return refused.response.status_code, str(json.loads(refused.response.body)["error"])


@pytest.mark.parametrize(("asked", "status"), table("recognise/service/requests", "pages").items())
def test_a_page_is_ours_by_its_name(running: Service, asked: str, status: int) -> None:
    origin, host = asked.split(" as ")
    found, said = handshake(running, running.port, f"ws://{host}/v1/stream", origin)
    assert found == status, said
    if status == 403:
        assert f"got a page of {origin!r}, asked as {host!r}" in said
    if status != 101:
        assert "start the service with --host-name" in said


def test_a_page_is_told_why_it_got_no_socket(running: Service) -> None:
    """It cannot read the answer to a handshake, so it asks without one, and says its origin."""
    for origin, status, words in (
        ("http://elsewhere.example", 403, "have it pass Host on"),
        (f"https://{PUBLIC}", 426, "have it pass Upgrade and Connection on"),
    ):
        address = f"http://{running.address}/v1/stream"
        answer = httpx.get(address, headers={"x-page-origin": origin})
        assert (answer.status_code, words in answer.json()["error"]) == (status, True)
    script = httpx.get(f"http://{running.address}/page/stream.js").text
    assert '"x-page-origin": location.origin' in script


@contextmanager
def nginx(folder: Path, configuration: str, port: int) -> Iterator[None]:
    """nginx in the foreground, unprivileged, with this inside of its `http`."""
    program = needs.tool("nginx")
    folder.mkdir()
    paths = "".join(
        f"{kind}_temp_path {folder / kind};"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (folder / "nginx.conf").write_text(
        f"daemon off; master_process off; pid {folder / 'pid'}; error_log {folder / 'error.log'};\n"
        f"events {{}}\nhttp {{ access_log off; {paths}\n{configuration}\n}}\n"
    )
    files = ("-e", folder / "error.log", "-p", folder, "-c", folder / "nginx.conf")
    with subprocess.Popen([program, *files], stderr=subprocess.PIPE, text=True) as process:
        try:
            eventually(lambda: process.poll() is not None or _answers(port), "nginx to answer")
            assert process.poll() is None, process.communicate()[1]
            yield
        finally:
            process.terminate()


def _answers(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/v2/health/live").status_code == 200
    except httpx.TransportError:
        return False


def test_the_configuration_of_the_page_works(running: Service, tmp_path: Path) -> None:
    found = re.search(r"```nginx\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found is not None
    port = free_port()
    written = (
        found[1]
        .replace("listen 80;", f"listen 127.0.0.1:{port};")
        .replace("8470", str(running.port))
    )
    with nginx(tmp_path / "nginx", written, port):
        page = httpx.get(f"http://127.0.0.1:{port}/", headers={"Host": f"{PUBLIC}:{port}"})
        assert (page.status_code, "page/phone.js" in page.text) == (200, True)
        stream = f"ws://{PUBLIC}:{port}/v1/stream"
        status, said = handshake(running, port, stream, f"http://{PUBLIC}:{port}")
        assert status == 101, said
        large = httpx.post(
            f"http://127.0.0.1:{port}/v2/models/har/infer",
            content=b" " * (2 << 20),
            headers=running.headers,
        )
        assert large.status_code == 400, "nginx lets as much through as the service takes"
