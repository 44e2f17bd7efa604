"""`fab data` as a person types it: the words for the data's own room, and its end; tests/data has what it does."""

import json
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from deploy.commands import data
from deploy.common.project import ROOT
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
    monkeypatch.setattr(data, "subprocess", made)
    return made


def test_a_set_is_fetched_into_the_folder_that_a_person_types(tmp_path: Path, fab: Fab, played: Played) -> None:
    assert fab("data fetch hapt").code == 0
    assert fab(f"data fetch hhar --out mine --sha256 {'a' * 64} --quiet").code == 0
    assert played.commands == [
        ("cluster.data.fetch", "hapt"),
        ("cluster.data.fetch", "hhar", "--out", str(tmp_path / "mine"), "--sha256", "a" * 64, "--quiet"),
    ]


def test_recordings_are_shown_with_the_keys_of_the_training(tmp_path: Path, fab: Fab, played: Played) -> None:
    keys = "--set jobs.train.recipe=kth --set jobs.train.data.split=random --set jobs.train.seed=3"
    assert fab(f"data show mine.csv {keys} --out page.html --each 2 --json").code == 0
    (words,) = played.commands
    assert words[:5] == ("cluster.data.show", "mine.csv", "--window-steps=200", "--window-stride=20", "--seed=3")
    options = json.loads(words[5].removeprefix("--options="))
    assert (options["split"], options["groups"], options["null_class"]) == ("random", "user", True)
    assert words[6:] == ("--each=2", "--out", str(tmp_path / "page.html"), "--json")
    (tmp_path / "inventory.yaml").write_text(
        "schema: 1\ncluster: mine\nconnection: local\n"
        "nodes: [{name: here, address: 127.0.0.1, roles: [ps, worker, coordinator]}]\n"
        "jobs: {train: {data: {window_steps: 64}}}\n"
    )
    fab("data show mine.csv")
    fab("data show mine.csv --inventory inventory.yaml")
    assert [words[2] for words in played.commands[1:]] == ["--window-steps=128", "--window-steps=64"]


@pytest.mark.parametrize("code", [0, 1, 2, 130])
def test_the_command_ends_as_the_room_does(fab: Fab, played: Played, code: int) -> None:
    played.code = code
    assert (fab("data fetch hapt").code, fab("data show mine.csv").code) == (code, code)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("data fetch", "did not receive required positional arguments: 'name'"),
        ("data fetch hapt --each 3", "data fetch: does not take --each"),
        ("data show mine.csv --each 10", "--each: expected a whole number from 0 to 9, got '10'"),
        ("data show mine.csv --set jobs.train.data.groups=model", "jobs.train.data.groups"),
        ("data dance mine.csv", "data: no action 'dance'; there are fetch, show"),
    ],
)
def test_what_cannot_be_done_is_a_line(fab: Fab, played: Played, line: str, words: str) -> None:
    refused = fab(line)
    assert refused.code != 0
    assert words in refused.stderr
    assert played.commands == []


def test_the_public_command_has_it_too(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pscluster", "data", "fetch", "wisdm"]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=False, env={"PYTHONPATH": str(ROOT)}
    )
    assert done.returncode == 2
    assert done.stderr.startswith("'wisdm': expected hapt, uci-har, hhar; other recordings are yours to bring")
