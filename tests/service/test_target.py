"""The files by which a Prometheus finds services: there while one answers, left by a killed one, never in its way."""

import json
import signal
import subprocess
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from deploy.common.project import environment_for_any_folder
from deploy.monitor.files import SERVICE_STATE
from recognise.service import state
from recognise.service.target import announced, content
from tests.service.exports import export
from tests.service.running import command, service, state_of


def targets(folder: Path) -> dict[str, str]:
    """Address by the name of the file."""
    return {path.name: json.loads(path.read_text())[0]["targets"][0] for path in sorted((folder / "targets").iterdir())}


def test_a_service_is_a_target_while_it_answers(tmp_path: Path) -> None:
    export(tmp_path / "export")
    with service(tmp_path, "--model", str(tmp_path / "export")) as running:
        assert targets(running.folder) == {f"har-{running.port}.json": running.address}
        assert (running.folder / "targets").stat().st_mode & 0o777 == 0o700
    assert targets(running.folder) == {}


def test_without_a_token_it_is_none(tmp_path: Path) -> None:
    """Prometheus would read the file of the token, and there is none."""
    export(tmp_path / "export")
    with service(tmp_path, "--model", str(tmp_path / "export"), "--no-token") as running:
        assert not (running.folder / "targets").exists()


def test_the_next_one_removes_what_a_killed_one_left_and_nothing_else(tmp_path: Path) -> None:
    export(tmp_path / "export")
    with subprocess.Popen(
        command(state_of(tmp_path), "--model", str(tmp_path / "export")), env=environment_for_any_folder(),
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGKILL)
    (left,) = targets(state_of(tmp_path))
    with service(tmp_path) as first, service(tmp_path) as second:
        expected = {f"har-{each.port}.json": each.address for each in (first, second)}
        assert targets(first.folder) == expected
        assert left not in expected or left.endswith(f"-{first.port}.json")
    assert targets(first.folder) == {}


@pytest.mark.parametrize(
    ("url", "target", "scheme"),
    [
        ("http://127.0.0.1:8470", "127.0.0.1:8470", "http"),
        ("https://192.168.1.7:8470", "192.168.1.7:8470", "https"),
        ("http://0.0.0.0:8470", "127.0.0.1:8470", "http"),
        ("http://[::]:8470", "[::1]:8470", "http"),
        ("http://[fd00::7]:8470", "[fd00::7]:8470", "http"),
    ],
)
def test_the_address_is_one_that_this_machine_reaches(url: str, target: str, scheme: str) -> None:
    (entry,) = json.loads(content("har", urlsplit(url)))
    assert entry["targets"] == [target]
    assert (entry["labels"]["__scheme__"], entry["labels"]["process"]) == (scheme, "service:har")


def test_a_folder_that_cannot_be_written_is_a_line_of_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "targets").write_text("a file where a folder has to be")
    with announced(tmp_path, "har", "http://127.0.0.1:8470"):
        pass
    (line,) = caplog.messages
    assert "no Prometheus here finds this service" in line
    assert (tmp_path / "targets").read_text() == "a file where a folder has to be"


def test_one_after_the_other_leaves_nothing(tmp_path: Path) -> None:
    with ExitStack() as stack:
        for port in (1, 2, 3):
            stack.enter_context(announced(tmp_path, "har", f"http://127.0.0.1:{port}"))
        assert len(targets(tmp_path)) == 3
    assert targets(tmp_path) == {}


def test_prometheus_looks_where_services_keep_their_state() -> None:
    assert Path(SERVICE_STATE).name == state.FOLDER.name
