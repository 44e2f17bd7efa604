"""The node with the role `monitor`: Debian's Prometheus from a unit of ours, and nothing of it elsewhere."""

from dataclasses import replace
from pathlib import Path

from cluster.inventory import Inventory, load
from deploy.common.project import ROOT
from deploy.converge.change import Change, Shell
from deploy.converge.deployment import plan
from deploy.converge.machine_facts import UnitFact
from deploy.converge.memory_estimate import estimate
from deploy.converge.node_table import node_rows
from deploy.converge.preflight import examine
from deploy.converge.reset import Traces, reset_script
from deploy.converge.subject import NodeWish
from deploy.converge.survey import Survey
from deploy.render import monitor_unit
from tests.deploy.converge.pi import (
    ENVIRONMENT,
    after,
    all_changes,
    converged,
    thesis,
    untouched,
    untouched_cluster,
    wish_for,
)
from tests.inventory.cases import machine

UNIT = "pscluster-monitor.service"


def watched(folder: Path, *overrides: str, node: str = "rpi02") -> Inventory:
    """The shipped inventory, with a monitor on one of the nodes."""
    text = (ROOT / "inventory.yaml").read_text(encoding="utf-8")
    lines = [
        line.replace("[worker]", "[worker, monitor]") if f"name: {node}," in line else line
        for line in text.splitlines()
    ]
    assert lines != text.splitlines()
    path = folder / "watched.yaml"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return load(path, overrides, check_interfaces=False, machine=machine())


def test_an_untouched_pi_becomes_the_monitor(tmp_path: Path) -> None:
    wish = wish_for(watched(tmp_path))
    plans = plan(wish, untouched_cluster(wish.inventory))
    prepared = [(change.action, change.subject) for change in plans["prepare"]["rpi02"]]
    assert prepared.index(("mask", "prometheus.service")) < prepared.index(
        ("install", "nfs-common, nftables, prometheus")
    )
    assert [change.subject for change in plans["monitor"]["rpi02"]] == [
        *("/etc/pscluster/monitor", "/var/lib/pscluster/monitor"),
        "/etc/pscluster/monitor/targets/pscluster-thesis.json",
        "/etc/pscluster/monitor/rules/pscluster-recording.yml",
        "/etc/pscluster/monitor/rules/pscluster-alerts.yml",
        "/etc/pscluster/monitor/prometheus.yml",
        f"/etc/systemd/system/{UNIT}",
        UNIT,
    ]
    assert plans["monitor"]["rpi01"] == ()


def test_what_was_planned_and_done_leaves_nothing_to_plan(tmp_path: Path) -> None:
    wish = wish_for(watched(tmp_path))
    cluster, _ = converged(wish, {})
    assert all_changes(plan(wish, cluster)) == []


def test_another_node_changes_the_targets_and_restarts_nothing(tmp_path: Path) -> None:
    cluster, _ = converged(wish_for(watched(tmp_path)), {})
    wish = wish_for(watched(tmp_path, "nodes.rpi03.address=192.168.1.99"))
    (change,) = plan(wish, {"rpi02": cluster["rpi02"]})["monitor"]["rpi02"]
    assert change.subject.endswith("targets/pscluster-thesis.json")
    assert '+      "192.168.1.99:9201"' in change.diff
    assert f"systemctl reload {UNIT}" in told(change)


def told(change: Change) -> str:
    """The scripts of a change."""
    return "\n".join(step.script for step in change.steps if isinstance(step, Shell))


def test_a_deployment_that_was_cut_off_before_prometheus_read_its_files_is_made_up_for(tmp_path: Path) -> None:
    cluster, _ = converged(wish_for(watched(tmp_path)), {})
    wish = wish_for(watched(tmp_path, "nodes.rpi03.address=192.168.1.99"))
    (change,) = plan(wish, {"rpi02": cluster["rpi02"]})["monitor"]["rpi02"]
    reread = next(index for index, step in enumerate(change.steps) if f"reload {UNIT}" in getattr(step, "script", ""))
    cut_off = after(cluster["rpi02"], replace(change, steps=change.steps[:reread]))
    (made_up,) = plan(wish, {"rpi02": cut_off})["monitor"]["rpi02"]
    assert (made_up.subject, made_up.detail) == ("/etc/pscluster/monitor", "Prometheus has not read it yet")
    assert f"systemctl reload {UNIT}" in told(made_up)
    assert plan(wish, {"rpi02": after(cut_off, made_up)})["monitor"]["rpi02"] == ()


def test_another_port_restarts_it(tmp_path: Path) -> None:
    cluster, _ = converged(wish_for(watched(tmp_path)), {})
    wish = wish_for(watched(tmp_path, "monitor.port=9095"))
    planned = [
        (change.action, change.subject) for change in plan(wish, {"rpi02": cluster["rpi02"]})["monitor"]["rpi02"]
    ]
    assert planned == [("change", f"/etc/systemd/system/{UNIT}"), ("restart", UNIT)]


