"""`POST /drain/worker:3`: who may, what is passed on, and what is answered."""

import http.client
from collections.abc import Iterator
from http import HTTPStatus

import pytest
from prometheus_client import CollectorRegistry

from cluster.control.actions import USUAL_SECONDS, Actions
from cluster.control.client import MARK_HEADER
from cluster.metrics import exporter
from tests.habits import needs
from tests.server.namespaces import neighbour, why_not
from tests.server.processes import HANG_SECONDS

POST = """import http.client, sys
connection = http.client.HTTPConnection(sys.argv[1], int(sys.argv[2]), timeout=60)
connection.request("POST", "/drain/worker:0", headers={"X-PSCluster-Request": "1"})
print(connection.getresponse().status)
connection.close()
"""


class Workers:
    """Drains worker:0 and no other; remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, float]] = []

    def drain(self, name: str, seconds: float) -> tuple[HTTPStatus, str]:
        self.asked.append((name, seconds))
        return (HTTPStatus.OK, "drained") if name == "worker:0" else (HTTPStatus.NOT_FOUND, "no such worker")


@pytest.fixture
def workers() -> Workers:
    return Workers()


@pytest.fixture
def port(workers: Workers) -> Iterator[int]:
    actions = Actions(workers.drain)
    serving = exporter.serve(CollectorRegistry(), "127.0.0.1", 0, lambda: True, actions=actions)
    yield serving.port
    serving.close()


def post(port: int, target: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=HANG_SECONDS)
    try:
        connection.request("POST", target, b"read and thrown away", {MARK_HEADER: "1"})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def test_name_and_patience_are_passed_on(port: int, workers: Workers) -> None:
    assert post(port, "/drain/worker:0") == (200, "drained\n")
    assert post(port, "/drain/worker:0?seconds=2.5") == (200, "drained\n")
    assert post(port, "/drain/worker%3A1?seconds=0") == (404, "no such worker\n")
    assert workers.asked == [("worker:0", USUAL_SECONDS), ("worker:0", 2.5), ("worker:1", 0.0)]


@pytest.mark.parametrize("query", ["seconds=", "seconds=x", "seconds=-1", "seconds=nan", "seconds=3601", "x=1", "x"])
def test_a_patience_that_is_none_is_refused(port: int, workers: Workers, query: str) -> None:
    status, words = post(port, f"/drain/worker:0?{query}")
    assert (status, workers.asked) == (400, [])
    assert "expected ?seconds=N" in words
    assert query in words


def test_a_coordinator_cannot_be_restarted_by_it(port: int) -> None:
    assert post(port, "/restart")[0] == 404


def test_only_the_machine_itself_may(workers: Workers) -> None:
    needs.possible(why_not())
    with neighbour() as other:
        actions = Actions(workers.drain)
        serving = exporter.serve(CollectorRegistry(), other.here[4], 0, lambda: True, actions=actions)
        try:
            answer, _ = other.python(POST, other.here[4], str(serving.port)).communicate(timeout=HANG_SECONDS)
        finally:
            serving.close()
    assert (int(answer), workers.asked) == (403, [])
