"""A program on several nodes: the lead, and a runner for each worker, as units run them."""

import json
import math
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from threading import Event

import pytest

from cluster.programs.frames import (
    HEAD,
    Channel,
    FileTaker,
    FrameType,
    ProtocolError,
    greeting,
    key_of_runner,
)
from cluster.programs.group import Group, GroupMember
from cluster.programs.lead import LOST, Lead, RemoteProcess
from cluster.programs.program import ProgramMember
from cluster.programs.runner import RunnerTask, run, two_free
from cluster.programs.runner import _LeadConnection as Served
from core.ground.errors import ClusterError, ExitCode
from core.ground.parcel import blocks_of
from deploy.common.project import environment_for_any_folder
from deploy.jobs.program_task import (
    PROGRAM_ARCHIVE,
    TASK,
    ProgramTask,
    packed_program,
    run_task,
)
from deploy.jobs.records import JobFolder
from deploy.jobs.request import to_bytes
from tests.cluster.apps.trees import write_tree
from tests.deploy.playing import eventually, gone
from tests.hang import HANG_SECONDS
from tests.ports import free_ports

NAMES = ("worker:0", "worker:1")
HOSTS = dict.fromkeys(NAMES, "127.0.0.1")
FIRST, SECOND = (key_of_runner("secret", name) for name in NAMES)


class Nodes:
    """Two nodes in one folder, and their lead."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lead = Lead("127.0.0.1", 0, "secret", HOSTS)
        self.units: list[subprocess.Popen[bytes]] = []

    def begin(self, source: str) -> dict[str, RemoteProcess]:
        """The runners of that program on both nodes, once the lead has them."""
        files = {"p.py": textwrap.dedent(source), "beside.py": "WORD = 'beside'\n"}
        with packed_program(write_tree(self.folder / "here", files) / "p.py") as packed:
            archive = b"".join(blocks_of(packed))
        ports = free_ports(8)
        for index, name in enumerate(NAMES):
            job = self.job(index)
            job.mkdir(parents=True)
            task = ProgramTask(
                f"127.0.0.1:{self.lead.port}",
                key_of_runner("secret", name),
                name,
                ports[index::2],
                "p.py",
            )
            (job / TASK).write_bytes(to_bytes(task))
            (job / PROGRAM_ARCHIVE).write_bytes(archive)
            self.units.append(self.runner(index))
        return dict(self.lead.gather(NAMES, lambda: False, 60.0))

    def job(self, index: int) -> Path:
        """The folder of the runner's job on that node."""
        return self.folder / f"node-{index}/jobs/20260101T0000-task"

    def runner(self, index: int) -> subprocess.Popen[bytes]:
        """Start the unit of that node's runner, as `fab` or a boot does."""
        job = self.job(index)
        words = [sys.executable, "-m", "deploy.jobs.node_job", job.name]
        return subprocess.Popen(
            [*words, "--root", str(job.parents[1])], env=environment_for_any_folder()
        )

    def run(self, processes: dict[str, RemoteProcess]) -> tuple[Group, list[bytes]]:
        """The program to its end, and what it said on each node."""
        heard = [bytearray(), bytearray()]
        members = [
            GroupMember(ProgramMember(name, "node", "127.0.0.1", 0), processes[name], one.extend)
            for name, one in zip(NAMES, heard, strict=True)
        ]
        group = Group(members, lambda: False)
        group.run()
        return group, [bytes(one) for one in heard]

    def begin_and_run(self, source: str) -> tuple[Group, list[bytes]]:
        """Both, with a rank and arguments for each process."""
        processes = self.begin(source)
        for index, name in enumerate(NAMES):
            folder = self.folder / "run" / str(index)
            processes[name].begin({"RANK": str(index)}, ["a b", "'"], folder)
        return self.run(processes)

    def end(self) -> list[int]:
        self.lead.close(last=True)
        return [unit.wait(timeout=HANG_SECONDS) for unit in self.units]


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    made = Nodes(tmp_path)
    yield made
    for unit in made.units:
        if unit.poll() is None:
            unit.send_signal(signal.SIGINT)
    made.end()


