"""A node with the role `service`: a unit of ours, its packages there alone, and nothing of it elsewhere."""

from dataclasses import replace
from pathlib import Path

import pytest

from cluster.inventory import Inventory, load
from cluster.inventory.schema import Service
from deploy.common.project import ROOT
from deploy.converge.deployment import plan
from deploy.converge.machine_facts import FileFact
from deploy.converge.memory_estimate import estimate
from deploy.converge.node_table import node_rows
from deploy.converge.preflight import examine
from deploy.converge.subject import NodeWish
from deploy.converge.survey import Survey
from deploy.release.requirements import FILES, Target, committed, pins
from deploy.render import firewall, units
from recognise.service.limits import Limits
from tests.deploy.converge.pi import (
    ENVIRONMENT,
    all_changes,
    converged,
    thesis,
    untouched,
    untouched_cluster,
    wish_for,
)
from tests.inventory.cases import machine

UNIT = "pscluster-service.service"


def serving(folder: Path, *overrides: str) -> Inventory:
    """The shipped inventory, with a service on rpi02."""
    text = (ROOT / "inventory.yaml").read_text(encoding="utf-8")
    plain = "name: rpi02, address: 192.168.1.17, roles: [worker]"
    assert plain in text
    path = folder / "serving.yaml"
    path.write_text(text.replace(plain, plain.replace("[worker]", "[worker, service]")), encoding="utf-8")
    return load(path, overrides, check_interfaces=False, machine=machine())


def test_an_untouched_pi_gets_the_unit_and_others_do_not(tmp_path: Path) -> None:
    wish = wish_for(serving(tmp_path))
    plans = plan(wish, untouched_cluster(wish.inventory))
    assert [change.subject for change in plans["service"]["rpi02"]] == [
        "/var/lib/pscluster/service", f"/etc/systemd/system/{UNIT}", UNIT,
    ]  # fmt: skip
    assert plans["service"]["rpi01"] == ()


def test_what_was_planned_and_done_leaves_nothing_to_plan(tmp_path: Path) -> None:
    wish = wish_for(serving(tmp_path))
    cluster, _ = converged(wish, {})
    assert all_changes(plan(wish, cluster)) == []


def test_other_clients_change_unit_and_firewall_and_restart_no_role(tmp_path: Path) -> None:
    cluster, _ = converged(wish_for(serving(tmp_path)), {})
    plans = plan(wish_for(serving(tmp_path, "service.allow=[10.1.0.0/16]")), {"rpi02": cluster["rpi02"]})
    named = [(change.action, change.subject) for phase in plans.values() for change in phase.get("rpi02", ())]
    assert ("restart", UNIT) in named
    assert not [subject for _, subject in named if "worker" in subject]


def test_a_node_that_serves_no_longer_loses_the_unit_and_keeps_its_versions(tmp_path: Path) -> None:
    cluster, _ = converged(wish_for(serving(tmp_path)), {})
    _, plans = converged(wish_for(thesis()), cluster)
    gone = [(change.action, change.subject) for name, change in all_changes(plans) if name == "rpi02"]
    assert ("remove", f"/etc/systemd/system/{UNIT}") in gone
    assert not [subject for _, subject in gone if subject.startswith(units.SERVICE_DATA)]


def test_its_packages_are_the_node_s_and_what_the_service_needs() -> None:
    target = Target("3.11", "aarch64")
    plain = {pin.name: pin.version for pin in pins(committed(), target)}
    with_service = {pin.name: pin.version for pin in pins(committed(service=True), target)}
    assert plain.items() <= with_service.items()
    assert {"onnxruntime", "websockets", "cryptography"} <= with_service.keys() - plain.keys()
    assert len(FILES) == 4


def test_the_firewall_opens_its_port_to_nodes_and_clients_alone(tmp_path: Path) -> None:
    assert "8470" not in firewall.ruleset(thesis())
    closed = firewall.ruleset(serving(tmp_path))
    assert "@clients" not in closed
    assert "8470" in closed.partition("ip saddr @nodes accept")[0].rpartition("tcp dport")[2]
    rules = firewall.ruleset(serving(tmp_path, "service.allow=[10.1.0.0/16, 10.1.2.3]"))
    assert "set clients { type ipv4_addr; flags interval; auto-merge; elements = { 10.1.0.0/16, 10.1.2.3 }; }" in rules
    assert rules.index("tcp dport 8470 ip saddr @clients accept") < rules.index("} drop\n    }")
    assert "8470" not in rules.partition("chain output")[2]


def test_the_unit_says_who_may_come_and_how_much_memory_it_takes(tmp_path: Path) -> None:
    inventory = serving(tmp_path, "service.allow=[10.1.0.0/16]", "service.model=steps", "service.threads=1")
    lines = units.service_unit(inventory, "rpi02", memory_controller=True).splitlines()
    (start,) = [line for line in lines if line.startswith("ExecStart=")]
    assert start.endswith(
        "-m recognise.service --state /var/lib/pscluster/service --name steps --listen 192.168.1.17 --port 8470 "
        "--metrics-port 9204 --threads 1 --batch-milliseconds 2 --shadow-seconds 10 --least-agreement 0 --wait --tls"
    )
    assert {"IPAddressAllow=10.1.0.0/16", "MemoryMax=384M", "User=pscluster", "NoNewPrivileges=yes"} <= set(lines)
    plain = units.service_unit(serving(tmp_path, "service.tls=false"), "rpi02", memory_controller=False)
    assert "--tls" not in plain
    assert "IPAddressAllow" not in plain
    assert "MemoryMax" not in plain


