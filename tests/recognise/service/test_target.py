"""The files by which a Prometheus finds services, there while a service answers."""

import json
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from core.control.client import ask
from recognise.service import state
from recognise.service.state import announced, content
from tests.recognise.service.exports import windows
from tests.recognise.service.running import PATH, as_json, served, service, state_of


def targets(folder: Path) -> dict[str, str]:
    """Address by the name of the file."""
    return {
        path.name: json.loads(path.read_text())[0]["targets"][0]
        for path in sorted((folder / "targets").iterdir())
    }


def test_a_service_is_a_target_while_it_answers_and_removes_what_a_killed_one_left(
    tmp_path: Path,
) -> None:
    state.made(state_of(tmp_path))
    (state_of(tmp_path) / "targets").mkdir(0o700)
    (state_of(tmp_path) / "targets/har-1.json").write_text("of one whose lock ended with it")
    with served(tmp_path) as first, service(tmp_path) as second:
        found = targets(first.folder)
        assert len(found) == 2
        for name, address in found.items():
            assert name == f"har-{urlsplit(f'//{address}').port}.json"
            assert address not in (first.address, second.address), "a port that asks for no token"
            figures = ask(address, "GET", "/metrics", deadline_seconds=10)
            assert "pscluster_service_" in figures.text
        assert (first.folder / "targets").stat().st_mode & 0o777 == 0o700
    assert targets(first.folder) == {}


def test_without_a_token_it_answers_on_loopback_and_is_a_target_too(tmp_path: Path) -> None:
    with served(tmp_path, "--no-token") as running, running.client() as client:
        assert client.post(f"{PATH}/infer", json=as_json(windows(1))).status_code == 200
        assert not (running.folder / "token").exists()
        assert len(targets(running.folder)) == 1


@pytest.mark.parametrize(
    ("host", "target"),
    [
        ("127.0.0.1", "127.0.0.1:8470"),
        ("0.0.0.0", "127.0.0.1:8470"),
        ("::", "[::1]:8470"),
        ("fd00::7", "[fd00::7]:8470"),
    ],
)
def test_the_address_is_one_that_this_machine_reaches(host: str, target: str) -> None:
    (entry,) = json.loads(content("har", host, 8470))
    assert entry["targets"] == [target]
    assert entry["labels"]["__scheme__"] == "http"
    assert entry["labels"]["process"] == "service:har"


def test_a_folder_that_cannot_be_written_is_a_line_of_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "targets").write_text("a file where a folder has to be")
    with announced(tmp_path / "targets", "har", "127.0.0.1", 8470):
        pass
    (line,) = caplog.messages
    assert "no Prometheus here finds this service" in line
    assert (tmp_path / "targets").read_text() == "a file where a folder has to be"
