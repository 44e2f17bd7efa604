"""`pscluster.Cluster` and `Run`.

What they ask of the commands, and what they make of the answers.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import pscluster
from core.ground.errors import ClusterError, UsageError
from deploy.common.project import OWNER, environment_for_any_folder
from tests.ran import python
from tests.tables import table

OUTSIDE = environment_for_any_folder()


@pytest.fixture
def inventory(tmp_path: Path) -> Path:
    file = tmp_path / "cluster.yaml"
    file.write_text("schema: 1\n")
    return file


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[list[str]]:
    """The commands that were run, with their variables; nothing runs. `status` says stopped."""
    words: list[list[str]] = []
    (tmp_path / "result.json").write_text('{"status": "done"}')

    def run(command: Sequence[str], *_: Any, **named: Any) -> Any:
        variables = named.get("variables", {})
        words.append([*command, *(f"{name}={value}" for name, value in variables.items())])
        if command[0] == "job":
            return {"result_path": str(tmp_path / "result.json")}
        return {"state": "stopped"}

    monkeypatch.setattr("pscluster.cluster.run", run)
    return words


def test_with_starts_and_stops(inventory: Path, asked: list[list[str]]) -> None:
    with pytest.raises(ZeroDivisionError), pscluster.Cluster(inventory):
        raise ZeroDivisionError
    assert [words[1] for words in asked] == ["status", "start", "stop"]
    assert asked[1][-1] == f"{OWNER}={os.getpid()}", "the cluster ends with this process"
    assert all(str(inventory) == words[words.index("--inventory") + 1] for words in asked)


def test_settings_are_keys_of_the_inventory(inventory: Path, asked: list[list[str]]) -> None:
    cluster = pscluster.Cluster(inventory, settings={"logging.level": "info"})
    run = cluster.train(
        "residual",
        mode="sync",
        epochs=5,
        codec="fp16",
        optimizer={"name": "adamw"},
        resume="runs/x",
    )
    assert run.result == {"status": "done"}
    assert asked[0][4:] == table("pscluster/rows", "train words")


def test_a_cross_validation_says_its_folds_and_seeds(
    inventory: Path, asked: list[list[str]]
) -> None:
    (inventory.parent / "cv.json").touch()
    cluster = pscluster.Cluster(inventory)
    found = cluster.cross_validate("spectral", folds="groups", seeds=[0, 3], epochs=1)
    assert found.folder == inventory.parent
    words = table("pscluster/rows", "cross-validation words")
    assert (asked[0][:2], asked[0][4:]) == (["job", "cv"], words)


def test_wrong_arguments_are_one_line(inventory: Path, asked: list[list[str]]) -> None:
    cluster = pscluster.Cluster(inventory)
    with pytest.raises(UsageError, match="no such file: expected an inventory"):
        pscluster.Cluster(inventory.with_name("other.yaml"))
    with pytest.raises(UsageError, match="workers: expected a whole number"):
        pscluster.local(workers=0)
    with pytest.raises(UsageError, match="expected numbers, texts"):
        cluster.train(epochs=object())
    with pytest.raises(UsageError, match="name of a setting"):
        cluster.train(**{"a.b": 1})  # type: ignore[arg-type]
    assert not asked


def test_a_commands_error_is_an_exception_with_its_text(inventory: Path) -> None:
    lines: list[str] = []
    with pytest.raises(UsageError) as raised:
        pscluster.Cluster(inventory, report=lines.append).start()
    assert str(inventory) in str(raised.value)
    assert "Traceback" not in str(raised.value)


HISTORY = """{"event": "began"}
{"event": "epoch", "epoch": 1, "loss": 3}
{"event": "epoch", "epoch": 1, "loss": 2}
{"event": "ep"""


def test_a_run_is_its_folder(tmp_path: Path) -> None:
    (tmp_path / "result.json").write_text('{"status": "done"}')
    (tmp_path / "history.jsonl").write_text(HISTORY)
    (tmp_path / "report.html").write_text('<p title="a">&amp;</p>')
    run = pscluster.Run(tmp_path)
    assert [epoch["loss"] for epoch in run.history] == [2]
    shown = run.report()._repr_html_()
    assert "&lt;p title=&quot;a&quot;&gt;&amp;amp;" in shown
    assert "allow-same-origin" not in shown
    with pytest.raises(UsageError, match="built-in network"):
        _ = run.model
    with pytest.raises(UsageError, match=r"no result\.json"):
        pscluster.Run(tmp_path / "other")
    (tmp_path / "report.html").unlink()
    with pytest.raises(ClusterError, match="no such file"):
        run.report()


def test_the_import_is_light(tmp_path: Path) -> None:
    found = python(
        "-c", "import sys, pscluster; print(*sys.modules)", folder=tmp_path, environment=OUTSIDE
    )
    assert "pscluster" in found.split()
    assert not {"tensorflow", "keras", "numpy", "invoke", "fabric"} & set(found.split())


def test_the_command_has_fabs_tasks_from_any_folder(tmp_path: Path) -> None:
    def said(*words: str, code: int = 0) -> str:
        return python("-m", "pscluster", *words, code=code, folder=tmp_path, environment=OUTSIDE)

    listed = said("--list")
    for task in ("deploy start", "job train", "init", "report"):
        assert f"  {task}" in listed
    said("init", "--local", "--out", "one.yaml")
    assert (tmp_path / "one.yaml").is_file()
    assert "no action 'nap'" in said("deploy", "nap", code=2)
