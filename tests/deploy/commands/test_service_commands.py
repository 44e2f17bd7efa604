"""`fab serve` and `fab service` as a person types them: the words for the service's own room."""

import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from deploy.commands import service
from tests.deploy.typed import Fab


@dataclass
class Played:
    """Processes that end at once, as `code` says."""

    code: int = 0
    commands: list[tuple[str, ...]] = field(default_factory=list)

    def run(self, command: tuple[str, ...], **_: Any) -> "subprocess.CompletedProcess[str]":
        self.commands.append(command[2:])
        return subprocess.CompletedProcess(command, self.code)


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> Played:
    made = Played()
    monkeypatch.setattr(service, "subprocess", made)
    return made


def test_versions_are_promoted_rolled_back_and_listed(tmp_path: Path, fab: Fab, played: Played) -> None:
    assert fab("service promote --model mine --name walk").code == 0
    assert fab("service rollback").code == 0
    assert fab("service list --json").code == 0
    manage = "recognise.service.manage"
    assert played.commands == [
        (manage, "promote", "--name", "walk", "--model", str(tmp_path / "mine")),
        (manage, "rollback", "--name", "har"),
        (manage, "list", "--name", "har", "--json"),
    ]


def test_a_refusal_is_the_command_s_own_exit_code(fab: Fab, played: Played) -> None:
    played.code = 2
    assert fab("service rollback").code == 2


def test_a_service_gets_its_port_and_address(tmp_path: Path, fab: Fab, monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[tuple[str, ...]] = []

    def ended(command: tuple[str, ...]) -> int:
        commands.append(command[2:])
        return 0

    monkeypatch.setattr(service, "_in_foreground", ended)
    assert fab("serve --model mine --port 0 --no-token").code == 0
    assert fab("serve --listen 192.168.1.16 --name walk --tls").code == 0
    assert fab("serve --certificate mine.crt --key mine.key").code == 0
    assert fab("serve --batch-milliseconds 0.5 --shadow-seconds 60 --least-agreement 0.9").code == 0
    assert commands == [
        ("recognise.service", "--name", "har", "--port", "0", "--listen", "127.0.0.1", "--link", "--no-token",
         "--model", str(tmp_path / "mine")),
        ("recognise.service", "--name", "walk", "--port", "8470", "--listen", "192.168.1.16", "--link", "--tls"),
        ("recognise.service", "--name", "har", "--port", "8470", "--listen", "127.0.0.1", "--link", "--certificate",
         str(tmp_path / "mine.crt"), "--key", str(tmp_path / "mine.key")),
        ("recognise.service", "--name", "har", "--port", "8470", "--listen", "127.0.0.1", "--link",
         "--batch-milliseconds", "0.5", "--shadow-seconds", "60.0", "--least-agreement", "0.9"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--batch-milliseconds 1001", "--batch-milliseconds: expected a number from 0 to 1000, got '1001'"),
        ("--shadow-seconds soon", "--shadow-seconds: expected a number from 0 to 3600, got 'soon'"),
        ("--least-agreement nan", "--least-agreement: expected a number from 0 to 1, got 'nan'"),
        ("--least-agreement 90", "--least-agreement: expected a number from 0 to 1, got '90'"),
    ],
)
def test_a_number_out_of_bounds_starts_no_service(
    fab: Fab, monkeypatch: pytest.MonkeyPatch, words: str, said: str
) -> None:
    monkeypatch.setattr(service, "_in_foreground", lambda command: pytest.fail("it was started"))
    done = fab(f"serve {words}")
    assert done.code == 2
    assert said in done.stderr


def test_a_run_is_exported_once_into_its_own_folder(
    tmp_path: Path, fab: Fab, monkeypatch: pytest.MonkeyPatch, played: Played
) -> None:
    run = tmp_path / "runs" / "walk"
    run.mkdir(parents=True)

    def export(command: tuple[str, ...]) -> int:
        assert command[2:] == ("cluster.export", f"--run={run}", "--to=onnx", f"--out={run / 'export'}", "--quiet")
        (run / "export").mkdir()
        return 0

    monkeypatch.setattr(service, "_in_foreground", export)
    assert fab("service promote --run walk").code == 0
    assert fab("service promote --run runs/walk").code == 0  # no second export: `export` would fail
    promoted = ("recognise.service.manage", "promote", "--name", "har", "--model", str(run / "export"))
    assert played.commands == [promoted, promoted]
    assert fab("service promote --run walk --model mine").code == 2


def test_a_run_that_cannot_be_exported_is_not_served(
    fab: Fab, monkeypatch: pytest.MonkeyPatch, played: Played
) -> None:  # fmt: skip
    monkeypatch.setattr(service, "_in_foreground", lambda _: 2)
    assert fab("service promote --run nowhere").code == 2
    assert played.commands == []


@pytest.mark.parametrize("port", ["abc", "-1", "65536"])
def test_another_port_is_one_line(fab: Fab, played: Played, port: str) -> None:
    done = fab(f"serve --port={port}")
    assert done.code == 2
    assert "--port: expected a whole number from 0 to 65535" in done.stderr
    assert played.commands == []
