"""Sixteen untouched Pis from the first `trust` to `reset`, first with the shipped inventory.

One scenario, in the order of the file; each test leaves a healthy cluster.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.inventory import load
from deploy.cluster.fleet import Local
from deploy.converge.check import recordings_of
from tests.deploy.playing import eventually
from tests.lab import cgroups
from tests.lab.environment import environment_seed
from tests.lab.lab import Lab
from tests.lab.live_page import a_training_on_the_page
from tests.lab.operator import Done, Operator
from tests.lab.served import promoted
from tests.lab.sixteen_pis import (
    EPOCHS,
    HUB,
    INSTALLING,
    NODES,
    PORTS,
    SHORT,
    WELL_SECONDS,
    SixteenPis,
    changed_copy,
)
from tests.lab.strangers import open_to_strangers
from tests.recognise.service.exports import export

pytestmark = [pytest.mark.lab, pytest.mark.timeout(1200)]

PHASES = [
    *("prepare", "transport", "storage", "mounts", "publish", "code", "firewall", "services"),
    *("monitor", "service"),
]
LEAST_ACCURACY = 0.4
"""Of six activities after three epochs; always answering the most frequent one gives 0.19."""
LEFT_BY_THE_LAB = (
    "file opt/pscluster: was as on the image, is removed",
    "usr/lib/nfs-standin/",
    "proc-fs-nfsd.mount",
)
"""A seed is a layer that can only be hidden; the stand-in for NFS leaves Python's cache, and a
mount until a boot."""


@pytest.fixture(scope="module")
def untouched(lab_can_run: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SixteenPis]:
    layer = environment_seed()
    with Lab.up(16, seeds={name: layer for name in NODES if name not in INSTALLING}) as lab:
        operator = Operator(lab, tmp_path_factory.mktemp("operator"))
        for name in lab.nodes:
            lab.ssh(
                name, "sudo systemctl is-system-running --wait"
            )  # sudo leaves a note in the home of its first user
        yield SixteenPis(lab, operator, {name: node.snapshot() for name, node in lab.nodes.items()})


@pytest.fixture(scope="module")
def started(untouched: SixteenPis) -> Done:
    """The first start: installs everything, calibrates, and trains for a while."""
    untouched.operator.fab("deploy", "trust", "--yes")
    return untouched.operator.fab("deploy", "start", *SHORT)


@pytest.fixture
def cluster(untouched: SixteenPis, started: Done) -> SixteenPis:
    return untouched


def test_host_keys_are_refused_until_a_person_has_seen_them(untouched: SixteenPis) -> None:
    found = untouched.operator.fab("deploy", "check", "--json", code=1).json()["findings"]
    lines = {one["node"]: one["line"] for one in found if one.get("node")}
    assert lines.keys() == set(NODES)
    assert all("its host key is not known: `fab deploy trust`" in line for line in lines.values())
    shown = untouched.operator.fab("deploy", "trust", "--yes").stdout
    assert len(re.findall(r"ssh-ed25519 SHA256:\S+  new$", shown, re.MULTILINE)) == 16
    assert "all 16 are pinned" in untouched.operator.fab("deploy", "trust").stdout


def test_check_and_plan_look_and_change_nothing(untouched: SixteenPis) -> None:
    untouched.operator.fab("deploy", "trust", "--yes")
    untouched.operator.fab("deploy", "check")
    plan = untouched.operator.fab("deploy", "plan", "--json").json()
    phases = plan["phases"]
    changes = [one for nodes in phases.values() for changes in nodes.values() for one in changes]
    assert list(phases) == PHASES
    assert (plan["changes"], plan["unfit"]) == (len(changes), {})
    assert phases["transport"] == phases["monitor"] == phases["service"] == {}
    assert phases["storage"].keys() == phases["publish"].keys() == {HUB}
    everywhere = ("prepare", "mounts", "code", "firewall", "services")
    assert all(phases[phase].keys() == set(NODES) for phase in everywhere)
    code = {name: {one["kind"] for one in changes} for name, changes in phases["code"].items()}
    assert {name for name, kinds in code.items() if "environment" in kinds} == set(INSTALLING)
    for name in (HUB, "rpi02"):
        assert untouched.before[name].differences(untouched.lab.node(name).snapshot()) == []


def test_a_start_ends_with_a_calibration_and_a_training(cluster: SixteenPis, started: Done) -> None:
    recap = cluster.operator.recap()
    assert {node["state"] for node in recap["nodes"].values()} == {"changed"}
    assert f"16 nodes: 16 changed; {recap['changed']} changed in" in started.stdout
    assert len([*cluster.operator.folder.glob("runs/*-pi/result.json")]) == 1
    result = cluster.operator.result()
    assert (result["status"], result["epochs_done"], result["workers"]) == ("done", EPOCHS, 16)
    source = load(cluster.operator.inventory, check_interfaces=False).jobs.train.data.source
    if recordings_of(Local("this machine"), source).holds:
        assert result["dataset"]["name"] == "hapt"
        assert result["final"]["accuracy"] > LEAST_ACCURACY


def test_a_second_start_changes_nothing(cluster: SixteenPis) -> None:
    again = cluster.operator.fab("deploy", "start")
    assert "16 nodes: 16 ok; 0 changed in" in again.stdout
    assert "already running, jobs not repeated (--jobs runs them)" in again.stdout
    assert cluster.operator.fab("deploy", "plan").stdout.endswith("nothing to change\n")


def test_all_is_well(cluster: SixteenPis) -> None:
    rows = cluster.operator.status()
    assert list(rows) == NODES
    assert rows[HUB]["roles"] == "ps:0 ready, worker:10 ready"
    assert {row["release"] for row in rows.values()} == {
        cluster.operator.wish().release.code.key[:8]
    }


def test_a_monitor_on_one_of_them_watches_all(cluster: SixteenPis) -> None:
    """From here on the inventory has one; the reset has to remove it too."""
    operator = cluster.operator
    plain = "name: rpi02, address: 192.168.1.17, roles: [worker]"
    operator.gives(plain, "monitor")
    assert "Prometheus: http://192.168.1.17:9090" in operator.fab("deploy", "monitor").stdout
    operator.fab("deploy", "start", "--no-jobs")
    assert "16 nodes: 16 ok; 0 changed in" in operator.fab("deploy", "start", "--no-jobs").stdout
    assert operator.status()["rpi02"]["roles"] == "worker:1 ready, monitor ready"

    def up() -> int:
        return sum(int(one["value"][1]) for one in cluster.prometheus("query?query=up")["result"])

    eventually(
        lambda: up() == 17, "the parameter server and sixteen workers are read", WELL_SECONDS
    )
    assert open_to_strangers(cluster.lab, PORTS) == []


def test_a_service_on_one_of_them_answers(cluster: SixteenPis, tmp_path: Path) -> None:
    """From here on the inventory has one, with a version; the reset has to remove it too."""
    operator = cluster.operator
    plain = "name: rpi04, address: 192.168.1.19, roles: [worker]"
    operator.gives(plain, "service")
    operator.fab("deploy", "start", "--no-jobs")
    assert operator.status(code=3)["rpi04"]["roles"] == "worker:3 ready, service waiting"

    export(tmp_path / "1", 1.0)
    assert "rpi04: har: version 1" in promoted(operator, tmp_path / "1")
    cluster.wait_until_well()
    assert "16 nodes: 16 ok; 0 changed in" in operator.fab("deploy", "start", "--no-jobs").stdout
    assert operator.status()["rpi04"]["roles"] == "worker:3 ready, service ready"
    assert open_to_strangers(cluster.lab, PORTS) == []


def test_a_training_survives_a_power_cut_and_a_pulled_cable(cluster: SixteenPis) -> None:
    lab = cluster.lab
    operator = cluster.operator
    off = lab.node("rpi05")
    unplugged = lab.node("rpi06")
    with operator.running("job", "train", "--epochs", "4") as training:
        training.wait_for("train: epoch   1/4")
        assert open_to_strangers(lab, PORTS) == []
        off.crash()
        unplugged.link(False)
        try:
            rows = operator.status(code=3)
        finally:
            off.boot()
            unplugged.link(True)
        training.end(0)
    assert [name for name, row in rows.items() if not row["well"]] == ["rpi05", "rpi06"]
    assert "is it switched on, and is the address right?" in rows["rpi05"]["trouble"]
    result = operator.result()
    assert (result["status"], result["epochs_done"]) == ("done", 4)
    cluster.wait_until_well()


def test_a_training_survives_a_rolling_restart_on_a_hub_with_little_memory(
    cluster: SixteenPis,
) -> None:
    hub = cluster.lab.node(HUB)
    killed = cgroups.usage(cluster.lab.places, HUB)["killed_for_memory"]
    hub.limit_memory(900 << 20)
    try:
        with cluster.operator.running("job", "train", "--epochs", "4") as training:
            training.wait_for("train: epoch   1/4")
            rolled = cluster.operator.fab("deploy", "restart", "--role", "worker", "--serial", "4")
            training.end(0)
    finally:
        hub.limit_memory(cgroups.MEMORY_BYTES)
    assert rolled.stdout.count("restarted on ") == 4
    assert cluster.operator.result()["status"] == "done"
    assert cgroups.usage(cluster.lab.places, HUB)["killed_for_memory"] == killed
    cluster.wait_until_well()


def test_a_rollback_runs_the_release_before(cluster: SixteenPis, tmp_path: Path) -> None:
    first = cluster.operator.wish().release.code.key
    changed = Operator(
        cluster.lab, cluster.operator.folder, project=changed_copy(tmp_path / "copy")
    )
    changed.fab("deploy", "start", "--no-jobs")
    assert changed.well()
    second = cluster.release_of("rpi03", "pscluster-worker-2")
    assert second != first
    assert (
        f"{second[:8]} (here: {first[:8]})"
        in cluster.operator.fab("deploy", "status", code=None).stdout
    )

    back = cluster.operator.fab("deploy", "rollback")

    assert back.stdout.count(f"back on release {first}") == 16
    assert cluster.release_of("rpi03", "pscluster-worker-2") == first
    assert cluster.release_of(HUB, "pscluster-ps-0") == first
    cluster.wait_until_well()


def test_a_worker_boots_while_the_storage_server_is_down(cluster: SixteenPis) -> None:
    hub = cluster.lab.node(HUB)
    worker = cluster.lab.node("rpi03")
    hub.crash()
    try:
        worker.crash()
        worker.boot()
        worker.wait_until_reachable()
        active = "systemctl is-active pscluster-worker-2"
        eventually(
            lambda: cluster.lab.ssh("rpi03", active, check=False).stdout == "active\n",
            "its role is up",
            WELL_SECONDS,
        )
    finally:
        hub.boot()
    hub.wait_until_reachable()
    cluster.wait_until_well()


def test_what_was_stopped_stays_so_over_a_boot(cluster: SixteenPis) -> None:
    node = cluster.lab.node("rpi04")
    assert (
        "stopped 1 roles on 1 nodes"
        in cluster.operator.fab("deploy", "stop", "--limit", "rpi04").stdout
    )
    node.crash()
    node.boot()
    node.wait_until_reachable()
    node.execute("systemctl", "is-system-running", "--wait", check=False)
    assert cluster.operator.status(code=3)["rpi04"]["roles"] == "worker:3 stopped"
    cluster.operator.fab("deploy", "start", "--no-jobs")
    cluster.wait_until_well()


def test_a_stop_waits_for_the_job_before_it_takes_the_roles(cluster: SixteenPis) -> None:
    operator = cluster.operator
    with operator.running("job", "train", "--epochs", "1000") as training:
        training.wait_for("train: epoch")
        assert "roles on 16 nodes" in operator.fab("deploy", "stop").stdout
        training.end(130)
    result = operator.result()
    assert (result["status"], result["updates"]["rolled_back"]) == ("cancelled", 0)
    assert result["final"] is not None, "the final test had all workers"
    operator.fab("deploy", "start", "--no-jobs")
    cluster.wait_until_well()


def test_the_live_page_and_the_report_of_sixteen_nodes(cluster: SixteenPis) -> None:
    a_training_on_the_page(cluster)


def test_a_reset_leaves_every_node_as_it_was(cluster: SixteenPis) -> None:
    """Last: the cluster is gone."""
    said = cluster.operator.fab("deploy", "reset", "--yes", "--with-data").stdout
    for name, node in cluster.lab.nodes.items():
        (line,) = [line for line in said.splitlines() if line.startswith(f"{name}: ")]
        assert "packages removed: " in line
        assert "nftables" in line
        assert ("nfs-kernel-server" in line) == (name == HUB)
        left = [
            one
            for one in cluster.before[name].differences(node.snapshot())
            if not any(part in one for part in LEFT_BY_THE_LAB)
        ]
        assert left == [], name
        assert node.execute("ls", "/opt").stdout == ""
