"""The table of `status`, and the roles as systemd tells them."""

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from deploy.cluster.services import RoleState
from deploy.converge.apply import StepFailure
from deploy.converge.machine_facts import MachineFacts, UnitFact
from deploy.converge.node_table import NodeRow, node_rows
from deploy.converge.survey import Survey
from deploy.converge.systemd import role_states, state_of
from deploy.terminal.console import console, node_parts
from tests.deploy.converge.pi import converged, thesis, wish_for

WISH = wish_for(thesis())
WORKER = "pscluster-worker-0.service"


@pytest.fixture(scope="module")
def running() -> dict[str, MachineFacts]:
    return converged(WISH, {})[0]


def row_of(facts: MachineFacts) -> NodeRow:
    (row,) = node_rows(WISH, Survey({"rpi01": facts}, {}))
    return row


def with_unit(facts: MachineFacts, name: str, **changes: object) -> MachineFacts:
    unit: UnitFact = replace(facts.units[name], **changes)  # type: ignore[arg-type]
    return replace(facts, units={**facts.units, name: unit})


def test_a_cluster_that_runs_is_well(running: dict[str, MachineFacts]) -> None:
    rows = node_rows(WISH, Survey(running, {}))
    assert [row.node for row in rows] == [node.name for node in WISH.inventory.nodes]
    assert all(row.well for row in rows), [row.trouble for row in rows]
    server = rows[10]
    assert (server.roles, server.ports) == ("ps:0 ready, worker:10 ready", "2222 9200 2223 9201")
    assert (server.mounts, server.release) == ("3/3", "feedface")
    assert rows[0].memory == "250/950 MB"
    assert rows[0].temperature == "48 °C"
    assert rows[0].to_json()["well"] is True
    assert role_states(WISH.inventory, Survey(running, {})).running


def test_what_is_wrong_with_a_node_is_in_its_row(running: dict[str, MachineFacts]) -> None:
    facts = running["rpi01"]
    assert row_of(replace(facts, mounts={})).trouble == (
        "/mnt/pscluster/shared is not mounted; /mnt/pscluster/data is not mounted"
    )
    assert row_of(replace(facts, listening={2223: "x"})).trouble == "no process listens on port 9201 of worker:0"
    assert row_of(replace(facts, listening={2223: "x"})).ports == "2223 9201!"
    hot = row_of(replace(facts, temperature_celsius=84.6, throttled=0x4))
    assert hot.temperature == "85 °C throttled"
    assert row_of(replace(facts, temperature_celsius=None)).temperature == "-"
    assert row_of(replace(facts, current="00112233445566")).release == "00112233 (here: feedface)"
    assert row_of(replace(facts, current=None)).release == "-"
    failed = row_of(with_unit(facts, WORKER, active="failed", result="oom-kill", status="served", restarts=3))
    assert failed.trouble == "worker:0 failed: oom-kill (served)"
    assert failed.restarts == 3
    assert not failed.well


def test_a_node_that_does_not_answer_has_a_row_too(
    running: dict[str, MachineFacts], capsys: pytest.CaptureFixture[str]
) -> None:
    lost = StepFailure("rpi02", "facts", "look at the node", "", None, ("no connection",), "")
    survey = Survey({"rpi01": running["rpi01"]}, {"rpi02": lost})
    rows = node_rows(WISH, survey)
    assert [(row.node, row.roles, row.trouble) for row in rows] == [
        ("rpi01", "worker:0 ready", ""),
        ("rpi02", "worker:1 ?", "no connection"),
    ]
    for part in node_parts(rows, console().width):
        console().print(part)
    shown = capsys.readouterr().out
    assert "rpi02: no connection" in shown
    assert "1 of 2 nodes are well" in shown
    by_name = {role.name: role for role in role_states(WISH.inventory, survey).roles}
    assert (by_name["worker:1"].state, by_name["worker:1"].reason) == (RoleState.FAILED, "no connection")
    assert by_name["worker:2"].state is RoleState.STOPPED
    assert len(by_name) == 17


STATES: Sequence[Any] = [
    ("active", "running", RoleState.READY),
    ("reloading", "reload", RoleState.READY),
    ("activating", "start", RoleState.STARTING),
    ("activating", "auto-restart", RoleState.WAITING),
    ("deactivating", "stop-sigterm", RoleState.STOPPING),
    ("failed", "failed", RoleState.FAILED),
    ("inactive", "dead", RoleState.STOPPED),
    ("maintenance", "", RoleState.STOPPED),
]


def test_a_unit_s_state_is_a_role_s() -> None:
    for active, sub, shown in STATES:
        assert state_of(UnitFact("loaded", active, sub, "enabled", False, "success", 0, 0)) is shown


def test_a_role_has_its_process(running: dict[str, MachineFacts]) -> None:
    began = time.time() - 60
    facts = with_unit(running["rpi01"], WORKER, pid=812, started_seconds=began, anonymous_memory_bytes=9, restarts=2)
    roles = {role.name: role for role in role_states(WISH.inventory, Survey({"rpi01": facts}, {})).roles}
    role = roles["worker:0"]
    assert (role.pid, role.anonymous_memory_bytes, role.restarts, role.reason) == (812, 9, 2, "")
    assert role.uptime_seconds is not None
    assert role.uptime_seconds >= 60
    ahead = with_unit(facts, WORKER, started_seconds=time.time() + 3600)
    later = role_states(WISH.inventory, Survey({"rpi01": ahead}, {})).roles
    assert next(role for role in later if role.name == "worker:0").uptime_seconds == 0.0
