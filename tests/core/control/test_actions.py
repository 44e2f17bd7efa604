"""`POST /drain/worker:3`, `/restart` and `/run/ID`: what is passed on, and what a role does."""

import contextlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from queue import SimpleQueue
from typing import Any

import pytest

from core.control.actions import Actions
from core.control.client import Answer, NoAnswerError, ask, key_of
from core.control.own_state import KEY_VARIABLE, VARIABLE
from core.control.requests import Rules
from core.control.server import PROCESS_HEADER
from core.ground.errors import ExitCode
from core.logs.lines import read_line
from tests.core.control.asked import obeying
from tests.core.control.test_rules import TOKEN
from tests.core.server.namespaces import ADDRESSES, neighbour, why_not
from tests.core.server.processes import (
    HANG_SECONDS,
    asked,
    ended,
    launch,
    notified,
    place,
    running,
)
from tests.habits import needs
from tests.ports import free_ports
from tests.tables import table

COORDINATOR = ("--coordinator", "192.0.2.1")
RUN = "20261121T224500Z-train"
POST = """import http.client, sys
connection = http.client.HTTPConnection(sys.argv[1], int(sys.argv[2]), timeout=60)
connection.request("POST", sys.argv[3], headers={"X-PSCluster-Request": "1"})
print(connection.getresponse().status)
connection.close()
"""


@dataclass
class Obedient:
    """Does what it is asked, and has a queue of that; drains worker:0 and no other."""

    heard: "SimpleQueue[tuple[Any, ...]]" = field(default_factory=SimpleQueue)
    starting: bool = False

    @property
    def actions(self) -> Actions:
        return Actions(
            self.drain,
            partial(self.note, "restart"),
            lambda: self.starting,
            partial(self.note, "run"),
            partial(self.note, "end"),
        )

    def drain(self, name: str, seconds: float) -> tuple[HTTPStatus, str]:
        self.heard.put(("drain", name, seconds))
        if name == "worker:0":
            return HTTPStatus.OK, "drained"
        return HTTPStatus.NOT_FOUND, "no such worker"

    def note(self, what: str, value: str) -> None:
        self.heard.put((what, value))

    def heard_nothing_but(self, *expected: tuple[Any, ...]) -> None:
        """A restart comes after its answer."""
        assert [self.heard.get(timeout=HANG_SECONDS) for _ in expected] == list(expected)
        assert self.heard.empty()


@pytest.mark.parametrize(
    "row",
    [
        *table("core/control/tables", "asked"),
        ("/run/" + "x" * 200, 400, "expected /run/ID or /run/ID/end"),
    ],
)
def test_what_is_asked_is_passed_on_or_refused(row: Sequence[Any]) -> None:
    path, status, words, *heard = row
    process = Obedient()
    with obeying(process.actions) as port:
        answer = asked(port, path, "POST", body=b"read and thrown away" * 300)
        assert answer.status == status
        assert answer.text.startswith(words)
        process.heard_nothing_but(*map(tuple, heard))


@pytest.mark.parametrize("path", ["/restart", "/run/x"])
def test_reading_causes_nothing_and_who_has_no_such_action_does_not_know_it(path: str) -> None:
    process = Obedient()
    with obeying(process.actions) as port, obeying(Actions(process.drain)) as coordinator:
        assert asked(port, path).status == 404
        assert asked(coordinator, path, "POST").status == 404
        process.heard_nothing_but()


def test_a_process_that_is_only_starting_is_what_was_asked_for() -> None:
    process = Obedient(starting=True)
    with obeying(process.actions) as port:
        assert asked(port, "/restart", "POST").status == 200
        process.heard_nothing_but()
        process.starting = False
        assert asked(port, "/restart", "POST").status == 202
        process.heard_nothing_but(("restart", "127.0.0.1"))


@pytest.mark.parametrize(
    ("path", "coordinator", "status", "heard"),
    [
        ("/drain/worker:0", ADDRESSES[4][1], 403, []),
        ("/restart", ADDRESSES[4][1], 202, [("restart", ADDRESSES[4][1])]),
        ("/restart", "192.0.2.1", 403, []),
    ],
)
def test_a_neighbour_may_only_as_the_coordinators_node_and_drain_nobody(
    path: str, coordinator: str, status: int, heard: list[tuple[str, str]]
) -> None:
    needs.possible(why_not())
    process = Obedient()
    with (
        neighbour() as other,
        obeying(process.actions, Rules(coordinator), other.here[4]) as port,
    ):
        there = other.python(POST, other.here[4], str(port), path)
        assert int(there.communicate(timeout=HANG_SECONDS)[0]) == status
        process.heard_nothing_but(*heard)


