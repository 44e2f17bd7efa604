import os
import shutil
import signal
import socket
from pathlib import Path

import pytest

from core.ground.errors import ExitCode
from core.server.sockets import answers
from tests.core.server.processes import (
    HANG_SECONDS,
    PROJECT,
    child_of_a_shell,
    ended,
    place,
    running,
)
from tests.ports import free_ports


def sample(text: str, name: str) -> float:
    (line,) = [line for line in text.splitlines() if line.startswith(name + "{")]
    return float(line.rpartition(" ")[2])


def test_a_ps_is_ready_once_its_port_answers_and_fits_its_memory() -> None:
    with running("ps_node") as role:
        assert answers("127.0.0.1", role.port, HANG_SECONDS)
        assert role.ask("/ready") == (200, "ready\n")
        assert [role.ask("/nothing")[0], role.ask("/restart", "POST")[0]] == [404, 404]
        status, text = role.ask("/metrics")
    assert status == 200
    assert sample(text, "pscluster_process_anonymous_bytes") < 75e6
    assert sample(text, "pscluster_process_file_backed_bytes") > 0
    available = sample(text, "pscluster_node_memory_available_bytes")
    assert sample(text, "pscluster_node_memory_total_bytes") > available
    assert 'role="ps",task="0"' in text
    assert 'server="lean"' in text


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_role_and_frees_its_ports_at_once(number: signal.Signals) -> None:
    with (
        running("worker_node", "--peers", "2", task=1) as role,
        socket.create_connection(("127.0.0.1", role.port)),
    ):
        role.process.send_signal(number)
        output = role.output()
        assert role.process.returncode == ExitCode.DONE, output
        assert f"worker:1 127.0.0.1:{role.port}: stopped by {number.name}" in output
        # The connection above leaves the port in TIME_WAIT or FIN_WAIT, which must not keep the
        # next one out.
        with running("worker_node", task=1, ports=[role.port, role.metrics_port]) as again:
            assert answers("127.0.0.1", again.port, HANG_SECONDS)


def test_a_stopped_role_does_not_answer_though_its_port_accepts() -> None:
    with running("ps_node") as role:
        role.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, role.process.pid, os.WSTOPPED)  # returns once every thread has stopped
        with socket.create_connection(("127.0.0.1", role.port), HANG_SECONDS):
            assert not answers("127.0.0.1", role.port, 0.3)
        role.process.send_signal(signal.SIGCONT)
        assert answers("127.0.0.1", role.port, HANG_SECONDS)


@pytest.mark.parametrize("which", [0, 1], ids=["tensorflow", "metrics"])
def test_a_taken_port_is_one_line_with_its_own_exit_code(which: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        ports = [*free_ports(2)]
        ports[which] = holder.getsockname()[1]
        code, (line,) = ended("ps_node", *place(ports[0], ports[1]))
    assert code == ExitCode.PORT_TAKEN
    assert f"port {ports[which]} for the" in line
    assert f"is taken by process {os.getpid()}" in line


def test_too_little_address_space_is_one_line_with_its_own_exit_code() -> None:
    port, metrics_port = free_ports(2)
    limited = ("sh", "-c", 'ulimit -v 1000000; exec "$@"', "sh")
    code, (line,) = ended("ps_node", *place(port, metrics_port), prefix=limited)
    assert code == ExitCode.TOO_LITTLE_MEMORY
    assert line.startswith(f"ps:0 127.0.0.1:{port}: a lean server needs")


def test_a_role_dies_with_its_parent() -> None:
    with child_of_a_shell("ps_node") as child:
        child.parent.kill()
        assert child.ends()
        assert not answers("127.0.0.1", child.port, 1.0)


def test_a_role_whose_parent_is_another_does_not_start() -> None:
    code, lines = ended("ps_node", *place(1, 1), "--die-with-parent", "1")
    assert code == ExitCode.FAILED
    assert "the parent process 1 ended while this one started" in "\n".join(lines)


def test_a_task_the_inventory_lacks_is_one_line(tmp_path: Path) -> None:
    # A copy: the shipped one may have a person's cluster beside it.
    inventory = shutil.copy(PROJECT / "inventories" / "local.yaml", tmp_path)
    code, (line,) = ended("worker_node", "--inventory", str(inventory), "--task", "7")
    assert code == ExitCode.BAD_USAGE
    assert line.startswith("worker:7: ")
