"""A node with the role `service` has a unit of ours and its packages, other nodes nothing."""

from dataclasses import replace
from typing import Any

import pytest

from core.inventory.sections import Service
from deploy.converge.apply import Survey
from deploy.converge.deployment import plan
from deploy.converge.systemd import node_rows
from deploy.release.requirements import FILES, Target, committed, pins
from deploy.render import units
from recognise.service.limits import Limits
from tests.deploy.converge.pi import (
    Cluster,
    PlayedPis,
    all_changes,
    machines_for,
    named,
    on_node,
    thesis,
    untouched_cluster,
    with_unit,
)
from tests.deploy.converge.tables import TABLES, rows

UNIT = "pscluster-service.service"
PATH = units.unit_path(UNIT)
INVENTORY = thesis(rpi02="service")
MACHINES = machines_for(INVENTORY)


def test_an_untouched_pi_gets_the_unit_and_others_do_not() -> None:
    plans = plan(MACHINES, untouched_cluster(INVENTORY))
    planned = tuple(change.subject for change in plans["service"]["rpi02"])
    assert planned == TABLES["untouched_service"]
    assert plans["service"]["rpi01"] == ()


@pytest.fixture(scope="module")
def running(pis: PlayedPis) -> Cluster:
    """What the service's node is after a deployment, which leaves nothing to plan."""
    return pis.deploy(MACHINES, "rpi02")[0]


def test_other_clients_change_unit_and_firewall_and_restart_no_role(running: Cluster) -> None:
    inventory = thesis("service.allow=[10.1.0.0/16]", rpi02="service")
    planned = named(change for _, change in all_changes(plan(machines_for(inventory), running)))
    assert f"restart {UNIT}" in planned
    assert not [line for line in planned if "worker" in line]


@pytest.mark.usefixtures("running")
def test_a_node_that_serves_no_longer_loses_the_unit_and_keeps_its_versions(pis: PlayedPis) -> None:
    cluster, plans = pis.deploy(machines_for(thesis()), "rpi02")
    assert f"remove {PATH}" in on_node(plans, "rpi02")
    assert units.SERVICE_DATA in cluster["rpi02"].files


def test_its_packages_are_the_node_s_and_what_the_service_needs() -> None:
    plain, with_service = (
        {pin.name: pin.version for pin in pins(text, Target("3.11", "aarch64"))}
        for text in (committed(), committed(service=True))
    )
    assert plain.items() <= with_service.items()
    assert {"onnxruntime", "websockets", "cryptography"} <= with_service.keys() - plain.keys()
    assert len(FILES) == 4


def test_the_defaults_are_those_of_a_service_by_itself() -> None:
    service = Service()
    limits = Limits()
    assert service.batch_milliseconds == 1000 * limits.batch_seconds
    assert service.threads == limits.threads


@rows("services")
def test_status_has_it_in_the_row_of_its_node(running: Cluster, row: Any) -> None:
    facts = running["rpi02"]
    if "active" in row:
        sub = "running" if row["active"] == "active" else row["active"]
        facts = with_unit(facts, UNIT, active=row["active"], sub=sub)
    else:
        others = {name: unit for name, unit in facts.units.items() if name != UNIT}
        facts = replace(facts, units=others)
    listening = {port: said for port, said in facts.listening.items() if port != 8470}
    if row["listens"]:
        listening[8470] = "process 900 (python)"
    uids = {8470: row.get("uid", 892)}
    facts = replace(facts, listening=listening, listening_uids=uids)
    (shown,) = node_rows(MACHINES, Survey({"rpi02": facts}, {}))
    assert shown.roles == f"worker:1 ready, service {row['state']}"
    assert shown.trouble.startswith(row.get("trouble", ""))
    assert bool(shown.trouble) == ("trouble" in row)
