"""The command lines themselves, as somebody types them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from invoke.exceptions import Exit

from deploy.commands.edge import end_as_the_job_did
from deploy.common.project import ROOT
from tests.deploy.typed import Fab

FAB = Path(sys.executable).with_name("fab")
LISTED = (
    "deploy.check",
    "deploy.plan",
    "deploy.start",
    "deploy.stop",
    "deploy.restart",
    "deploy.status",
    "deploy.logs",
)
PLAIN = """schema: 1
cluster: plain
connection: {connection}
nodes: [{{name: here, address: {address}, roles: [ps, worker, coordinator]}}]
jobs: {{pi: {{samples: 1000}}}}
"""


def test_the_list_shows_every_command() -> None:
    listed = subprocess.run([str(FAB), "--list"], cwd=ROOT, capture_output=True, text=True, timeout=100, check=True)
    for name in (
        *LISTED,
        "app.new",
        "app.check",
        "data.fetch",
        "data.show",
        "job.train",
        "job.evaluate",
        "job.recognise",
        "job.pi",
        "init",
        "report",
    ):
        assert name in listed.stdout


def test_loading_the_fabfile_imports_nothing_heavy() -> None:
    program = (
        "import sys, fabfile; "
        "print([name for name in ('tensorflow', 'pydantic', 'scipy', 'numpy', 'rich', 'psutil', "
        "'cluster.inventory.schema') if name in sys.modules])"
    )
    asked = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert asked.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("line", "code", "words"),
    [
        (
            "deploy dance",
            2,
            "deploy: no action 'dance'; there are check, plan, push, storage, start, stop, restart,",
        ),
        ("job dance", 2, "job: no action 'dance'; there are train, cv, evaluate, recognise, pi, list, attach, cancel"),
        ("deploy stop --follow", 2, "deploy stop: does not take --follow"),
        ("job pi --hidden 3 --set a=b", 2, "job pi: does not take --hidden"),
        ("deploy start", 2, "no inventory: expected --inventory FILE, $PSCLUSTER_INVENTORY or ./inventory.yaml"),
        ("deploy status --inventory nothing.yaml", 2, "nothing.yaml"),
        ("deploy start --jobs --no-jobs", 2, "--jobs and --no-jobs: give one of them"),
        ("deploy logs --lines many", 2, "--lines: expected a whole number from 0 to 1000000, got 'many'"),
        ("job train --run runs/x", 2, "--run: names the training run for --resume"),
        ("job evaluate --resume", 2, "job evaluate: does not take --resume"),
        ("job train --epochs x", 2, "--epochs: expected a whole number"),
        ("init", 2, "expected one of --local and --hosts"),
        ("report", 2, "--run: expected the folder of a run"),
        ("report --run nowhere", 2, "--run nowhere: expected the folder of a run"),
        ("init --local --workers 0", 2, "--workers: expected a whole number from 1 to 64, got '0'"),
        ("-H a,b deploy status", 2, "-H/--hosts: the inventory says which machines"),
        ("deploy start -i x", 2, "no inventory"),
        ("deploy", 1, "action"),
    ],
)
def test_what_cannot_be_done_is_one_line_without_a_traceback(
    tmp_path: Path, fab: Fab, line: str, code: int, words: str
) -> None:
    done = fab(line)
    assert done.code == code
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("action", ["check", "plan", "start", "stop", "restart", "status", "logs"])
def test_ssh_without_storage_is_refused_in_one_line_by_every_action(tmp_path: Path, fab: Fab, action: str) -> None:
    (tmp_path / "inventory.yaml").write_text(PLAIN.format(connection="ssh", address="192.168.1.26"))
    done = fab(f"deploy {action}")
    assert done.code == 2
    assert "no section `storage`" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert done.stdout == "cluster plain: inventory.yaml (from ./inventory.yaml)\n"


@pytest.mark.parametrize(("action", "code"), [("stop", 0), ("status", 3), ("logs", 0), ("start", 2), ("plan", 2)])
def test_a_cluster_whose_interface_is_gone_can_be_stopped_and_looked_at(
    tmp_path: Path, fab: Fab, action: str, code: int
) -> None:
    text = PLAIN.format(connection="local", address="10.11.12.13")
    (tmp_path / "inventory.yaml").write_text(text + "interface: unplugged0\n")
    done = fab(f"deploy {action}")
    assert done.code == code
    assert ("unplugged0" in done.stderr) == (code == 2)


@pytest.mark.parametrize(
    ("ended", "code"),
    [(0, None), (1, 1), (2, 2), (3, 3), (130, 130), (20, 1), (21, 1), (23, 1), (24, 1), (120, 1), (255, 1)],
)
def test_a_job_ends_the_command_with_a_code_of_the_contract(ended: int, code: int | None) -> None:
    seen = None
    try:
        end_as_the_job_did(ended)
    except Exit as leaving:
        seen = leaving.code
    assert seen == code


def test_an_override_is_checked_like_the_file(tmp_path: Path, fab: Fab) -> None:
    (tmp_path / "inventory.yaml").write_text(PLAIN.format(connection="local", address="127.0.0.1"))
    done = fab("deploy plan --set jobs.pi.sample=3 --set jobs.train.epochs=x")
    assert done.code == 2
    assert "jobs.pi.sample" in done.stderr
    assert "jobs.train.epochs" in done.stderr


def test_programs_get_json_on_stdout_and_nothing_else(tmp_path: Path, fab: Fab) -> None:
    (tmp_path / "inventory.yaml").write_text(PLAIN.format(connection="local", address="127.0.0.1"))
    status = fab("deploy status --json")
    assert status.code == 3
    assert json.loads(status.stdout)["state"] == "stopped"
    assert status.stderr == "cluster plain: inventory.yaml (from ./inventory.yaml)\n"
    plan = fab("deploy plan --json")
    assert plan.code == 0
    assert [step["kind"] for step in json.loads(plan.stdout)["steps"]] == ["start", "start", "run"]
    check = json.loads(fab("deploy check --json --set jobs.train.data.source=synthetic").stdout)
    levels = {finding["subject"]: finding["level"] for finding in check["findings"]}
    assert levels["data"] == levels["tensorflow"] == levels["platform"] == "ok"
    assert not (tmp_path / ".pscluster").exists()


def test_two_tasks_of_one_call_must_mean_one_inventory(tmp_path: Path, fab: Fab) -> None:
    for name in ("inventory", "other"):
        (tmp_path / f"{name}.yaml").write_text(PLAIN.format(connection="local", address="127.0.0.1"))
    done = fab("deploy plan deploy plan --inventory other.yaml")
    assert done.code == 2
    assert "this call began with" in done.stderr


@pytest.mark.parametrize(
    ("file", "cluster"),
    [("pi-2.yaml", "pi-2"), ("zwei_Öfen.v2.yaml", "zwei_-fen-v2"), ("-.yaml", "local"), (f"{'x' * 80}.yaml", "x" * 63)],
)
def test_init_names_a_local_cluster_after_its_file(fab: Fab, file: str, cluster: str) -> None:
    assert fab(f"init --local --out={file}").code == 0
    assert fab(f"deploy plan --inventory={file}").stdout.startswith(f"cluster {cluster}: {file} ")


def test_a_hint_can_be_copied(tmp_path: Path, fab: Fab) -> None:
    (tmp_path / "pi.yaml").write_text(PLAIN.format(connection="local", address="127.0.0.1"))
    assert (
        "3 to change; `fab deploy start --inventory pi.yaml` does it" in fab("deploy plan --inventory pi.yaml").stdout
    )
    refused = fab("job pi --inventory pi.yaml").stderr
    assert "`fab deploy start --no-jobs --inventory pi.yaml` starts them" in refused
    assert "`fab deploy status --inventory pi.yaml` shows them" in refused


def test_a_job_needs_a_running_cluster(tmp_path: Path, fab: Fab) -> None:
    (tmp_path / "inventory.yaml").write_text(PLAIN.format(connection="local", address="127.0.0.1"))
    done = fab("job pi --samples 1e3")
    assert done.code == 1
    assert "cluster plain is stopped: a job needs every parameter server and at least one worker" in done.stderr


def test_init_writes_an_inventory_and_never_over_another(tmp_path: Path, fab: Fab) -> None:
    done = fab("init --local --workers 3 --ps 2 --out mine.yaml")
    assert done.code == 0
    assert "cluster mine: " in fab("deploy plan --inventory mine.yaml").stdout
    plan = fab("deploy plan --inventory mine.yaml --json")
    roles = [step["subject"] for step in json.loads(plan.stdout)["steps"] if step["kind"] == "start"]
    assert roles == ["ps:0", "ps:1", "worker:0", "worker:1", "worker:2"]
    before = (tmp_path / "mine.yaml").read_text()
    refused = fab("init --local --out mine.yaml")
    assert refused.code == 2
    assert refused.stderr == "mine.yaml exists: --force overwrites it\n"
    assert (tmp_path / "mine.yaml").read_text() == before
    assert fab("init --hosts 192.168.1.16-31 --user pi --out mine.yaml --force").code == 0
    assert "192.168.1.31" in (tmp_path / "mine.yaml").read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["mine.yaml"]


def test_recordings_that_are_not_there_are_told_before_anything_starts(fab: Fab, tmp_path: Path) -> None:
    text = PLAIN.format(connection="local", address="127.0.0.1").replace("jobs: {", "jobs: {train: {}, ")
    (tmp_path / "inventory.yaml").write_text(text)

    told = fab("deploy start --data nothere.npz")

    assert told.code == 2
    assert told.stderr.splitlines()[-1].startswith("nothere.npz: no such file or folder")
    assert not (tmp_path / ".pscluster").exists(), "something was started"