def test_a_program_runs_on_each_node_and_its_files_come_back(nodes: Nodes) -> None:
    group, heard = nodes.begin_and_run(
        """
        import os, sys, beside
        os.makedirs("deep")
        open("deep/made.bin", "wb").write(os.environ["RANK"].encode() * 3_000_000)
        os.symlink("/etc/passwd", "link")
        print(beside.WORD, sys.argv[1:], "PSCLUSTER_PROGRAM_TOKEN" in os.environ)
        """
    )
    assert heard == [b"beside ['a b', \"'\"] False\n"] * 2
    assert [part.return_code for part in group.members] == [0, 0]
    for rank in ("0", "1"):
        found = nodes.folder / "run" / rank
        assert (found / "deep/made.bin").read_bytes() == rank.encode() * 3_000_000
        assert not (found / "link").exists()
    assert nodes.end() == [0, 0]


def test_a_node_that_is_lost_ends_the_program(nodes: Nodes) -> None:
    started = nodes.folder / "started"
    processes = nodes.begin(f"import time\nopen({str(started)!r}, 'w').close()\ntime.sleep(600)")
    for process in processes.values():
        process.begin({}, [], nodes.folder / "run")
    eventually(started.exists, "the program's start")
    nodes.units[1].kill()
    group, _ = nodes.run(processes)
    assert group.first_failed is group.members[1]
    assert [part.return_code for part in group.members] == [-signal.SIGTERM, LOST]


def test_the_next_lead_begins_again_on_the_same_runners_and_on_one_that_booted(
    nodes: Nodes,
) -> None:
    """The coordinator was killed: a member of a dead group is useless, its runner is not."""
    started = nodes.folder / "started"
    source = f"""
        import os, time
        if os.environ["RANK"] == "0":
            with open({str(started) + ".tmp"!r}, "w") as file:
                file.write(str(os.getpid()))
            os.rename(file.name, {str(started)!r})
            time.sleep(600)
        print("done")
        """
    processes = nodes.begin(source)
    processes[NAMES[0]].begin({"RANK": "0"}, [], nodes.folder / "run")
    eventually(started.exists, "the program's start")
    nodes.lead.close(last=False)
    eventually(lambda: gone(int(started.read_text())), "the end of the program")
    nodes.units[1].kill()
    nodes.units[1].wait(HANG_SECONDS)
    nodes.units[1] = nodes.runner(1)
    nodes.lead = Lead("127.0.0.1", nodes.lead.port, "secret", HOSTS)
    processes = dict(nodes.lead.gather(NAMES, lambda: False, 60.0))
    for process in processes.values():
        process.begin({"RANK": "1"}, [], nodes.folder / "run")
    group, heard = nodes.run(processes)
    assert ([part.return_code for part in group.members], heard) == ([0, 0], [b"done\n"] * 2)
    assert nodes.end() == [0, 0]


def test_the_lead_takes_a_member_from_its_node_with_its_key_alone(
    nodes: Nodes, caplog: pytest.LogCaptureFixture
) -> None:
    ports = {"port": 2000, "second_port": 2001}
    address = ("127.0.0.1", nodes.lead.port)
    # Who knows nothing, who is root of another worker's node, and a stolen key from elsewhere.
    for key, here in (("wrong", 1), ("secret", 1), (SECOND, 1), (FIRST, 2)):
        with socket.create_connection(address, source_address=(f"127.0.0.{here}", 0)) as alien:
            Channel(alien).send(FrameType.HELLO, {**greeting(alien, key, "worker:0"), **ports})
    with socket.create_connection(address) as alien:
        Channel(alien).send(FrameType.HELLO, {"proof": "\ud800", **ports})
        with pytest.raises(
            ClusterError, match="worker:0, worker:1: no runner connected within 1 s"
        ):
            nodes.lead.gather(NAMES, lambda: False, 1.0)
        assert alien.recv(1) == b""
    refused, said = (record.getMessage() for record in caplog.records)
    assert "key of worker:0 connected from 127.0.0.2, expected 127.0.0.1" in refused
    assert said == "waiting for worker:0, worker:1 to connect, at most 1 s in all"


