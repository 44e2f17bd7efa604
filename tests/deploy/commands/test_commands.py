"""The command lines themselves, as somebody types them."""

import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from core.control.own_state import state_of
from core.ground.children import Child
from deploy.cluster.refusals import Way
from deploy.commands import opening
from deploy.commands.action import end_as_the_job_did
from deploy.commands.registry import COMMANDS
from deploy.common.project import ROOT
from deploy.common.state_folder import StateFolder
from tests.deploy.tables import Tables
from tests.deploy.typed import Fab, as_process
from tests.hang import HANG_SECONDS
from tests.ran import python

rows = Tables(__file__)

HEADER = "cluster plain: inventory.yaml (from ./inventory.yaml)\n"


@pytest.fixture
def inventory(tmp_path: Path) -> Path:
    """A cluster of processes, in the folder where commands are typed."""
    return plain(tmp_path)


def plain(folder: Path, connection: str = "local", address: str = "127.0.0.1") -> Path:
    path = folder / "inventory.yaml"
    path.write_text(
        f"schema: 1\ncluster: plain\nconnection: {connection}\nnodes: [{{name: here, address:"
        f" {address}, roles: [ps, worker, coordinator]}}]\n"
        "jobs: {pi: {samples: 1000}, train: {}}\n"
    )
    return path


def test_the_list_shows_every_command() -> None:
    listed = as_process("--list", ROOT).says()
    assert {row.split()[0] for row in listed.stdout.splitlines() if row[2:3].isalpha()} >= {
        name.replace(" ", ".") for name in COMMANDS
    }


def test_loading_the_fabfile_imports_nothing_heavy() -> None:
    program = (
        "import sys, fabfile; "
        "print([name for name in ('tensorflow', 'pydantic', 'scipy', 'numpy', 'rich', 'psutil', "
        "'core.inventory.schema', 'cluster.sweeps.sweep_file') if name in sys.modules])"
    )
    assert python("-c", program).strip() == "[]"


@rows("line")
def test_help_is_that_of_the_action(fab: Fab, line: str) -> None:
    shown = fab(line).says("Usage: fab deploy start [--flags]\n", "--dry-run")
    assert shown.stderr == ""
    assert "--run-command" not in shown.stdout, "a flag of `deploy ssh`"


@rows("line", "named")
def test_help_of_a_group_names_its_actions(fab: Fab, line: str, named: str) -> None:
    assert fab(line).says(f"  {named} ").stderr == ""


@pytest.mark.usefixtures("inventory")
def test_one_call_says_once_which_inventory_it_means(fab: Fab) -> None:
    assert fab("deploy plan").stdout.count(HEADER) == 1


@rows("action")
def test_ssh_without_storage_is_refused_in_one_line_by_every_action(
    tmp_path: Path, fab: Fab, action: str
) -> None:
    plain(tmp_path, "ssh", "192.168.1.26")
    assert fab(f"deploy {action}").refuses("no section `storage`").stdout == HEADER


@rows("action", "code")
def test_a_cluster_whose_interface_is_gone_can_be_stopped_and_looked_at(
    tmp_path: Path, fab: Fab, action: str, code: int
) -> None:
    with plain(tmp_path, address="10.11.12.13").open("a") as inventory:
        inventory.write("interface: unplugged0\n")
    done = fab(f"deploy {action}").says(code=code)
    assert ("unplugged0" in done.stderr) == (code == 2)


@rows("ended")
def test_a_job_ends_the_command_with_a_code_of_the_contract(ended: int) -> None:
    end_as_the_job_did(0)
    with pytest.raises(SystemExit) as leaving:
        end_as_the_job_did(ended)
    assert leaving.value.code == (ended if ended in (1, 2, 3, 130) else 1)


@pytest.mark.usefixtures("inventory")
@rows("line", "code", "words")
def test_what_the_inventory_does_not_allow_is_said_before_anything_starts(
    tmp_path: Path, fab: Fab, line: str, code: int, words: list[str]
) -> None:
    shutil.copy(tmp_path / "inventory.yaml", tmp_path / "other.yaml")
    fab(line).warns(*words, code=code)
    for name in ("inventory", "other"):
        assert not state_of(tmp_path / f"{name}.yaml", "plain").exists(), "something was started"


