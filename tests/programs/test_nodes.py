"""A program on several nodes: the lead, and a runner for each worker, here as units would run them."""

import json
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from cluster.errors import ClusterError, ExitCode
from cluster.inventory.templates import free_ports
from cluster.programs.files import FileTaker
from cluster.programs.frames import Frames, Kind, ProtocolError, send
from cluster.programs.group import Group, Part
from cluster.programs.lead import LOST, Lead, RemoteProcess
from cluster.programs.roster import Member
from deploy.common.project import environment_for_any_folder
from deploy.jobs.node_job.program_task import TASK, ProgramTask, run_task
from deploy.jobs.node_job.records import JobFolder
from deploy.jobs.program_files import ARCHIVE, packed
from tests.deploy.playing import eventually

NAMES = ("worker:0", "worker:1")


class Nodes:
    """Two nodes in one folder, and their lead."""

    def __init__(self, folder: Path, source: str) -> None:
        self.folder = folder
        program = folder / "here" / "p.py"
        program.parent.mkdir()
        program.write_text(textwrap.dedent(source))
        (program.parent / "beside.py").write_text("WORD = 'beside'\n")
        self.lead = Lead("127.0.0.1", 0, "secret")
        self.units: list[subprocess.Popen[str]] = []
        self._ports = free_ports(8)
        self._archive = packed(program)

    def begin(self, token: str = "secret") -> None:
        for index, name in enumerate(NAMES):
            job = self.folder / f"node-{index}" / "jobs" / "20260101T0000-task"
            job.mkdir(parents=True)
            ports = self._ports[index::2]
            task = ProgramTask(f"127.0.0.1:{self.lead.port}", token, name, ports, "p.py")
            (job / TASK).write_bytes(task.to_bytes())
            (job / ARCHIVE).write_bytes(self._archive)
            words = [sys.executable, "-m", "deploy.jobs.node_job", job.name, "--root", str(job.parents[1])]
            self.units.append(subprocess.Popen(words, env=environment_for_any_folder(), text=True))

    def run(self) -> tuple[Group, list[bytes]]:
        processes = self.lead.gather(NAMES, lambda: False, 60.0)
        heard = [bytearray(), bytearray()]
        parts = []
        for index, name in enumerate(NAMES):
            processes[name].begin({"RANK": str(index)}, ["a b", "'"], self.folder / "run" / str(index))
            part = Part(Member(name, f"node-{index}", "127.0.0.1", 0, index), processes[name], heard[index].extend)
            parts.append(part)
        group = Group(parts, lambda: False)
        group.run()
        return group, [bytes(one) for one in heard]

    def end(self) -> None:
        for unit in self.units:
            if unit.poll() is None:
                unit.send_signal(signal.SIGINT)
            unit.wait(timeout=60)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as held:
        yield held


def nodes(stack: ExitStack, folder: Path, source: str) -> Nodes:
    made = Nodes(folder, source)
    stack.callback(made.end)
    stack.callback(made.lead.close, True)
    return made


def test_a_program_runs_on_each_node_and_its_files_come_back(stack: ExitStack, tmp_path: Path) -> None:
    made = nodes(
        stack, tmp_path,
        """
        import os, sys, beside
        os.makedirs("deep")
        open("deep/made.bin", "wb").write(os.environ["RANK"].encode() * 3_000_000)
        os.symlink("/etc/passwd", "link")
        print(beside.WORD, sys.argv[1:], "PSCLUSTER_PROGRAM_TOKEN" in os.environ)
        """,
    )  # fmt: skip
    made.begin()
    group, heard = made.run()
    assert heard == [b"beside ['a b', \"'\"] False\n"] * 2
    assert [part.return_code for part in group.parts] == [0, 0]
    for rank in ("0", "1"):
        found = tmp_path / "run" / rank
        assert (found / "deep" / "made.bin").read_bytes() == rank.encode() * 3_000_000
        assert not (found / "link").exists()
    made.lead.close(last=True)
    assert [unit.wait(timeout=60) for unit in made.units] == [0, 0]


