"""The node with the role `monitor` runs Debian's Prometheus from a unit of ours, others nothing."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from deploy.converge.apply import Survey
from deploy.converge.deployment import plan
from deploy.converge.desired import Machines
from deploy.converge.machine_facts import MachineFacts
from deploy.converge.subject import Change, Shell
from deploy.converge.systemd import node_rows
from deploy.render import units
from tests.deploy.converge.pi import (
    Cluster,
    PlayedPis,
    machines_for,
    named,
    on_node,
    thesis,
    untouched_cluster,
    with_unit,
)
from tests.deploy.converge.tables import TABLES

UNIT = "pscluster-monitor.service"
PATH = units.unit_path(UNIT)
FOLDER = "/etc/pscluster/monitor"
INVENTORY = thesis(rpi02="monitor")
MACHINES = machines_for(INVENTORY)


def changes_of(machines: Machines, cluster: Cluster) -> Sequence[Change]:
    """What is planned for the monitor on its node."""
    return plan(machines, cluster)["monitor"]["rpi02"]


def test_an_untouched_pi_becomes_the_monitor() -> None:
    plans = plan(MACHINES, untouched_cluster(INVENTORY))
    prepared = named(plans["prepare"]["rpi02"])
    packages = prepared.index("install nfs-common, nftables, prometheus")
    assert prepared.index("mask prometheus.service") < packages
    planned = tuple(change.subject for change in plans["monitor"]["rpi02"])
    assert planned == TABLES["untouched_monitor"]
    assert plans["monitor"]["rpi01"] == ()


@pytest.fixture(scope="module")
def running(pis: PlayedPis) -> Cluster:
    """What the monitor's node is after a deployment, which leaves nothing to plan."""
    return pis.deploy(MACHINES, "rpi02")[0]


def told(change: Change) -> str:
    """The scripts of a change."""
    return "\n".join(step.script for step in change.steps if isinstance(step, Shell))


def test_another_node_changes_the_targets_and_restarts_nothing(
    pis: PlayedPis, running: Cluster
) -> None:
    """A deployment that was cut off before Prometheus read its files is made up for."""
    machines = machines_for(thesis("nodes.rpi03.address=192.168.1.99", rpi02="monitor"))
    (change,) = changes_of(machines, running)
    assert change.subject.endswith("targets/pscluster-thesis.json")
    assert '+      "192.168.1.99:9201"' in change.diff
    reload = f"systemctl reload {UNIT}"
    assert reload in told(change)

    scripts = [getattr(step, "script", "") for step in change.steps]
    reread = next(index for index, script in enumerate(scripts) if reload in script)
    pis.apply("rpi02", [replace(change, steps=change.steps[:reread])])
    (made_up,) = changes_of(machines, pis.facts(machines, "rpi02"))
    assert (made_up.subject, made_up.detail) == (FOLDER, "Prometheus has not read it yet")
    assert reload in told(made_up)
    pis.apply("rpi02", [made_up])
    assert changes_of(machines, pis.facts(machines, "rpi02")) == ()


def test_another_port_restarts_it(running: Cluster) -> None:
    machines = machines_for(thesis("monitor.port=9095", rpi02="monitor"))
    assert named(changes_of(machines, running)) == [f"change {PATH}", f"restart {UNIT}"]


@pytest.mark.usefixtures("running")
def test_a_node_that_is_it_no_longer_loses_unit_and_folder(pis: PlayedPis) -> None:
    _, plans = pis.deploy(machines_for(thesis(rpi05="monitor")), "rpi02")
    assert {f"remove {PATH}", f"remove {FOLDER}"} <= {*on_node(plans, "rpi02")}


def test_status_has_it_in_the_row_of_its_node(running: Cluster) -> None:
    listening = {**running["rpi02"].listening, 9090: "process 900 (prometheus)"}

    def row(facts: MachineFacts) -> tuple[str, str, str]:
        survey = Survey({"rpi02": replace(facts, listening=listening)}, {})
        (shown,) = node_rows(MACHINES, survey)
        return shown.roles, shown.ports, shown.trouble

    well = ("worker:1 ready, monitor ready", "2223 9201 9090", "")
    assert row(running["rpi02"]) == well
    failed = with_unit(running["rpi02"], UNIT, active="failed", sub="failed")
    assert "monitor failed" in row(failed)[2]
