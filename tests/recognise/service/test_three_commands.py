"""Recordings of a phone's app become a model, and the phone sees itself: three commands."""

import re
import signal
import subprocess
from pathlib import Path

import pytest

from core.control.own_state import state_of_services
from tests.lazy import Browser, expect
from tests.ran import PROJECT, ran
from tests.recognise.readings import walk
from tests.recognise.service.phone import connect, phone, play_events, still, wait_until
from tests.recognise.service.running import READY, Service
from tests.recognise.test_formats import sensor_logger

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

FAB = (PROJECT / ".venv/bin/fab", "-r", PROJECT)
PEOPLE = ("anna", "bert", "cleo", "dora", "emil", "fay")
SECONDS = 40


@pytest.fixture
def walks(tmp_path: Path) -> Path:
    """The folder of a person who asked five others to carry their phone too."""
    count = 50 * SECONDS
    for seed, person in enumerate(PEOPLE):
        moved = {"walking": walk(count, seed=seed), "resting": still(count)}
        for label, readings in moved.items():
            folder = tmp_path / "walks" / person / label
            folder.mkdir(parents=True)
            (folder / "2026-11-26.zip").write_bytes(sensor_logger(readings))
    return tmp_path


def test_a_phone_sees_itself_after_three_commands(browser: Browser, walks: Path) -> None:
    ran(*FAB, "init", "--local", "--out", "inventory.yaml", folder=walks)
    shown = ran(*FAB, "data", "show", "walks", folder=walks).stdout
    assert "sensor-logger" in shown
    words = ("--data", "walks", "--format", "sensor-logger", "--mode", "single", "--epochs", "4")
    trained = ran(*FAB, "job", "train", *words, folder=walks).stdout
    found = re.search(r"^result: (\S+)/result.json$", trained, re.MULTILINE)
    assert found is not None, trained
    with subprocess.Popen(
        [*FAB, "serve", "--run", found[1], "--port", "0"],
        cwd=walks,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as command:
        assert command.stdout is not None
        lines = iter(command.stdout.readline, "")
        ready = next((line for line in map(READY.fullmatch, lines) if line), None)
        assert ready is not None, command.communicate()
        service = Service(command, state_of_services(walks), ready["address"], 1)
        with phone(browser, service) as seen:
            connect(seen.page)
            play_events(seen.page, walk(600, seed=11))
            wait_until(seen.page, "sent.labels.length > 3")
            expect(seen.page.locator("#label")).to_have_text("walking")
            play_events(seen.page, still(600, begin=20.0))
            expect(seen.page.locator("#label")).to_have_text("resting")
            assert seen.wrongs == []
        command.send_signal(signal.SIGINT)
        _, errors = command.communicate(timeout=60)
    assert "Traceback" not in errors
