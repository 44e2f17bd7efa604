"""`fab export` as a person types it: the words for the room of exports, and its end; tests/export has what it does."""

import subprocess
from pathlib import Path

import pytest

from deploy.commands import exports
from tests.deploy.commands.test_data_commands import Played
from tests.deploy.typed import Fab


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> Played:
    made = Played()
    monkeypatch.setattr(exports, "subprocess", made)
    return made


def test_the_words_reach_the_room(fab: Fab, played: Played) -> None:
    assert fab("export --run runs/x --to onnx --out walking").code == 0
    assert fab("export --run ~/x --to litert --quantize dynamic --out w --data mine.npz --json --quiet").code == 0
    assert played.commands == [
        ("cluster.export", "--run=runs/x", "--to=onnx", "--out=walking"),
        (
            "cluster.export", f"--run={Path.home() / 'x'}", "--to=litert", "--out=w", "--quantize=dynamic",
            "--data=mine.npz", "--json", "--quiet",
        ),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("export --to onnx --out x", "--run: expected the folder of a finished training"),
        ("export --run x --out x", "--to: expected a format"),
        ("export --run x --to onnx", "--out: expected a folder to make"),
    ],
)
def test_what_is_missing_is_a_line(fab: Fab, played: Played, line: str, words: str) -> None:
    refused = fab(line)
    assert refused.code == 2
    assert words in refused.stderr
    assert played.commands == []


@pytest.mark.parametrize("code", [0, 1, 2, 130])
def test_the_command_ends_as_the_room_does(fab: Fab, played: Played, code: int) -> None:
    played.code = code
    assert fab("export --run x --to onnx --out y").code == code


def test_the_room_answers_a_person(fab: Fab, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    said: list[str] = []

    def run(command: list[str], **more: object) -> "subprocess.CompletedProcess[str]":
        ended = subprocess.run(command, capture_output=True, text=True, **more)  # type: ignore[call-overload]
        said.append(ended.stderr)
        return subprocess.CompletedProcess(command, ended.returncode)

    monkeypatch.setattr(exports, "subprocess", type("Heard", (), {"run": staticmethod(run)}))
    assert fab(f"export --run none --to onyx --out {tmp_path / 'x'}").code == 2
    assert said == ["unknown format 'onyx': did you mean onnx?\n"]
