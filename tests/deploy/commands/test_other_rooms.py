"""Commands whose work is a process of another room: it gets what a person types (`passed_on.yaml`),
and the command ends as it does."""

import json
import socket
from pathlib import Path

import pytest

from core.ground.errors import ExitCode
from deploy.commands import service
from deploy.common.project import ROOT
from tests.deploy.typed import Fab, Processes
from tests.ran import python
from tests.tables import table

PASSED_ON: dict[str, str] = table("deploy/commands/passed_on")
SMALL_WINDOWS = """schema: 1
cluster: mine
connection: local
nodes: [{name: here, address: 127.0.0.1, roles: [ps, worker, coordinator]}]
jobs: {train: {data: {window_steps: 64}}}
"""


@pytest.fixture
def foreground(processes: Processes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Services and exports, which are processes of the foreground, end at once too."""
    monkeypatch.setattr(service, "_in_foreground", lambda words: processes.run(words).returncode)


@pytest.mark.usefixtures("foreground")
@pytest.mark.parametrize(("line", "expected"), PASSED_ON.items())
def test_a_room_gets_what_a_person_types_and_its_end_is_the_command_s(
    tmp_path: Path, fab: Fab, processes: Processes, line: str, expected: str
) -> None:
    (tmp_path / "inventory.yaml").write_text(SMALL_WINDOWS)
    for code in (0, 1, 2, 130):
        processes.code = code
        fab(line).says(code=code)
        words, _, _ = " ".join(processes.commands.pop()).partition(" --window-stride")
        assert words == expected.format(here=tmp_path, home=Path.home())


def test_recordings_are_shown_with_the_keys_of_the_training(
    tmp_path: Path, fab: Fab, processes: Processes
) -> None:
    keys = "--set jobs.train.recipe=kth --set jobs.train.data.split=random --set jobs.train.seed=3"
    fab(f"data show mine.csv {keys} --out page.html --each 2 --json").says()
    ((*words, options, as_json, each, page),) = processes.commands
    assert " ".join(words) == (
        "core.data.show mine.csv --window-steps=200 --window-stride=20 --seed=3"
    )
    found = json.loads(options.removeprefix("--options="))
    assert (found["split"], found["groups"], found["null_class"]) == ("random", "user", True)
    assert [each, page, as_json] == ["--each=2", f"--out={tmp_path}/page.html", "--json"]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("data fetch wisdm", "'wisdm': expected hapt, uci-har, hhar; bring other recordings"),
        ("export --run none --to onyx --out x", "unknown format 'onyx': did you mean onnx?\n"),
    ],
)
def test_the_rooms_answer_the_public_command_too(tmp_path: Path, line: str, said: str) -> None:
    environment = {"PYTHONPATH": str(ROOT)}
    words = ("-m", "pscluster", *line.split())
    assert python(*words, code=2, folder=tmp_path, environment=environment).startswith(said)


def test_a_run_is_exported_once_into_its_own_folder(
    tmp_path: Path, fab: Fab, monkeypatch: pytest.MonkeyPatch, processes: Processes
) -> None:
    run = tmp_path / "runs/walk"
    run.mkdir(parents=True)

    def export(command: tuple[str, ...]) -> int:
        (run / "export").mkdir()  # no second one: this would fail
        return processes.run(command).returncode

    monkeypatch.setattr(service, "_in_foreground", export)
    for name in ("walk", "runs/walk"):
        fab(f"service promote --run {name}").says()
    promoted = f"recognise.service.manage promote --name har --model {run}/export"
    assert [" ".join(words) for words in processes.commands] == [
        f"cluster.export --run={run} --to=onnx --out={run}/export --quiet",
        promoted,
        promoted,
    ]


@pytest.mark.usefixtures("foreground")
def test_a_run_that_cannot_be_exported_is_not_served(fab: Fab, processes: Processes) -> None:
    processes.code = 2
    fab("service promote --run nowhere").says(code=2)
    assert [words[0] for words in processes.commands] == ["cluster.export"]


def test_a_model_of_no_windows_is_refused_before_its_export(tmp_path: Path, fab: Fab) -> None:
    model = tmp_path / "runs/table/model"
    model.mkdir(parents=True)
    (model / "model.json").write_text('{"app": {"input_shape": [5], "input_dtype": "float32"}}')
    fab("serve --run table").refuses(
        "table: a service takes windows (samples, channels) in float32, and this model takes (5,)"
        f" in float32: fab export --run {model.parent} --to onnx --out model, then onnxruntime"
    )


@pytest.mark.usefixtures("foreground")
def test_a_taken_port_is_told_before_a_run_is_exported(fab: Fab, processes: Processes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        fab(f"serve --run walk --port {port}").refuses(
            f"port {port} for the service is taken", ExitCode.PORT_TAKEN
        )
    assert processes.commands == []