def test_one_that_fails_ends_the_other(stack: ExitStack, tmp_path: Path) -> None:
    source = "import os, sys, time\nif os.environ['RANK'] == '1': sys.exit(7)\ntime.sleep(600)"
    made = nodes(stack, tmp_path, source)
    made.begin()
    group, _ = made.run()
    assert group.first_failed is not None
    assert (group.first_failed.member.name, group.first_failed.return_code) == ("worker:1", 7)
    assert group.parts[0].return_code == -signal.SIGTERM


def test_a_node_that_is_lost_ends_the_program(stack: ExitStack, tmp_path: Path) -> None:
    started = tmp_path / "started"
    made = nodes(stack, tmp_path, f"import time\nopen({str(started)!r}, 'w').close()\ntime.sleep(600)")
    made.begin()
    processes = made.lead.gather(NAMES, lambda: False, 60.0)
    for name in NAMES:
        processes[name].begin({}, [], tmp_path / "run")
    eventually(started.exists, "the program's start")
    made.units[1].kill()
    parts = [Part(Member(name, "here", "127.0.0.1", 0), processes[name], lambda piece: None) for name in NAMES]
    group = Group(parts, lambda: False)
    group.run()
    assert group.first_failed is parts[1]
    assert parts[1].return_code == LOST


def test_the_lead_takes_nobody_without_the_token(
    stack: ExitStack, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made = nodes(stack, tmp_path, "")
    with socket.create_connection(("127.0.0.1", made.lead.port)) as alien:
        send(alien, Kind.HELLO, {"token": "wrong", "member": "worker:0", "port": 2000, "second_port": 2001})
    with socket.create_connection(("127.0.0.1", made.lead.port)) as alien:
        send(alien, Kind.HELLO, {"token": "\ud800", "member": "worker:0", "port": 2000, "second_port": 2001})
        with pytest.raises(ClusterError, match="worker:0, worker:1: no runner connected within 1 s"):
            made.lead.gather(NAMES, lambda: False, 1.0)
        assert alien.recv(1) == b""
    (said,) = [record.getMessage() for record in caplog.records]
    assert said == "waiting for worker:0, worker:1 to connect, at most 1 s in all"


@pytest.mark.parametrize(
    ("environment", "words"),
    [("0123456789abcdef", "expected the packages of the program, they are gone"), ("../../x", "expected the key")],
)
def test_a_runner_whose_packages_are_gone_says_so(
    tmp_path: Path, environment: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / "here" / "p.py"
    program.parent.mkdir()
    program.touch()
    (tmp_path / TASK).write_bytes(ProgramTask("127.0.0.1:1", "", "worker:0", (), "p.py", environment).to_bytes())
    (tmp_path / ARCHIVE).write_bytes(packed(program))
    assert run_task(JobFolder(tmp_path)) == ExitCode.FAILED
    assert words in capsys.readouterr().err


def test_a_lead_without_a_token_listens_to_nobody() -> None:
    with pytest.raises(ClusterError, match="expected the token of the job"):
        Lead("127.0.0.1", 0, "")


def test_a_disk_that_takes_no_files_costs_the_files_alone(tmp_path: Path) -> None:
    (tmp_path / "full").touch()  # a file where the folder would be: as a full disk, an OSError
    ours, theirs = socket.socketpair()
    with ours, theirs:
        process = RemoteProcess(ours, (2000, 2001), Frames())
        process.begin({}, [], tmp_path / "full" / "files")
        send(theirs, Kind.FILE, {"path": "a"})
        send(theirs, Kind.BYTES, b"content")
        send(theirs, Kind.OUTPUT, b"done\n")
        send(theirs, Kind.ENDED, {"return_code": 0})
        heard = process.read()
    assert heard == f"its files are not all here: {tmp_path}/full/files: Not a directory\ndone\n".encode()
    assert process.poll() == 0


@pytest.mark.parametrize("path", ["../x", "/etc/x", "a/../../x", "", "a\0b", "x" * 300, "\ud800"])
def test_a_file_never_lands_elsewhere(tmp_path: Path, path: str) -> None:
    with pytest.raises(ProtocolError):
        FileTaker(tmp_path / "files").begin(json.loads(json.dumps({"path": path})))
    assert not (tmp_path / "x").exists()