def test_a_node_that_is_it_no_longer_loses_unit_and_folder(tmp_path: Path) -> None:
    cluster, _ = converged(wish_for(watched(tmp_path)), {})
    cluster, plans = converged(wish_for(watched(tmp_path, node="rpi05")), cluster)
    gone = [(change.action, change.subject) for name, change in all_changes(plans) if name == "rpi02"]
    assert ("remove", f"/etc/systemd/system/{UNIT}") in gone
    assert ("remove", "/etc/pscluster/monitor") in gone
    cluster, plans = converged(wish_for(thesis()), cluster)
    assert ("remove", "/etc/pscluster/monitor") in [(one.action, one.subject) for _, one in all_changes(plans)]


def lines_about(folder: Path, **changes: object) -> list[tuple[str, str]]:
    inventory = watched(folder)
    facts = untouched(inventory.hosts["rpi02"], **({"controllers": ("cpu", "memory")} | changes))
    found = examine(NodeWish.of(inventory, "rpi02", estimate(32), ENVIRONMENT), facts)
    return [(one.level, one.line) for one in found]


def test_its_memory_counts(tmp_path: Path) -> None:
    assert ("ok", "worker 193 + monitor 256 = 449 MB of 950 MB") in lines_about(tmp_path)
    (problem,) = [line for level, line in lines_about(tmp_path, memory_bytes=500_000_000) if level == "problem"]
    assert "worker 193 + monitor 256" in problem


def test_a_prometheus_of_somebody_else_s_is_left_alone(tmp_path: Path) -> None:
    running = UnitFact("loaded", "active", "running", "enabled", False, "success", 900, 0)
    (problem,) = [
        line for level, line in lines_about(tmp_path, units={"prometheus.service": running}) if level == "problem"
    ]
    assert "prometheus.service runs here for another user" in problem
    assert "--out DIR" in problem


def test_a_taken_port_is_found_before(tmp_path: Path) -> None:
    taken = {9090: "process 7 (cockpit)"}
    (problem,) = [line for level, line in lines_about(tmp_path, listening=taken) if level == "problem"]
    assert "port 9090 of the monitor is taken by process 7 (cockpit)" in problem
    ours = UnitFact("loaded", "active", "running", "enabled", False, "success", 900, 0)
    found = lines_about(tmp_path, listening=taken, units={UNIT: ours})
    assert [line for level, line in found if level == "problem"] == []


def test_status_has_it_in_the_row_of_its_node(tmp_path: Path) -> None:
    wish = wish_for(watched(tmp_path))
    cluster, _ = converged(wish, {})
    facts = replace(cluster["rpi02"], listening={**cluster["rpi02"].listening, 9090: "process 900 (prometheus)"})
    (row,) = node_rows(wish, Survey({"rpi02": facts}, {}))
    assert (row.roles, row.ports, row.trouble) == ("worker:1 ready, monitor ready", "2223 9201 9090", "")
    failed = replace(facts.units[UNIT], active="failed", sub="failed")
    facts = replace(facts, units={**facts.units, UNIT: failed})
    (row,) = node_rows(wish, Survey({"rpi02": facts}, {}))
    assert "monitor failed" in row.trouble


def test_reset_removes_its_unit_with_the_others(tmp_path: Path) -> None:
    script = reset_script(Traces.of(watched(tmp_path), data=False), "rpi02")
    for path in (monitor_unit.PATH, monitor_unit.FOLDER, monitor_unit.DATA):
        whole = ("/etc/systemd/system/pscluster-", "/etc/pscluster", "/var/lib/pscluster")
        assert path.startswith(whole)
    assert "rm -rf /etc/systemd/system/pscluster-*" in script


def test_facts_are_asked_of_the_monitor_s_node_alone(tmp_path: Path) -> None:
    wish = wish_for(watched(tmp_path))
    assert "prometheus.service" in wish.questions("rpi02").units
    files = wish.questions("rpi02").files
    assert "/etc/pscluster/monitor/prometheus.yml" in files
    assert "/etc/pscluster/monitor/read" in files
    assert "prometheus.service" not in wish.questions("rpi01").units


def test_a_unit_file_that_somebody_edited_is_put_back(tmp_path: Path) -> None:
    wish = wish_for(watched(tmp_path))
    cluster, _ = converged(wish, {})
    facts = cluster["rpi02"]
    edited = replace(facts.files[monitor_unit.PATH], content=b"[Service]\n")
    facts = replace(facts, files={**facts.files, monitor_unit.PATH: edited})
    planned = [(change.action, change.subject) for change in plan(wish, {"rpi02": facts})["monitor"]["rpi02"]]
    assert ("restart", UNIT) in planned
