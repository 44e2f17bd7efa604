import os
import select
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from cluster.errors import ExitCode
from cluster.server.probe import answers
from tests.server.processes import HANG_SECONDS, PROJECT, Role, command, free_ports, launch, notified, running

MEBIBYTE = 2**20


def get(role: Role, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{role.metrics_port}{path}", timeout=HANG_SECONDS) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def sample(text: str, name: str) -> float:
    lines = [line for line in text.splitlines() if line.startswith(name + "{")]
    assert len(lines) == 1, (name, text)
    return float(lines[0].rpartition(" ")[2])


def test_a_ps_is_ready_once_its_port_answers_and_fits_its_memory() -> None:
    with running("ps_node") as role:
        assert answers("127.0.0.1", role.port, HANG_SECONDS)
        assert get(role, "/ready") == (200, "ready\n")
        status, text = get(role, "/metrics")
        assert status == 200
        assert sample(text, "pscluster_process_anonymous_bytes") < 100e6
        assert sample(text, "pscluster_process_file_backed_bytes") > 0
        assert sample(text, "pscluster_node_memory_total_bytes") > sample(text, "pscluster_node_memory_available_bytes")
        assert 'role="ps",task="0"' in text
        assert 'server="lean"' in text
        assert get(role, "/nothing")[0] == 404


def test_python_never_imports_tensorflow_in_a_lean_role() -> None:
    with running("worker_node", task=3) as role:
        mapped = Path(f"/proc/{role.process.pid}/maps").read_text()
        assert "libtensorflow_cc" in mapped
        assert "_pywrap_tensorflow" not in mapped
        assert "_multiarray_umath" not in mapped  # numpy


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_role_and_frees_its_ports_at_once(number: signal.Signals) -> None:
    with running("worker_node", "--peers", "2", task=1) as role, socket.create_connection(("127.0.0.1", role.port)):
        role.process.send_signal(number)
        output = role.output()
        assert role.process.returncode == ExitCode.DONE, output
        assert f"worker:1 127.0.0.1:{role.port}: stopped by {number.name}" in output
        # The connection above leaves the port in TIME_WAIT or FIN_WAIT, which must not keep the next one out.
        with running("worker_node", "--peers", "2", task=1, ports=[role.port, role.metrics_port]) as again:
            assert answers("127.0.0.1", again.port, HANG_SECONDS)


def test_a_stopped_role_does_not_answer_though_its_port_accepts() -> None:
    with running("ps_node") as role:
        role.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, role.process.pid, os.WSTOPPED)  # returns once every thread has stopped
        with socket.create_connection(("127.0.0.1", role.port), HANG_SECONDS):
            assert not answers("127.0.0.1", role.port, 0.3)
        role.process.send_signal(signal.SIGCONT)
        assert answers("127.0.0.1", role.port, HANG_SECONDS)


@pytest.mark.parametrize("which", ["tensorflow", "metrics"])
def test_a_taken_port_is_one_line_with_its_own_exit_code(which: str) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        taken, (free,) = holder.getsockname()[1], free_ports(1)
        port, metrics_port = (taken, free) if which == "tensorflow" else (free, taken)
        flags = ["--task", "0", "--host", "127.0.0.1", "--port", str(port), "--metrics-port", str(metrics_port)]
        process = launch("ps_node", flags)
        output = process.communicate(timeout=HANG_SECONDS)[0]
    assert process.returncode == ExitCode.PORT_TAKEN
    assert len(output.splitlines()) == 1
    assert f"port {taken} for the" in output
    assert f"is taken by process {os.getpid()}" in output


def test_too_little_address_space_is_one_line_with_its_own_exit_code() -> None:
    port, metrics_port = free_ports(2)
    flags = ["--task", "0", "--host", "127.0.0.1", "--port", str(port), "--metrics-port", str(metrics_port)]
    limited = ["sh", "-c", 'ulimit -v 1000000; exec "$@"', "sh", *command("ps_node", flags)]
    ended = subprocess.run(limited, cwd=PROJECT, capture_output=True, text=True, timeout=HANG_SECONDS)
    assert ended.returncode == ExitCode.TOO_LITTLE_MEMORY
    assert len(ended.stderr.splitlines()) == 1
    assert ended.stderr.startswith(f"ps:0 127.0.0.1:{port}: a lean server needs")


def test_a_role_dies_with_its_parent() -> None:
    port, metrics_port = free_ports(2)
    flags = ["--task", "0", "--host", "127.0.0.1", "--port", str(port), "--metrics-port", str(metrics_port)]
    with notified() as (address, wait):
        # The shell waits as the parent; the role's pid is what it prints.
        parent = subprocess.Popen(
            ["sh", "-c", '"$@" & echo $!; wait', "sh", *command("ps_node", [*flags, "--die-with-parent"])],
            cwd=PROJECT,
            env={**os.environ, "NOTIFY_SOCKET": address},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert parent.stdout is not None
        descriptor = os.pidfd_open(int(parent.stdout.readline()))
        try:
            assert wait(parent)
            parent.kill()
            parent.wait()
            ended = await_end(descriptor)
        finally:
            if not await_end(descriptor, 0):
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
            os.close(descriptor)
            parent.stdout.close()
    assert ended
    assert not answers("127.0.0.1", port, 1.0)


def test_a_role_whose_parent_is_another_does_not_start() -> None:
    process = launch(
        "ps_node",
        ["--task", "0", "--host", "127.0.0.1", "--port", "1", "--metrics-port", "1", "--die-with-parent", "1"],
    )
    output = process.communicate(timeout=HANG_SECONDS)[0]
    assert process.returncode == ExitCode.FAILED
    assert "the parent process 1 ended while this one started" in output


def test_a_role_finds_its_place_in_an_inventory() -> None:
    port, metrics_port = free_ports(2)
    inventory = PROJECT / "inventories" / "local.yaml"
    override = f"nodes.localhost.roles.2.worker={{port: {port}, metrics_port: {metrics_port}}}"
    with notified() as (address, wait):
        process = launch(
            "worker_node", ["--inventory", str(inventory), "--task", "1", "--set", override], {"NOTIFY_SOCKET": address}
        )
        try:
            assert wait(process)
            assert answers("127.0.0.1", port, HANG_SECONDS)
            arguments = Path(f"/proc/{process.pid}/cmdline").read_text().split("\0")
            assert "--inventory" not in arguments  # it has started over without what reading one costs
            assert arguments[arguments.index("--peers") + 1] == "2"
            assert arguments[arguments.index("--guard") + 1] == "loopback"
        finally:
            process.terminate()
            output = process.communicate(timeout=HANG_SECONDS)[0]
    assert f"worker:1 127.0.0.1:{port}: ready after" in output


def test_a_task_the_inventory_lacks_is_one_line() -> None:
    inventory = str(PROJECT / "inventories" / "local.yaml")
    process = launch("worker_node", ["--inventory", inventory, "--task", "7"])
    output = process.communicate(timeout=HANG_SECONDS)[0]
    assert process.returncode == ExitCode.BAD_USAGE
    assert len(output.splitlines()) == 1
    assert output.startswith("worker:7: ")


def await_end(descriptor: int, seconds: float = HANG_SECONDS) -> bool:
    """Whether the process of a pidfd ends within the time."""
    return bool(select.select([descriptor], [], [], seconds)[0])


def test_help_names_every_flag() -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "ps_node", "--help"], cwd=PROJECT, capture_output=True, text=True, timeout=HANG_SECONDS
    )
    assert shown.returncode == 0
    for flag in ("--inventory", "--set", "--task", "--server", "--guard", "--die-with-parent"):
        assert flag in shown.stdout
