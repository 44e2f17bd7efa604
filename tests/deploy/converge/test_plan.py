"""From facts to changes and back: a plan that was carried out leaves nothing to plan."""

import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from core.inventory import Inventory
from deploy.cluster.places import UNIT_FOLDER
from deploy.converge.apply import Survey
from deploy.converge.deployment import PHASES, plan
from deploy.converge.machine_facts import MachineFacts
from deploy.converge.resources import RELOAD
from deploy.converge.subject import Change, Shell
from deploy.render.units import JOB_UNIT
from tests.core.inventory.cases import read
from tests.deploy.converge.examined import problem
from tests.deploy.converge.pi import (
    Cluster,
    Plans,
    PlayedPis,
    all_changes,
    machines_for,
    named,
    on_node,
    thesis,
    untouched,
    untouched_cluster,
    with_unit,
)
from tests.deploy.converge.tables import TABLES, rows

ADDRESSES = f"change {UNIT_FOLDER}/pscluster-.service.d/10-addresses.conf"
WORKER = "pscluster-worker-0.service"


def small(workers: int, *, without: int = 0, more: str = "") -> Inventory:
    """A server and some workers, each on a node of its own; the worker `without` is gone."""
    nodes = ["{name: pi-0, address: 10.1.0.1, roles: [storage, ps, coordinator]}"]
    nodes += [
        f"{{name: pi-{number}, address: 10.1.0.{number + 1}, roles: [worker]}}"
        for number in range(1, workers + 1)
        if number != without
    ]
    head = "schema: 1\ncluster: small\nconnection: ssh\nstorage: {server: pi-0}"
    return read(f"{head}\nnodes: [{', '.join(nodes)}]\n{more}")


SMALL = machines_for(small(1))


def of_roles(plans: Plans) -> set[str]:
    """What is done to roles."""
    changes = [change for _, change in all_changes(plans) if change.kind == "unit"]
    return {line for line in named(changes) if "/" not in line}


def test_an_untouched_pi_becomes_a_server_phase_by_phase() -> None:
    machines = machines_for(thesis())
    plans = plan(machines, untouched_cluster(machines.inventory))
    of_phase = {phase: tuple(one.subject for one in plans[phase]["rpi11"]) for phase in PHASES}
    assert {phase: found for phase, found in of_phase.items() if found} == TABLES[
        "untouched_server"
    ]
    assert len(all_changes(plans)) > 16 * 15, "all sixteen"


def test_a_worker_s_node_gets_a_client_and_one_unit_and_publishes_nothing() -> None:
    machines = machines_for(thesis())
    plans = plan(machines, untouched_cluster(machines.inventory))
    assert "install nfs-common, nftables" in on_node(plans, "rpi01")
    assert plans["storage"]["rpi01"] == plans["publish"]["rpi01"] == ()
    points = ["/mnt/pscluster/shared", "/mnt/pscluster/data"]
    assert [change.subject for change in plans["mounts"]["rpi01"]] == ["/etc/fstab", *points]
    assert plans["services"]["rpi01"][-1].subject == WORKER


@pytest.fixture(scope="module")
def running(pis: PlayedPis) -> Cluster:
    """What a server and a worker are after a deployment."""
    return pis.deploy(SMALL, "pi-0", "pi-1")[0]


def test_what_somebody_changed_on_a_node_is_told_and_mended(
    pis: PlayedPis, running: Cluster
) -> None:
    node = pis.machines["pi-1"].node
    node.does(TABLES["drift"])
    kept = node.root / "state.json"
    state = json.loads(kept.read_text())
    state["units"][WORKER]["read"] = "another text"
    kept.write_text(json.dumps(state))
    (told,) = SMALL.drifts(Survey(pis.facts(SMALL, "pi-1"), {}))
    after, plans = pis.deploy(SMALL, "pi-1")
    assert (*on_node(plans, "pi-1"),) == TABLES["mended"]
    assert "change user pscluster-role (it has /bin/bash)" in told.line
    assert SMALL.drifts(Survey(after, {})) == ()


DEPLOYMENTS = st.fixed_dictionaries(
    {
        "node_exporter": st.booleans(),
        "firewall": st.booleans(),
        "keep_releases": st.integers(1, 3),
    }
)


RELEASES = count(1)
"""A release of its own for each deployment: what was drawn may repeat."""


@given(
    node=st.sampled_from(["pi-0", "pi-1"]),
    deployment=DEPLOYMENTS,
    workers=st.integers(1, 20),
)
@settings(max_examples=4, phases=[Phase.generate], deadline=None, database=None)
def test_inventories_in_turn_converge(
    pis: PlayedPis, running: Cluster, node: str, deployment: Any, workers: int
) -> None:
    """`deploy` asserts that each leaves nothing to plan, whatever was there before."""
    more = f"deployment: {json.dumps(deployment)}"
    _, plans = pis.deploy(machines_for(small(workers, more=more), f"{next(RELEASES):016x}"), node)
    role = {"pi-0": "pscluster-ps-0.service", "pi-1": WORKER}[node]
    assert f"restart {role}" in of_roles(plans), "another release"


