"""The steps of changes on a real sshd: what they do, and what is known of one that fails.

Root's steps need sudo.
"""

import hashlib
from pathlib import Path

import pytest

from deploy.cluster.connection import NodeConnection
from deploy.converge.apply import StepFailedError, StepFailure, apply
from deploy.converge.deployment import PHASES, PlanRunner
from deploy.converge.recap import Recap
from deploy.converge.subject import (
    SILENT,
    Change,
    DeploymentDisplay,
    Publish,
    PublishedFile,
    Reconnect,
    Shell,
    Step,
    Upload,
)
from tests.deploy.converge.pi import machines_for, thesis
from tests.deploy.over_ssh.nodes import fleet_of, trusting
from tests.deploy.over_ssh.sshd import Sshd, running_sshd
from tests.deploy.tables import Tables

rows = Tables(__file__)

pytestmark = pytest.mark.usefixtures("sudo")


class Collecting(DeploymentDisplay):
    """Collects the lines."""

    def __init__(self, told: list[tuple[str, str]]) -> None:
        self._told = told

    def line(self, node: str, line: str) -> None:
        self._told.append((node, line))


def change(*steps: Step) -> Change:
    return Change("file", "x", "create", "for a test", steps)


def carry_out(node: NodeConnection, *steps: Step) -> list[float]:
    """Seconds of the change that was done."""
    done: list[float] = []
    apply(node, "prepare", [change(*steps)], lambda change, seconds: done.append(seconds))
    return done


def failure(node: NodeConnection, *steps: Step) -> StepFailure:
    with pytest.raises(StepFailedError) as caught:
        carry_out(node, *steps)
    return caught.value.record


def test_steps_are_done_in_order(node: NodeConnection, tmp_path: Path) -> None:
    given = tmp_path / "given"
    given.write_bytes(b"from stdin")
    made = tmp_path / "made"
    (seconds,) = carry_out(
        node,
        Shell("make a folder", f"mkdir {made}"),
        Upload("write", b"uploaded", f"{made}/file", 0o604),
        Reconnect("once more"),
        Shell("take a file", f"cat >{made}/given", stdin=given),
        Upload("write", b"owned", f"{made}/owned", 0o600, owner="nobody"),
    )
    assert seconds > 0
    contents = {path.name: path.read_bytes() for path in made.iterdir()}
    assert contents == {"file": b"uploaded", "given": b"from stdin", "owned": b"owned"}
    assert (made / "file").stat().st_mode & 0o777 == 0o604
    assert (made / "owned").owner() == "nobody"


def test_a_script_that_fails_is_a_record_of_everything(
    node: NodeConnection, tmp_path: Path
) -> None:
    lines = "; ".join(f"echo line {number} >&2" for number in range(9))
    record = failure(
        node,
        Shell("install it", f"{lines}; exit 71", hint="free some space"),
        Shell("never", f"touch {tmp_path}/never"),
    )
    assert (record.node, record.phase, record.return_code) == ("node", "prepare", 71)
    assert record.command.endswith("exit 71")
    assert record.last_lines == tuple(f"line {number}" for number in range(3, 9))
    assert record.line == (
        "node: install it (exit code 71): line 6 | line 7 | line 8; free some space"
    )
    assert record.to_json()["hint"] == "free some space"
    assert not (tmp_path / "never").exists()


def test_an_overdue_step_is_ended_and_said_so(node: NodeConnection) -> None:
    record = failure(node, Shell("wait", "sleep 1000", deadline_seconds=1.0))
    assert record.return_code is None
    assert record.last_lines[0].startswith("not done within 1 s and ended")


def test_a_file_that_cannot_be_written(node: NodeConnection, tmp_path: Path) -> None:
    record = failure(node, Upload("write it", b"x", f"{tmp_path}/missing/file"))
    assert record.step == "write it"
    assert f"{tmp_path}/missing/file" in record.last_lines[0]
    record = failure(
        node, Upload("give it away", b"x", f"{tmp_path}/file", owner="no-such-account")
    )
    assert record.return_code == 1
    assert "no-such-account" in record.last_lines[-1]


