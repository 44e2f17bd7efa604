"""The table of `status`, and the roles as systemd tells them."""

from dataclasses import replace
from typing import Any

import pytest
from rich.table import Table

from deploy.cluster.services import ClusterStatus, RoleState, RoleStatus
from deploy.converge.apply import StepFailure, Survey
from deploy.converge.machine_facts import MachineFacts
from deploy.converge.systemd import NodeRow, node_rows, role_states, state_of
from deploy.terminal.console import MOST_ROWS, ROWS_OF_LARGEST, console, node_parts, status_parts
from tests.deploy.converge.examined import running
from tests.deploy.converge.pi import Cluster, machines_for, thesis, with_unit
from tests.deploy.converge.tables import TABLES, rows

MACHINES = machines_for(thesis())
WORKER = "pscluster-worker-0.service"


def row_of(facts: MachineFacts) -> NodeRow:
    (row,) = node_rows(MACHINES, Survey({"rpi01": facts}, {}))
    return row


def roles_of(survey: Survey[MachineFacts]) -> dict[str, RoleStatus]:
    return {role.name: role for role in role_states(MACHINES.inventory, survey).roles}


def test_a_cluster_that_runs_is_well(deployed: Cluster) -> None:
    worker, server = node_rows(MACHINES, Survey(deployed, {}))
    assert (worker.trouble, server.trouble) == ("", "")
    assert (worker.node, worker.memory, worker.temperature) == ("rpi01", "250/950 MB", "48 °C")
    assert worker.to_json()["well"] is True
    ports = "2222 9200 2223 9201"
    assert (server.node, server.roles, server.ports) == (
        "rpi11",
        "ps:0 ready, worker:10 ready",
        ports,
    )
    assert (server.mounts, server.release) == ("3/3", "feedface")
    states = [
        role.state for role in roles_of(Survey(deployed, {})).values() if role.node in deployed
    ]
    assert set(states) == {RoleState.READY}


def test_what_is_wrong_with_a_node_is_in_its_row(deployed: Cluster) -> None:
    for row in TABLES["troubles"]:
        shown = row_of(replace(deployed["rpi01"], **row["changes"]))
        assert getattr(shown, row["column"]) == row["shown"]


def test_a_role_that_failed_is_in_the_row_of_its_node(deployed: Cluster) -> None:
    ended: Any = {"active": "failed", "result": "oom-kill", "status": "served", "restarts": 3}
    failed = row_of(with_unit(deployed["rpi01"], WORKER, **ended))
    assert failed.trouble == "worker:0 failed: oom-kill (served)"
    assert failed.restarts == 3
    assert not failed.well


def test_a_node_that_does_not_answer_has_a_row_too(
    deployed: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    lost = StepFailure("rpi02", "facts", "look at the node", ("no connection",))
    survey = Survey({"rpi01": deployed["rpi01"]}, {"rpi02": lost})
    shown = node_rows(MACHINES, survey)
    assert [(row.node, row.roles, row.trouble) for row in shown] == [
        ("rpi01", "worker:0 ready", ""),
        ("rpi02", "worker:1 ?", "no connection"),
    ]
    for part in node_parts(shown, console().width):
        console().print(part)
    text = capsys.readouterr().out
    assert "rpi02: no connection" in text
    assert "1 of 2 nodes are well" in text
    roles = roles_of(survey)
    assert (roles["worker:1"].state, roles["worker:1"].reason) == (
        RoleState.FAILED,
        "no connection",
    )
    assert roles["worker:2"].state is RoleState.STOPPED
    assert len(roles) == 17


@rows("states")
def test_a_unit_s_state_is_a_role_s(row: Any) -> None:
    active, sub = row["unit"]
    assert state_of(running(active=active, sub=sub)) == row["role"]


def test_of_a_crowd_those_that_stand_out_have_a_row() -> None:
    usual = RoleStatus("worker", 0, "here", "a:1", "a:2", RoleState.READY, 1, 9 << 20, 60.0)
    server = replace(usual, role="ps")
    crowd = [replace(usual, index=index) for index in range(128)]
    crowd[70] = replace(crowd[70], state=RoleState.FAILED, reason="no memory")
    crowd[80] = replace(crowd[80], restarts=2)
    status = ClusterStatus("here", (server, *crowd), 1)
    table, folded, unwell, *_ = status_parts(status, None, "", 200)
    assert isinstance(table, Table)
    assert table.row_count == 1 + 2 + ROWS_OF_LARGEST
    assert str(folded).startswith("122 more workers are ready: 9 MB to 9 MB, up 1 min 00 s")
    assert "worker:70 is failed: no memory" in str(unwell)
    few = ClusterStatus("here", (server, *crowd[:MOST_ROWS]), 1)
    table = status_parts(few, None, "", 200)[0]
    assert isinstance(table, Table)
    assert table.row_count == 1 + MOST_ROWS
