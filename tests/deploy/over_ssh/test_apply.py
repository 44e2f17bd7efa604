"""The steps of changes on a real sshd: what they do, and what is known of one that fails. Root's steps need sudo."""

import hashlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from deploy.cluster.connection import NodeConnection
from deploy.converge.apply import StepFailedError, StepFailure, apply
from deploy.converge.change import (
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
from deploy.converge.deployment import PHASES, PlanRunner
from deploy.converge.recap import Recap
from tests.deploy.converge.pi import thesis, wish_for
from tests.deploy.over_ssh.nodes import fleet_of, trusting
from tests.deploy.over_ssh.sshd import Sshd, running_sshd

pytestmark = pytest.mark.usefixtures("sudo")


class Collecting(DeploymentDisplay):
    """Collects the lines."""

    def __init__(self, told: list[tuple[str, str]]) -> None:
        self._told = told

    def line(self, node: str, line: str) -> None:
        self._told.append((node, line))


def change(*steps: Step) -> Change:
    return Change("file", "x", "create", "for a test", steps)


def carry_out(node: NodeConnection, phase: str, *changes: Change) -> list[float]:
    """Seconds of each change that was done."""
    done: list[float] = []
    apply(node, phase, changes, lambda change, seconds: done.append(seconds))
    return done


def failure(node: NodeConnection, *steps: Step) -> StepFailure:
    with pytest.raises(StepFailedError) as caught:
        carry_out(node, "prepare", change(*steps))
    return caught.value.record


def test_steps_are_done_in_order(node: NodeConnection, tmp_path: Path) -> None:
    given = tmp_path / "given"
    given.write_bytes(b"from stdin")
    seconds = carry_out(
        node,
        "prepare",
        change(
            Shell("make a folder", f"mkdir {tmp_path}/made"),
            Upload("write", b"uploaded", f"{tmp_path}/made/file", 0o604),
            Reconnect("once more"),
            Shell("take a file", f"cat >{tmp_path}/made/given", stdin=given),
            Upload("write", b"owned", f"{tmp_path}/made/owned", 0o600, owner="nobody"),
        ),
    )
    assert len(seconds) == 1
    assert seconds[0] > 0
    made = tmp_path / "made"
    assert (made / "file").read_bytes() == b"uploaded"
    assert (made / "file").stat().st_mode & 0o777 == 0o604
    assert (made / "given").read_bytes() == b"from stdin"
    assert (made / "owned").owner() == "nobody"
    assert sorted(path.name for path in made.iterdir()) == ["file", "given", "owned"]


def test_a_script_that_fails_is_a_record_of_everything(node: NodeConnection, tmp_path: Path) -> None:
    lines = "; ".join(f"echo line {number} >&2" for number in range(9))
    record = failure(
        node,
        Shell("install it", f"{lines}; exit 71", hint="free some space"),
        Shell("never", f"touch {tmp_path}/never"),
    )
    assert (record.node, record.phase, record.step, record.return_code) == ("node", "prepare", "install it", 71)
    assert record.command.endswith("exit 71")
    assert record.last_lines == tuple(f"line {number}" for number in range(3, 9))
    assert record.line == "node: install it (exit code 71): line 6 | line 7 | line 8; free some space"
    assert record.to_json()["hint"] == "free some space"
    assert not (tmp_path / "never").exists()


def test_a_script_that_says_nothing_has_its_stdout_or_nothing(node: NodeConnection) -> None:
    assert failure(node, Shell("quietly", "exit 3")).last_lines == ()
    assert failure(node, Shell("on stdout", "echo said; exit 3")).last_lines == ("said",)


def test_an_overdue_step_is_ended_and_said_so(node: NodeConnection, tmp_path: Path) -> None:
    record = failure(node, Shell("wait", f"echo $$ >{tmp_path}/pid; sleep 1000", deadline_seconds=1.0))
    assert record.return_code is None
    assert record.last_lines[0].startswith("not done within 1 s and ended")
    pid = int((tmp_path / "pid").read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_file_that_cannot_be_written(node: NodeConnection, tmp_path: Path) -> None:
    record = failure(node, Upload("write it", b"x", f"{tmp_path}/missing/file"))
    assert record.step == "write it"
    assert f"{tmp_path}/missing/file" in record.last_lines[0]
    record = failure(node, Upload("give it away", b"x", f"{tmp_path}/file", owner="nobody-of-this-name"))
    assert record.return_code == 1
    assert "nobody-of-this-name" in record.last_lines[-1]


def published(folder: Path, **contents: bytes) -> tuple[PublishedFile, ...]:
    made = []
    for name, content in contents.items():
        (folder / name).write_bytes(content)
        made.append(PublishedFile(name, folder / name, hashlib.sha256(content).hexdigest(), len(content)))
    return tuple(made)


def test_a_folder_is_published_whole_and_only_what_is_missing_travels(node: NodeConnection, tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "srv" / ("0" * 16)
    here.mkdir()
    there.mkdir(parents=True)
    files = published(here, one=b"first", two=b"second" * 1000)
    (there / "one").write_bytes(b"first")
    before = (there / "one").stat().st_ino
    step = Publish("publish wheels", str(there), files, user=None)
    carry_out(node, "publish", change(step))
    assert (there / ".complete").exists()
    assert (there / "two").read_bytes() == b"second" * 1000
    assert (there / "one").stat().st_ino == before
    assert oct((there / "two").stat().st_mode & 0o444) == "0o444"


def test_what_changed_here_while_it_was_sent_is_not_published(node: NodeConnection, tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "srv" / ("0" * 16)
    here.mkdir()
    files = published(here, one=b"first")
    (here / "one").write_bytes(b"other")
    record = failure(node, Publish("publish wheels", str(there), files, user=None))
    assert record.return_code == 72
    assert "publish it again" in record.line
    assert not (there / ".complete").exists()


Told = list[tuple[str, str]]


def deploy(
    places: list[tuple[str, Sshd]], folder: Path, steps_of: Callable[[str], tuple[Step, ...]], parallel: int = 16
) -> tuple[Recap, Told]:
    told: Told = []
    pinned = trusting(folder, *dict.fromkeys(server for _, server in places))
    recap = Recap("start", "thesis", tuple(name for name, _ in places))
    with fleet_of(pinned, places, parallel) as fleet:
        deployment = PlanRunner(fleet, wish_for(thesis()), recap, Collecting(told))
        plans: Mapping[str, dict[str, tuple[Change, ...]]] = {
            phase: {name: (change(*steps_of(name)), change(*steps_of(name))) for name, _ in places}
            for phase in ("prepare", "code")
        }
        assert deployment.carry_out(plans, ("prepare", "code"))
        return deployment.finish(), told


_KILL_SSHD = (
    "pid=$$; while :; do pid=$(ps -o ppid= -p $pid | tr -d ' '); "
    '[ "$(ps -o comm= -p $pid)" = sshd ] && break; done; kill -9 $pid; sleep 30'
)
LOSE_IT: tuple[Step, ...] = (Shell("lose the node", _KILL_SSHD, deadline_seconds=25.0),)
"""Kills the sshd that serves the connection: the nearest ancestor of that name."""


def test_a_node_that_is_lost_in_a_phase_leaves_the_run_and_the_others_go_on(sshd: Sshd, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    with running_sshd(tmp_path / "other") as doomed:
        places = [("rpi01", sshd), ("rpi02", doomed), ("rpi03", sshd)]

        recap, told = deploy(places, tmp_path, lambda name: LOSE_IT if name == "rpi02" else (Shell("be", "true"),))
    assert recap.failed == ("rpi02",)
    lost = recap.failures["rpi02"]
    assert (lost.phase, lost.step, lost.return_code) == ("prepare", "lose the node", None)
    assert "the connection broke" in lost.last_lines[0]
    assert [row[-1] for row in recap.rows()] == ["changed", "failed", "changed"]
    assert recap.changed == 8
    assert recap.seconds > 0
    assert len([line for name, line in told if name == "rpi02"]) == 1


def test_a_failing_step_keeps_its_node_out_of_the_next_phase(sshd: Sshd, tmp_path: Path) -> None:
    def steps_of(name: str) -> tuple[Step, ...]:
        return (Shell("fail", "exit 4"),) if name == "rpi02" else (Shell("be", "true"),)

    recap, _ = deploy([("rpi01", sshd), ("rpi02", sshd)], tmp_path, steps_of)
    assert recap.failures["rpi02"].return_code == 4
    assert recap.rows()[1] == ("rpi02", "failed", "-", "failed")


@pytest.mark.parametrize(
    ("doomed", "phase", "note"),
    [
        ("rpi11", "storage", "stopped after storage: nothing can be shared without rpi11"),
        ("rpi11", "code", "roles were not started: ps:0 is on rpi11; coordinator:0 is on rpi11"),
        ("rpi01", "code", ""),
    ],
)
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
        deployment = PlanRunner(fleet, wish_for(thesis()), recap, SILENT)
        assert deployment.carry_out(plans) is (note == "")
    assert " ".join(recap.notes).startswith(note)
    assert recap.failed == (doomed,)
    assert (tmp_path / "started").exists() is (note == "")