def test_the_unit_says_how_long_requests_wait_and_how_versions_are_compared(tmp_path: Path) -> None:
    given = ("service.batch_milliseconds=0.5", "service.shadow_seconds=60", "service.least_agreement=0.9")
    unit = units.service_unit(serving(tmp_path, *given), "rpi02", memory_controller=True)
    assert " --batch-milliseconds 0.5 --shadow-seconds 60 --least-agreement 0.9 --wait" in unit


def test_the_defaults_are_those_of_a_service_by_itself() -> None:
    service, limits = Service(), Limits()
    assert service.batch_milliseconds == 1000 * limits.batch_seconds
    assert (service.shadow_seconds, service.least_agreement) == (limits.shadow.seconds, limits.shadow.least_agreement)
    assert service.threads == limits.threads


CERTIFIED = ("service.certificate=/etc/har/chain.pem", "service.key=/etc/har/key.pem")


def test_a_certificate_of_one_s_own_comes_through_systemd(tmp_path: Path) -> None:
    """The account may not read /etc/letsencrypt; root reads it for the unit."""
    lines = units.service_unit(serving(tmp_path, *CERTIFIED), "rpi02", memory_controller=True).splitlines()
    assert {"LoadCredential=certificate:/etc/har/chain.pem", "LoadCredential=key:/etc/har/key.pem"} <= set(lines)
    (start,) = [line for line in lines if line.startswith("ExecStart=")]
    assert start.endswith(
        " --wait --certificate ${CREDENTIALS_DIRECTORY}/certificate --key ${CREDENTIALS_DIRECTORY}/key"
    )
    assert "LoadCredential" not in units.service_unit(serving(tmp_path), "rpi02", memory_controller=True)


def test_check_misses_a_certificate_that_is_not_on_the_node(tmp_path: Path) -> None:
    inventory = serving(tmp_path, *CERTIFIED)
    (line,) = [line for level, line in found(inventory) if "/etc/har" in line]
    assert line == "/etc/har/chain.pem is not there: put the certificate and its key on the node, or change `service`"
    there = {"/etc/har/chain.pem": FileFact("file", 0o644, "root", "root", b"")}
    assert not [line for level, line in found(inventory, files=there) if "/etc/har" in line]


def test_names_of_its_own_are_words_of_the_unit(tmp_path: Path) -> None:
    inventory = serving(tmp_path, "service.names=[har.example.org, har]")
    unit = units.service_unit(inventory, "rpi02", memory_controller=True)
    assert "--host-name har.example.org --host-name har --tls" in unit


def found(inventory: Inventory, **changes: object) -> list[tuple[str, str]]:
    facts = untouched(inventory.hosts["rpi02"], **({"controllers": ("cpu", "memory")} | changes))
    said = examine(NodeWish(inventory, "rpi02", estimate(32), ENVIRONMENT), facts)
    return [(one.level, one.line) for one in said]


def test_check_counts_its_memory_and_looks_at_its_ports(tmp_path: Path) -> None:
    inventory = serving(tmp_path)
    assert any("service 384 = " in line for _, line in found(inventory))
    assert any(level == "problem" and "more than" in line
               for level, line in found(serving(tmp_path, "service.memory_megabytes=2000")))  # fmt: skip
    for port, key in ((8470, "service.port"), (9204, "service.metrics_port")):
        (line,) = [line for level, line in found(inventory, listening={port: "nginx"}) if str(port) in line]
        assert line == f"port {port} of the service is taken by nginx: stop it, or choose another as `{key}`"


@pytest.mark.parametrize(
    ("active", "listens", "state", "trouble"),
    [
        (None, False, "not there", f"service not there: `journalctl -u {UNIT}` there says more"),
        ("active", True, "ready", ""),
        ("active", False, "waiting", "service waiting for its first version: `fab service promote"),
        ("failed", False, "failed", f"service failed: `journalctl -u {UNIT}` there says more"),
    ],
)
def test_status_has_it_in_the_row_of_its_node(
    tmp_path: Path, active: str | None, listens: bool, state: str, trouble: str
) -> None:
    wish = wish_for(serving(tmp_path))
    cluster, _ = converged(wish, {})
    facts = cluster["rpi02"]
    found = {name: unit for name, unit in facts.units.items() if name != UNIT}
    if active is not None:
        sub = "running" if active == "active" else active
        found[UNIT] = replace(facts.units[UNIT], active=active, sub=sub)
    listening = {port: said for port, said in facts.listening.items() if port != 8470}
    if listens:
        listening[8470] = "process 900 (python)"
    (row,) = node_rows(wish, Survey({"rpi02": replace(facts, units=found, listening=listening)}, {}))
    assert row.roles == f"worker:1 ready, service {state}"
    assert row.trouble.startswith(trouble)
    assert bool(row.trouble) == bool(trouble)