@pytest.fixture
def publish(tmp_path: Path) -> Publish:
    """Publishes two files of `here`, in a folder that has the first."""
    there = tmp_path / "srv" / ("0" * 16)
    there.mkdir(parents=True)
    (there / "one").write_bytes(b"first")
    files = []
    (tmp_path / "here").mkdir()
    for name, content in (("one", b"first"), ("two", b"second" * 1000)):
        source = tmp_path / "here" / name
        source.write_bytes(content)
        digest = hashlib.sha256(content).hexdigest()
        files.append(PublishedFile(name, source, digest, len(content)))
    return Publish("publish wheels", str(there), tuple(files), user=None)


def test_a_folder_is_published_whole_and_only_what_is_missing_travels(
    node: NodeConnection, publish: Publish
) -> None:
    there = Path(publish.folder)
    before = (there / "one").stat().st_ino
    carry_out(node, publish)
    assert (there / ".complete").exists()
    assert (there / "two").read_bytes() == b"second" * 1000
    assert (there / "one").stat().st_ino == before
    assert (there / "two").stat().st_mode & 0o444 == 0o444


def test_what_changed_here_while_it_was_sent_is_not_published(
    node: NodeConnection, publish: Publish, tmp_path: Path
) -> None:
    (tmp_path / "here/two").write_bytes(b"other")
    record = failure(node, publish)
    assert record.return_code == 72
    assert "publish it again" in record.line
    assert not Path(publish.folder, ".complete").exists()


Told = list[tuple[str, str]]


def deploy(
    places: list[tuple[str, Sshd]], folder: Path, doomed: str, *fails: Step
) -> tuple[Recap, Told]:
    """A deployment in two phases of two changes each, in which one node fails."""
    told: Told = []
    pinned = trusting(folder, *dict.fromkeys(server for _, server in places))
    recap = Recap("start", "thesis", tuple(name for name, _ in places))
    plan = {name: (change(Shell("be", "true")),) * 2 for name, _ in places}
    plan[doomed] = (change(*fails),) * 2
    with fleet_of(pinned, places) as fleet:
        deployment = PlanRunner(fleet, machines_for(thesis()), recap, Collecting(told))
        phases = ("prepare", "code")
        assert deployment.carry_out(dict.fromkeys(phases, plan), phases)
        return deployment.finish(), told


# The sshd that serves the connection is the nearest ancestor of that name.
_KILL_SSHD = (
    "pid=$$; while :; do pid=$(ps -o ppid= -p $pid | tr -d ' '); "
    '[ "$(ps -o comm= -p $pid)" = sshd ] && break; done; kill -9 $pid; sleep 30'
)
LOSE_IT = Shell("lose the node", _KILL_SSHD, deadline_seconds=25.0)


def test_a_node_that_is_lost_in_a_phase_leaves_the_run_and_the_others_go_on(
    sshd: Sshd, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    with running_sshd(tmp_path / "other") as doomed:
        places = [("rpi01", sshd), ("rpi02", doomed), ("rpi03", sshd)]
        recap, told = deploy(places, tmp_path, "rpi02", Shell("be", "true"), LOSE_IT)
    assert recap.failed == ("rpi02",)
    lost = recap.failures["rpi02"]
    assert (lost.phase, lost.step, lost.return_code) == ("prepare", "lose the node", None)
    assert "the connection broke" in lost.last_lines[0]
    assert lost.line.endswith("run `fab deploy start --retry` once it is back")
    assert [row[-1] for row in recap.rows()] == ["changed", "failed", "changed"]
    assert recap.changed == 8
    assert [name for name, _ in told].count("rpi02") == 1


@rows("doomed", "phase", "note")
def test_who_is_lost_when_decides_whether_roles_are_started(
    sshd: Sshd, tmp_path: Path, doomed: str, phase: str, note: str
) -> None:
    recap = Recap("start", "thesis", ("rpi01", "rpi11"))
    plans = {
        **{name: {"rpi01": (change(Shell("be", "true")),)} for name in PHASES},
        phase: {doomed: (change(Shell("fail", "exit 9")),)},
        "services": {"rpi11": (change(Shell("start", f"touch {tmp_path}/started")),)},
    }
    with fleet_of(trusting(tmp_path, sshd), [("rpi01", sshd), ("rpi11", sshd)]) as fleet:
        deployment = PlanRunner(fleet, machines_for(thesis()), recap, SILENT)
        assert deployment.carry_out(plans) is (note == "")
    assert " ".join(recap.notes).startswith(note)
    assert recap.failed == (doomed,)
    assert (tmp_path / "started").exists() is (note == "")
