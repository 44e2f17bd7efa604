"""`POST /run/ID`: who may, and what becomes of the role's log."""

import json

import pytest
from prometheus_client import CollectorRegistry

from cluster.control.actions import Actions
from cluster.control.client import MARK_HEADER
from cluster.control.rules import Rules
from cluster.logs.lines import read_line
from cluster.metrics import exporter
from tests.control.asked import asked
from tests.control.test_restart import ask
from tests.server.processes import Role, launch, running

RUN = "20261121T224500Z-train"


def told(role: Role, *paths: str) -> list[int]:
    return [ask("POST", path, role.metrics_port)[0] for path in paths]


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_a_role_names_the_run_from_its_beginning_to_its_end(log_format: str) -> None:
    with running("worker_node", "--log-format", log_format) as role:
        paths = (f"/run/{RUN}", f"/run/{RUN}", "/run/another/end", f"/run/{RUN}/end", f"/run/{RUN}/end", "/run/other")
        assert told(role, *paths) == [200] * len(paths)
        role.process.terminate()
        lines = [read_line(line) for line in role.output().splitlines()]
    assert [(line.message, line.run) for line in lines[-4:] if line] == [
        (f"run {RUN} begins", RUN),
        (f"run {RUN} is over", RUN),
        ("run other begins", "other"),
        ("stopped by SIGTERM", "other"),
    ]
    assert {(line.role, line.address) for line in lines if line} == {("worker:0", f"127.0.0.1:{role.port}")}


def test_every_line_of_a_role_is_json_also_its_last_words() -> None:
    with running("ps_node", "--log-format", "json", "--log-level", "debug") as role:
        assert told(role, f"/run/{RUN}", f"/run/{RUN}") == [200, 200]
        flags = ["--task", "1", "--host", "127.0.0.1", "--port", str(role.port), "--metrics-port", "1"]
        second = launch("ps_node", [*flags, "--log-format", "json"])
        words = [json.loads(line) for line in second.communicate(timeout=60)[0].splitlines()]
        assert words[-1]["level"] == "error"
        assert f"port {role.port}" in words[-1]["message"]
        role.process.terminate()
        lines = role.output().splitlines()
    ours = [line for line in lines if line.startswith("{")]
    levels = {json.loads(line)["level"] for line in ours}
    assert not [line for line in lines if "ps:0" in line and line not in ours]  # TensorFlow's own stay as they are
    assert levels == {"info"}


@pytest.mark.parametrize("run", ["", "-x", "a b", "a/b", "x" * 200, "a%0Ab", ".."])
def test_what_is_no_run_is_refused(run: str) -> None:
    heard: list[str] = []
    actions = Actions(begin_run=heard.append, end_run=heard.append)
    serving = exporter.serve(CollectorRegistry(), "127.0.0.1", 0, lambda: True, actions=actions)
    try:
        assert ask("POST", f"/run/{run}".replace(" ", "%20"), serving.port)[0] == 400
        assert ask("GET", "/run/x", serving.port)[0] == 404
        assert not heard
    finally:
        serving.close()


@pytest.mark.parametrize(
    ("coordinator", "client", "status"),
    [
        (None, "127.0.0.1", 200),
        (None, "192.168.1.26", 403),
        ("192.168.1.26", "192.168.1.26", 200),
        ("192.168.1.26", "192.168.1.18", 403),
    ],
)
def test_the_coordinators_node_and_this_one_may(coordinator: str | None, client: str, status: int) -> None:
    request = asked("POST", "/run/x", {"Host": "rpi01", MARK_HEADER: "1"}, client, "192.168.1.17")
    refusal = Rules(coordinator, ["rpi01"]).refusal(request)
    assert (200 if refusal is None else refusal[0]) == status