def test_who_has_proven_nothing_keeps_no_runner_out_and_fills_no_memory(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cluster.programs.lead.MOST_WAITING", 2)
    address = ("127.0.0.1", nodes.lead.port)
    with ExitStack() as stack:
        *_, runner = (stack.enter_context(socket.create_connection(address)) for _ in range(4))
        told = greeting(runner, FIRST, "worker:0")
        Channel(runner).send(FrameType.HELLO, {**told, "port": 2000, "second_port": 2001})
        assert "worker:0" in nodes.lead.gather(["worker:0"], lambda: False, 2.0)
    with socket.create_connection(address) as alien:
        alien.sendall(HEAD.pack(1 << 20, FrameType.HELLO))
        alien.settimeout(0.0)

        def is_hung_up() -> bool:
            with suppress(BlockingIOError):
                return alien.recv(1) == b""
            return False

        nodes.lead.gather(NAMES, is_hung_up, 2.0)


def test_a_runner_tells_another_process_nothing_and_obeys_it_in_nothing(tmp_path: Path) -> None:
    """One that has the lead's port: what it sends would be executed."""
    made = tmp_path / "executed"
    program = write_tree(tmp_path, {"p.py": f"open({str(made)!r}, 'w')"}) / "p.py"
    task = RunnerTask(("", 1), "secret", "worker:0", free_ports(2), program, tmp_path / "files")
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname()) as ours,
        listener.accept()[0] as theirs,
    ):
        Channel(theirs).send(FrameType.START, {"variables": {}, "arguments": []})
        assert not Served(task, ours).serve(math.inf)
        heard = theirs.recv(4096)
    assert (b"worker:0" in heard, b"secret" in heard, made.exists()) == (True, False, False)


def test_a_runner_ends_where_another_program_has_its_lead_s_port(tmp_path: Path) -> None:
    """After a reboot, say: that lead refuses it each time, or is busy and accepts none."""
    lead = Lead("127.0.0.1", 0, "another", HOSTS)
    address = ("127.0.0.1", lead.port)
    task = RunnerTask(address, FIRST, "worker:0", free_ports(2), Path("p.py"), tmp_path / "files")
    refused = f"127.0.0.1:{lead.port}: expected the lead of the program, got no proof .* busy$"
    with pytest.raises(ClusterError, match=refused):
        run(task, proof_seconds=0.2)
    is_over = Event()
    with ThreadPoolExecutor(1) as pool:
        gathering = pool.submit(lead.gather, NAMES, is_over.is_set, HANG_SECONDS)
        with pytest.raises(ClusterError, match=refused):
            run(task, proof_seconds=0.2)
        is_over.set()
        assert gathering.result() == {}
    lead.close(last=True)
    with pytest.raises(ClusterError, match="Connection refused: it has ended"):
        run(task, 0.2)


def test_a_second_program_takes_other_ports_of_the_node() -> None:
    taken, *others = free_ports(3)
    with socket.create_server(("", taken)):
        assert two_free((taken, *others)) == tuple(others)
        with pytest.raises(ClusterError, match=r"expected two free ports of .*, found 1"):
            two_free((taken, others[0]))


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ("0123456789abcdef", "the packages of the program are gone"),
        ("../../x", "expected the key"),
    ],
)
def test_a_runner_whose_packages_are_gone_says_so(
    tmp_path: Path, environment: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    program = write_tree(tmp_path / "here", {"p.py": ""}) / "p.py"
    (tmp_path / TASK).write_bytes(
        to_bytes(ProgramTask("127.0.0.1:1", "", "worker:0", (), "p.py", environment))
    )
    with packed_program(program) as archive:
        (tmp_path / PROGRAM_ARCHIVE).write_bytes(b"".join(blocks_of(archive)))
    assert run_task(JobFolder(tmp_path)) == ExitCode.FAILED
    assert words in capsys.readouterr().err


def test_a_lead_without_a_token_listens_to_nobody() -> None:
    with pytest.raises(ClusterError, match="expected the token of the job"):
        Lead("127.0.0.1", 0, "", {})


def test_a_disk_that_takes_no_files_costs_the_files_alone(tmp_path: Path) -> None:
    (tmp_path / "full").touch()  # a file where the folder would be: as a full disk, an OSError
    ours, theirs = socket.socketpair()
    with ours, theirs:
        process = RemoteProcess(Channel(ours), (2000, 2001))
        process.begin({}, [], tmp_path / "full" / "files")
        Channel(theirs).send(FrameType.FILE, {"path": "a"})
        Channel(theirs).send(FrameType.BYTES, b"content")
        Channel(theirs).send(FrameType.OUTPUT, b"done\n")
        Channel(theirs).send(FrameType.ENDED, {"return_code": 0})
        heard = process.read_output() or b""
    said = f"its files are not all here: {tmp_path}/full/files: Not a directory\ndone\n"
    assert heard.decode() == said
    assert process.poll() == 0


@pytest.mark.parametrize("path", ["../x", "/etc/x", "a/../../x", "", "a\0b", "x" * 300, "\ud800"])
def test_a_file_never_lands_elsewhere(tmp_path: Path, path: str) -> None:
    with pytest.raises(ProtocolError):
        FileTaker(tmp_path / "files").begin(json.loads(json.dumps({"path": path})))
    assert not (tmp_path / "x").exists()