def test_the_accounts_have_the_numbers_of_the_inventory() -> None:
    machines = machines_for(small(1, more="deployment: {service_uid: 901}"))
    changes = plan(machines, {"pi-1": untouched()})["prepare"]["pi-1"]
    assert [one.detail for one in changes if one.kind == "user"] == [
        f"uid and gid {number}" for number in (901, 902, 903, 904)
    ]


def test_a_node_less_moves_the_roles_after_it_and_no_others(tmp_path: Path) -> None:
    """A unit that is stale is stopped before it is removed, and before others start."""
    pis = PlayedPis(tmp_path)
    cluster, _ = pis.deploy(machines_for(small(3)), "pi-3")
    inventory = small(3, without=2)
    assert problem("pi-3", inventory, facts=cluster["pi-3"]) == ""
    _, plans = pis.deploy(machines_for(inventory), "pi-3")
    stale, fresh = "pscluster-worker-2.service", "pscluster-worker-1.service"
    assert [line for line in on_node(plans, "pi-3") if not line.startswith("install")] == [
        "change pscluster",  # the firewall
        f"remove {UNIT_FOLDER}/{stale}",
        f"create {UNIT_FOLDER}/{fresh}",
        ADDRESSES,
        f"start {fresh}",
    ]
    first, *_ = plans["services"]["pi-3"][0].steps
    assert isinstance(first, Shell)
    assert first.script.startswith(f"systemctl disable --now {stale}")


@pytest.mark.parametrize("inventory", [small(2), small(3, without=1)], ids=["more", "other"])
def test_another_node_changes_who_may_come_and_restarts_nobody(
    running: Cluster, inventory: Inventory
) -> None:
    plans = plan(machines_for(inventory), {"pi-0": running["pi-0"]})
    exports = "change /etc/exports.d/pscluster.exports"
    assert on_node(plans, "pi-0") == [exports, "change pscluster", ADDRESSES]


def test_the_seventeenth_worker_crosses_the_step_of_threads_and_the_plan_says_why(
    running: Cluster,
) -> None:
    sixteen = of_roles(plan(machines_for(small(16)), running))
    assert not [line for line in sixteen if line.startswith("restart")]
    machines = machines_for(small(17))
    plans = plan(machines, running)
    restarts = [change for _, change in all_changes(plans) if change.action == "restart"]
    assert {change.subject: change.detail for change in restarts} == {
        "pscluster-ps-0.service": "its unit file changes",
        WORKER: "its unit file changes",
    }
    file = next(one for one in plans["services"]["pi-1"] if one.subject.endswith("0.service"))
    assert "--peers 16" in file.diff
    assert "--peers 32" in file.diff
    # One that is still starting from the old file is restarted too.
    starting = with_unit(running["pi-1"], WORKER, active="activating", sub="start")
    assert f"restart {WORKER}" in of_roles(plan(machines, {"pi-1": starting}))


def planned(facts: MachineFacts) -> Sequence[Change]:
    """The changes on pi-1 of the running cluster."""
    return [change for _, change in all_changes(plan(SMALL, {"pi-1": facts}))]


def test_a_folder_of_drop_ins_is_no_stale_unit(running: Cluster) -> None:
    facts = running["pi-1"]
    files = {**facts.files, f"{UNIT_FOLDER}/pscluster-.service.d": facts.files["/opt/pscluster"]}
    assert planned(replace(facts, files=files)) == []


@rows("reasons")
def test_a_role_is_touched_for_these_reasons_alone(running: Cluster, row: Any) -> None:
    changes = planned(with_unit(running["pi-1"], WORKER, **row["unit"]))
    made = [(change.action, change.detail) for change in changes]
    assert made == ([row["planned"]] if "planned" in row else [])


def test_a_memory_controller_that_was_switched_on_changes_the_slice_alone(running: Cluster) -> None:
    (change,) = planned(replace(running["pi-1"], controllers=("cpu", "memory")))
    assert change.subject.endswith("pscluster.slice")
    assert "+MemoryMax=90%" in change.diff


def test_an_older_unit_of_jobs_is_read_once_more_and_no_job_restarts(running: Cluster) -> None:
    facts = running["pi-1"]
    path = f"{UNIT_FOLDER}/{JOB_UNIT}"
    older = replace(facts.files[path], content=b"[Unit]\n")
    (change,) = planned(replace(facts, files={**facts.files, path: older}))
    assert [step.what for step in change.steps] == [
        f"make {UNIT_FOLDER}",
        f"write {path}",
        RELOAD.what,
    ]


def test_a_node_without_python_gets_no_code() -> None:
    assert plan(SMALL, {"pi-1": untouched("10.1.0.2", python=None)})["code"]["pi-1"] == ()