def test_a_role_ends_for_who_knows_the_token_and_the_next_process_is_told_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ports = free_ports(2)
    monkeypatch.setenv(VARIABLE, TOKEN)
    with running("worker_node", *COORDINATOR, ports=ports) as role:
        first = asked(role.metrics_port, "/ready")
        assert first.status == 200
        assert [role.ask(path, "POST")[0] for path in ("/restart", "/run/x")] == [403, 403]

        def said(path: str, key: str | None) -> Answer:
            place = f"127.0.0.1:{role.metrics_port}"
            return ask(place, "POST", path, deadline_seconds=HANG_SECONDS, key=key)

        with pytest.raises(NoAnswerError, match="does not know the expected key"):
            said("/restart", key_of(TOKEN, "worker:1"))
        own = key_of(TOKEN, "worker:0")
        assert said("/run/x", own).status == 200
        answer = said("/restart", own)
        assert (answer.status, answer.headers[PROCESS_HEADER.lower()]) == (
            202,
            first.headers[PROCESS_HEADER],
        )
        output = role.output()
        assert role.process.returncode == ExitCode.RESTART_ASKED, output
        assert "restart asked for by 127.0.0.1" in output
    monkeypatch.delenv(VARIABLE)
    monkeypatch.setenv(KEY_VARIABLE, str(own))
    with running("worker_node", *COORDINATOR, ports=ports) as role:
        again = asked(role.metrics_port, "/ready").headers
        assert again[PROCESS_HEADER] not in (None, first.headers[PROCESS_HEADER])
        assert role.ask("/run/x", "POST")[0] == 403, "an address of this machine is no proof"
        assert said("/run/x", own).status == 200


def test_a_role_that_is_asked_while_it_starts_becomes_ready() -> None:
    """Before READY=1 systemd would take its end for a failed start."""
    ports = free_ports(2)
    with notified() as (address, wait):
        process = launch("worker_node", [*place(*ports), *COORDINATOR], {"NOTIFY_SOCKET": address})
        try:
            statuses: list[int] = []
            while not statuses:  # its metrics port answers before TensorFlow is loaded
                assert process.poll() is None, process.communicate()[0]
                with contextlib.suppress(OSError):
                    statuses.append(asked(ports[1], "/restart", "POST").status)
            assert statuses == [200]
            assert wait(process)
            assert asked(ports[1], "/ready").status == 200
        finally:
            process.kill()
            process.communicate()


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_a_role_names_the_run_from_its_beginning_to_its_end(log_format: str) -> None:
    paths = ("X", "X", "another/end", "X/end", "X/end", "other")
    with running("worker_node", "--log-format", log_format) as role:
        for path in paths:
            assert role.ask(f"/run/{path.replace('X', RUN)}", "POST")[0] == 200
        assert role.ask("/restart", "POST")[0] == 404, "no coordinator may"
        role.process.terminate()
        lines = [line for line in map(read_line, role.output().splitlines()) if line]
    assert [(line.message, line.run) for line in lines[-4:]] == [
        (f"run {RUN} begins", RUN),
        (f"run {RUN} is over", RUN),
        ("run other begins", "other"),
        ("stopped by SIGTERM", "other"),
    ]
    assert {(line.role, line.address) for line in lines} == {("worker:0", f"127.0.0.1:{role.port}")}


def test_every_line_of_a_role_is_json_also_its_last_words() -> None:
    as_json = ("--log-format", "json")
    with running("ps_node", *as_json, "--log-level", "debug") as role:
        assert role.ask(f"/run/{RUN}", "POST")[0] == 200
        _, words = ended("ps_node", *place(role.port, 1, task=1), *as_json)
        last = json.loads(words[-1])
        assert last["level"] == "error"
        assert f"port {role.port}" in last["message"]
        role.process.terminate()
        lines = role.output().splitlines()
    # TensorFlow's own stay as they are.
    ours = [json.loads(line) for line in lines if line.startswith("{") or "ps:0" in line]
    assert {line["level"] for line in ours} == {"info"}