@pytest.mark.usefixtures("inventory")
def test_programs_get_json_on_stdout_and_nothing_else(tmp_path: Path, fab: Fab) -> None:
    status = fab("deploy status --json")
    assert (status.json(code=3)["state"], status.stderr) == ("stopped", HEADER)
    check = json.loads(fab("deploy check --json --set jobs.train.data.source=synthetic").stdout)
    levels = {finding["subject"]: finding["level"] for finding in check["findings"]}
    assert levels["data"] == levels["tensorflow"] == levels["platform"] == "ok"
    assert not state_of(tmp_path / "inventory.yaml", "plain").exists()


@rows("file", "cluster")
def test_init_names_a_local_cluster_after_its_file(fab: Fab, file: str, cluster: str) -> None:
    fab(f"init --local --out={file}").says()
    assert fab(f"deploy plan --inventory={file}").stdout.startswith(f"cluster {cluster}: {file} ")


def test_init_writes_an_inventory_and_never_over_another(tmp_path: Path, fab: Fab) -> None:
    fab("init --local --workers 3 --ps 2 --out mine.yaml").says()
    plan = fab("deploy plan --inventory mine.yaml --json").json()
    roles = [step["subject"] for step in plan["steps"] if step["kind"] == "start"]
    assert roles == ["ps:0", "ps:1", "worker:0", "worker:1", "worker:2"]
    before = (tmp_path / "mine.yaml").read_text()
    fab("init --local --out mine.yaml").refuses("mine.yaml exists: --force overwrites it\n")
    assert (tmp_path / "mine.yaml").read_text() == before
    fab("init --hosts 192.168.1.16-31 --user pi --out mine.yaml --force").says()
    assert "192.168.1.31" in (tmp_path / "mine.yaml").read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["mine.yaml"]


@pytest.fixture
def no_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is sent to the example's addresses, which may be somebody's."""

    def refused(*_: object) -> None:
        raise ConnectionRefusedError(111, "Connection refused")

    monkeypatch.setattr(Way, "open", refused)


@pytest.mark.parametrize("example", [False, True], ids=["no inventory", "the shipped example"])
def test_a_job_that_needs_no_cluster_takes_none(fab: Fab, tmp_path: Path, example: bool) -> None:
    shipped = ROOT / "inventory.yaml"
    assert hashlib.sha256(shipped.read_bytes()).hexdigest() == opening.EXAMPLE_SHA256
    if example:
        shutil.copy(shipped, tmp_path)
    written = state_of(tmp_path / "inventory.yaml", "single") / "inventory.yaml"
    fab("job train --mode single --data nowhere.npz --epochs 1 --quiet").says(
        f"cluster single: {written} (written for this job, which", code=2
    )


@pytest.mark.usefixtures("no_connections")
@pytest.mark.parametrize("line", ["job pi", "job train"])
def test_the_shipped_example_is_named_as_such(fab: Fab, tmp_path: Path, line: str) -> None:
    shipped = (ROOT / "inventory.yaml").read_text()
    for text, more in ((shipped, ", the example that pscluster ships"), (f"{shipped}# mine\n", "")):
        (tmp_path / "inventory.yaml").write_text(text)
        assert fab(line).stdout.startswith(
            f"cluster thesis: inventory.yaml (from ./inventory.yaml{more})\n"
        )


_HOLDER = """
import sys, time
from pathlib import Path
from core.ground.locks import FileLock
with FileLock(Path(sys.argv[1])):
    print("it runs", flush=True)
    time.sleep(600)
"""


def test_a_stop_here_asks_before_it_ends_a_job(inventory: Path, fab: Fab) -> None:
    state = StateFolder.of(inventory, "plain")
    state.create()
    words = [sys.executable, "-c", _HOLDER, str(state.job_lock)]
    with Child(words, folder=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as job:
        assert job.stdout is not None
        job.stdout.readline()
        for command in ("stop", "restart"):
            fab(f"deploy {command}").warns(
                f"job (fab, pid {job.pid}) runs: nothing done: `--yes` continues without a", code=2
            )
        fab("deploy stop --yes").says("nothing was running")
        assert job.wait(HANG_SECONDS)
