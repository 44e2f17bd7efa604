"""`POST /restart`: who may, and what becomes of the process."""

import contextlib
import http.client
import queue

import pytest
from prometheus_client import CollectorRegistry

from cluster.control.actions import Actions
from cluster.control.client import MARK_HEADER
from cluster.control.rules import Rules
from cluster.errors import ExitCode
from cluster.metrics import exporter
from tests.control.asked import asked
from tests.habits import needs
from tests.server.namespaces import ADDRESSES, neighbour, why_not
from tests.server.processes import HANG_SECONDS, Role, free_ports, launch, notified, running

POST = """import http.client, sys
connection = http.client.HTTPConnection(sys.argv[1], int(sys.argv[2]), timeout=60)
connection.request("POST", "/restart", headers={"X-PSCluster-Request": "1"})
print(connection.getresponse().status)
connection.close()
"""


def ask(method: str, path: str, port: int, body: bytes = b"") -> tuple[int, str | None]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=HANG_SECONDS)
    try:
        connection.request(method, path, body, {MARK_HEADER: "1"})
        answer = connection.getresponse()
        answer.read()
        return answer.status, answer.headers[exporter.PROCESS_HEADER]
    finally:
        connection.close()


def restarted(role: Role) -> str:
    status, process = ask("POST", "/restart", role.metrics_port)
    assert status == 202
    output = role.output()
    assert role.process.returncode == ExitCode.RESTART_ASKED, output
    assert "restart asked for by 127.0.0.1" in output
    assert process is not None
    return process


def test_a_role_ends_on_request_and_the_next_process_is_told_apart() -> None:
    ports = free_ports(2)
    with running("worker_node", "--coordinator", "192.0.2.1", ports=ports) as role:
        status, first = ask("GET", "/ready", role.metrics_port)
        assert status == 200
        assert restarted(role) == first
    with running("worker_node", "--coordinator", "192.0.2.1", ports=ports) as role:
        assert ask("GET", "/ready", role.metrics_port)[1] not in (None, first)


def test_without_a_coordinator_nobody_may() -> None:
    with running("ps_node") as role:
        assert ask("POST", "/restart", role.metrics_port)[0] == 404
        assert ask("GET", "/ready", role.metrics_port)[0] == 200


@pytest.mark.parametrize(
    ("client", "own", "allowed"),
    [
        ("192.168.1.26", "192.168.1.17", True),
        ("::ffff:192.168.1.26", "::ffff:192.168.1.17", True),
        ("192.168.1.17", "192.168.1.17", True),
        ("127.0.0.1", "127.0.0.1", True),
        ("::1", "::1", True),
        ("fe80::1%eth0", "fe80::2%eth0", False),
        ("192.168.1.18", "192.168.1.17", False),
    ],
)
def test_the_coordinators_node_and_this_one_may(client: str, own: str, allowed: bool) -> None:
    request = asked("POST", "/restart", {"Host": "localhost", MARK_HEADER: "1"}, client, own)
    assert (Rules("192.168.1.26").refusal(request) is None) == allowed


@pytest.mark.parametrize(("coordinator", "status"), [(ADDRESSES[4][1], 202), ("192.0.2.1", 403)])
def test_a_neighbour_may_only_as_the_coordinators_node(coordinator: str, status: int) -> None:
    needs.possible(why_not())
    obeyed: queue.SimpleQueue[str] = queue.SimpleQueue()
    with neighbour() as other:
        actions, rules = Actions(restart=obeyed.put), Rules(coordinator)
        serving = exporter.serve(CollectorRegistry(), other.here[4], 0, lambda: True, actions=actions, rules=rules)
        try:
            answer, _ = other.python(POST, other.here[4], str(serving.port)).communicate(timeout=HANG_SECONDS)
        finally:
            serving.close()
        assert int(answer) == status
        if status == 202:
            assert obeyed.get(timeout=HANG_SECONDS) == ADDRESSES[4][1]
        assert obeyed.empty()


def test_a_body_is_read_and_other_paths_are_none() -> None:
    obeyed: queue.SimpleQueue[str] = queue.SimpleQueue()
    actions = Actions(restart=obeyed.put)
    serving = exporter.serve(CollectorRegistry(), "127.0.0.1", 0, lambda: True, actions=actions)
    try:
        assert ask("POST", "/ready", serving.port)[0] == 404
        assert ask("GET", "/restart", serving.port)[0] == 404
        assert obeyed.empty()
        assert ask("POST", "/restart", serving.port, b"x" * 5000)[0] == 202
        assert obeyed.get(timeout=HANG_SECONDS) == "127.0.0.1"
    finally:
        serving.close()


def test_a_process_that_is_only_starting_is_what_was_asked_for() -> None:
    obeyed: queue.SimpleQueue[str] = queue.SimpleQueue()
    starting = [True]
    actions = Actions(restart=obeyed.put, fresh=lambda: starting[0])
    serving = exporter.serve(CollectorRegistry(), "127.0.0.1", 0, lambda: True, actions=actions)
    try:
        assert ask("POST", "/restart", serving.port)[0] == 200
        assert obeyed.empty()
        starting[0] = False
        assert ask("POST", "/restart", serving.port)[0] == 202
        assert obeyed.get(timeout=HANG_SECONDS) == "127.0.0.1"
    finally:
        serving.close()


def test_a_role_that_is_asked_while_it_starts_becomes_ready() -> None:
    """Before READY=1 systemd would take its end for a failed start, and whoever waits for that start gives up."""
    ports = free_ports(2)
    where = ["--task", "0", "--host", "127.0.0.1", "--port", str(ports[0]), "--metrics-port", str(ports[1])]
    with notified() as (address, wait):
        process = launch("worker_node", [*where, "--coordinator", "192.0.2.1"], {"NOTIFY_SOCKET": address})
        try:
            statuses: list[int] = []
            while not statuses:  # its metrics port answers before TensorFlow is loaded
                assert process.poll() is None, process.communicate()[0]
                with contextlib.suppress(OSError):
                    statuses.append(ask("POST", "/restart", ports[1])[0])
            assert statuses == [200]
            assert wait(process)
            assert ask("GET", "/ready", ports[1])[0] == 200
        finally:
            process.kill()
            process.communicate()
