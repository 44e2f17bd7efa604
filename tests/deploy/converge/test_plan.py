"""From facts to changes and back: a plan that was carried out leaves nothing to plan."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.inventory import Inventory
from deploy.cluster.places import UNIT_FOLDER
from deploy.converge.change import Shell
from deploy.converge.deployment import PHASES, plan
from deploy.converge.machine_facts import UnitFact
from deploy.converge.memory_estimate import estimate
from deploy.converge.preflight import examine
from deploy.converge.subject import NodeWish
from tests.deploy.converge.pi import (
    ENVIRONMENT,
    Cluster,
    Plans,
    after,
    all_changes,
    converged,
    thesis,
    untouched,
    untouched_cluster,
    wish_for,
)
from tests.inventory.cases import machine, read


def small(workers: int, *, names: str = "pi", first: int = 1, more: str = "") -> Inventory:
    """A server and some workers, each on a node of its own."""
    nodes = [f"  - {{name: {names}-0, address: 10.1.0.1, roles: [storage, ps, coordinator]}}"]
    nodes += [
        f"  - {{name: {names}-{number}, address: 10.1.0.{number + 1}, roles: [worker]}}"
        for number in range(first, first + workers)
    ]
    text = f"schema: 1\ncluster: small\nconnection: ssh\nstorage: {{server: {names}-0}}\nnodes:\n" + "\n".join(nodes)
    return read(f"{text}\n{more}", on=machine())


def without(inventory: Inventory, name: str) -> Inventory:
    """The inventory with a node less."""
    text = ["schema: 1", f"cluster: {inventory.cluster}", "connection: ssh", "storage: {server: pi-0}", "nodes:"]
    for node in inventory.nodes:
        if node.name != name:
            roles = ", ".join(entry.role for entry in node.roles)
            text.append(f"  - {{name: {node.name}, address: {node.address}, roles: [{roles}]}}")
    return read("\n".join(text), on=machine())


def subjects(plans: Plans, node: str) -> list[str]:
    return [f"{change.action} {change.subject}" for name, change in all_changes(plans) if name == node]


def verbs(plans: Plans) -> set[tuple[str, str]]:
    """What is done to roles: (action, unit)."""
    units = [change for _, change in all_changes(plans) if change.kind == "unit" and "/" not in change.subject]
    return {(change.action, change.subject) for change in units}


def test_an_untouched_pi_becomes_a_server_phase_by_phase() -> None:
    wish = wish_for(thesis())
    plans = plan(wish, untouched_cluster(wish.inventory))
    of_phase = {phase: [change.subject for change in plans[phase]["rpi11"]] for phase in PHASES}
    assert of_phase["prepare"] == [
        "/var/lib/pscluster-deploy/folders",
        "/etc/nfs.conf.d/pscluster.conf",
        "rpcbind.socket, rpcbind.service, rpc-statd.service",
        "nfs-kernel-server, nftables",
        "pscluster",
        *("/opt/pscluster", "/opt/pscluster/environments", "/opt/pscluster/releases", "/etc/pscluster"),
        *("/var/lib/pscluster-deploy", "/var/lib/pscluster", "/var/lib/pscluster/home", "/var/lib/pscluster/jobs"),
    ]
    assert of_phase["storage"] == [
        *("/srv/pscluster", "/srv/pscluster/shared", "/srv/pscluster/data", "/srv/pscluster/runs"),
        *("nfs-server.service", "/etc/exports.d/pscluster.exports"),
    ]
    assert of_phase["mounts"] == [
        *("/etc/fstab", "/mnt/pscluster/shared", "/mnt/pscluster/data", "/mnt/pscluster/runs")
    ]
    assert of_phase["publish"] == [f"wheels/{ENVIRONMENT}"]
    assert of_phase["code"] == [ENVIRONMENT, "feedfacefeedface", "/opt/pscluster/current"]
    assert of_phase["firewall"] == [
        *("pscluster", f"{UNIT_FOLDER}/pscluster-firewall.service", "pscluster-firewall.service")
    ]
    units = ("pscluster-ps-0.service", "pscluster-worker-10.service")
    others = ("pscluster.slice", "pscluster-.service.d/10-addresses.conf", "pscluster-job@.service")
    assert of_phase["services"] == [*(f"{UNIT_FOLDER}/{name}" for name in (*units, *others)), *units]


def test_a_worker_s_node_gets_a_client_and_one_unit_and_publishes_nothing() -> None:
    wish = wish_for(thesis())
    plans = plan(wish, untouched_cluster(wish.inventory))
    assert "install nfs-common, nftables" in subjects(plans, "rpi01")
    assert plans["storage"]["rpi01"] == plans["publish"]["rpi01"] == ()
    points = ["/mnt/pscluster/shared", "/mnt/pscluster/data"]
    assert [change.subject for change in plans["mounts"]["rpi01"]] == ["/etc/fstab", *points]
    assert plans["services"]["rpi01"][-1].subject == "pscluster-worker-0.service"


def test_what_was_planned_and_done_leaves_nothing_to_plan() -> None:
    wish = wish_for(thesis())
    cluster, plans = converged(wish, {})
    assert len(all_changes(plans)) > 16 * 15
    assert all_changes(plan(wish, cluster)) == []


SETTINGS = ("", "deployment: {node_exporter: true}", "deployment: {firewall: false}", "deployment: {service_uid: 901}")


@given(
    workers=st.integers(1, 6), more=st.sampled_from(SETTINGS), then=st.sampled_from(SETTINGS), key=st.sampled_from("ab")
)
@settings(max_examples=25, deadline=None)
def test_any_two_inventories_in_turn_converge(workers: int, more: str, then: str, key: str) -> None:
    first = wish_for(small(workers, more=more))
    cluster, _ = converged(first, {})
    assert all_changes(plan(first, cluster)) == []
    if "901" in more or "901" in then:
        then = more  # an account with another uid is refused before anything is planned
    second = wish_for(small(workers, more=then), key * 16)
    cluster, plans = converged(second, cluster)
    assert all_changes(plan(second, cluster)) == []
    # Another release restarts every role and nothing else does: the drop-ins, the firewall and exports are read anew.
    assert {unit for action, unit in verbs(plans) if action == "restart"} >= {
        f"pscluster-worker-{number}.service" for number in range(workers)
    }


@given(workers=st.integers(2, 7), data=st.data())
@settings(max_examples=25, deadline=None)
def test_a_node_less_moves_the_roles_after_it_and_no_others(workers: int, data: st.DataObject) -> None:
    gone = data.draw(st.integers(1, workers))
    before = small(workers)
    cluster, _ = converged(wish_for(before), {})
    wish = wish_for(without(before, f"pi-{gone}"))
    cluster = {name: facts for name, facts in cluster.items() if name != f"pi-{gone}"}
    for name, facts in cluster.items():
        wanted = NodeWish(wish.inventory, name, estimate(32), ENVIRONMENT)
        assert [one.line for one in examine(wanted, facts) if one.level == "problem"] == []
    cluster, plans = converged(wish, cluster)
    moved = range(gone, workers)  # pi-(gone+1) had index `gone`, and has the one before it now
    for number in range(1, workers + 1):
        if number == gone:
            continue
        own = [line for line in subjects(plans, f"pi-{number}") if "worker" in line]
        if number - 1 in moved:
            stale, fresh = f"pscluster-worker-{number - 1}.service", f"pscluster-worker-{number - 2}.service"
            assert own == [f"remove {UNIT_FOLDER}/{stale}", f"create {UNIT_FOLDER}/{fresh}", f"start {fresh}"]
        else:
            assert own == []
    everywhere = [line for name in cluster for line in subjects(plans, name) if "addresses" in line]
    assert everywhere == [f"change {UNIT_FOLDER}/pscluster-.service.d/10-addresses.conf"] * len(cluster)
    assert "change /etc/exports.d/pscluster.exports" in subjects(plans, "pi-0")
    assert not any("ps-0" in line for line in subjects(plans, "pi-0"))
    assert all_changes(plan(wish, cluster)) == []


def test_a_node_more_restarts_nobody() -> None:
    cluster, _ = converged(wish_for(small(3)), {})
    more, plans = converged(wish_for(small(4)), cluster)
    assert verbs(plans) - {("start", "pscluster-worker-3.service"), ("start", "pscluster-firewall.service")} == set()
    assert subjects(plans, "pi-1") == [
        "change pscluster",  # the firewall
        f"change {UNIT_FOLDER}/pscluster-.service.d/10-addresses.conf",
    ]
    assert all_changes(plan(wish_for(small(4)), more)) == []


def test_the_seventeenth_worker_crosses_the_step_of_threads_and_the_plan_says_why() -> None:
    cluster, _ = converged(wish_for(small(16)), {})
    _, plans = converged(wish_for(small(17)), cluster)
    restarts = {change.subject: change for _, change in all_changes(plans) if change.action == "restart"}
    assert set(restarts) == {"pscluster-ps-0.service", *(f"pscluster-worker-{number}.service" for number in range(16))}
    assert {change.detail for change in restarts.values()} == {"its unit file changes"}
    (file,) = [
        change for name, change in all_changes(plans) if name == "pi-1" and change.subject.endswith("0.service")
    ][:1]
    assert "--peers 16" in file.diff
    assert "--peers 32" in file.diff


def test_stale_units_are_stopped_before_they_are_removed_and_before_others_start() -> None:
    cluster, _ = converged(wish_for(small(2)), {})
    plans = plan(wish_for(without(small(2), "pi-1")), {"pi-2": cluster["pi-2"]})
    changes = plans["services"]["pi-2"]
    assert [change.action for change in changes] == ["remove", "create", "change", "start"]
    first, *_ = changes[0].steps
    assert isinstance(first, Shell)
    assert first.script.startswith("systemctl disable --now pscluster-worker-1.service")


def test_a_folder_of_drop_ins_is_no_stale_unit() -> None:
    wish = wish_for(small(1))
    cluster, _ = converged(wish, {})
    drop_ins = f"{UNIT_FOLDER}/pscluster-.service.d"
    folder = replace(cluster["pi-1"].files["/opt/pscluster"], kind="folder")
    facts = replace(cluster["pi-1"], files={**cluster["pi-1"].files, drop_ins: folder})
    assert all_changes(plan(wish, {"pi-1": facts})) == []


def with_unit(cluster: Cluster, node: str, name: str, **changes: object) -> Cluster:
    unit: UnitFact = replace(cluster[node].units[name], **changes)  # type: ignore[arg-type]
    return {**cluster, node: replace(cluster[node], units={**cluster[node].units, name: unit})}


REASONS: Sequence[Any] = [
    ({"active": "failed", "sub": "failed", "result": "exit-code"}, "start", "failed (failed), result exit-code"),
    ({"active": "inactive", "sub": "dead", "result": "success"}, "start", "inactive (dead)"),
    ({"active": "activating", "sub": "auto-restart"}, "start", "activating (auto-restart)"),
    ({"active": "activating", "sub": "start"}, "start", "activating (start)"),
    (
        {"active": "activating", "sub": "start", "release": "0000000000000000"},
        *("restart", "activating (start), runs release 0000000000000000"),
    ),
    (
        {"active": "activating", "sub": "start", "started_seconds": -100.0},
        *("restart", "activating (start), its unit file is newer than its process"),
    ),
    (
        {"active": "activating", "sub": "auto-restart", "release": None, "pid": 0, "result": "exit-code"},
        *("start", "activating (auto-restart), result exit-code"),
    ),
    ({"active": "failed", "sub": "failed", "release": None, "pid": 0}, "start", "failed (failed)"),
    ({"release": "0000000000000000"}, "restart", "runs release 0000000000000000"),
    ({"release": None}, "restart", "runs release unknown"),
    ({"started_seconds": -100.0}, "restart", "its unit file is newer than its process"),
    ({"enabled": "disabled"}, "enable", "it does not start at boot"),
    ({"restarts": 7, "anonymous_memory_bytes": 1}, None, None),
    ({"started_seconds": None}, None, None),
]


def test_a_role_is_touched_for_these_reasons_alone() -> None:
    for changes, action, reason in REASONS:
        wish = wish_for(small(1))
        cluster, _ = converged(wish, {})
        cluster = with_unit(cluster, "pi-1", "pscluster-worker-0.service", **changes)
        planned = [(change.action, change.detail) for _, change in all_changes(plan(wish, cluster))]
        assert planned == ([] if action is None else [(action, reason)])


def test_a_unit_file_that_somebody_edited_is_put_back_and_its_role_restarted() -> None:
    wish = wish_for(small(1))
    cluster, _ = converged(wish, {})
    path = f"{UNIT_FOLDER}/pscluster-worker-0.service"
    file = replace(cluster["pi-1"].files[path], content=b"[Service]\nRestart=no\n")
    cluster["pi-1"] = replace(cluster["pi-1"], files={**cluster["pi-1"].files, path: file})
    planned = [change for _, change in all_changes(plan(wish, cluster))]
    assert [(change.action, change.subject) for change in planned] == [
        ("change", path),
        ("restart", "pscluster-worker-0.service"),
    ]
    assert "-Restart=no" in planned[0].diff


def test_a_role_that_is_still_starting_from_the_old_unit_file_is_restarted() -> None:
    cluster, _ = converged(wish_for(small(16)), {})
    cluster = with_unit(cluster, "pi-1", "pscluster-worker-0.service", active="activating", sub="start")
    plans = plan(wish_for(small(17)), {"pi-1": cluster["pi-1"]})
    assert verbs(plans) >= {("restart", "pscluster-worker-0.service")}


def test_a_memory_controller_that_was_switched_on_changes_the_slice_alone() -> None:
    wish = wish_for(small(1))
    cluster, _ = converged(wish, {})
    facts = replace(cluster["pi-1"], controllers=("cpu", "memory"))
    (change,) = plan(wish, {"pi-1": facts})["services"]["pi-1"]
    assert change.subject.endswith("pscluster.slice")
    assert "+MemoryMax=90%" in change.diff


def test_units_whose_files_systemd_has_not_read_are_read() -> None:
    wish = wish_for(small(1))
    cluster, _ = converged(wish, {})
    cluster = with_unit(cluster, "pi-1", "pscluster-worker-0.service", needs_reload=True)
    planned = [change for _, change in all_changes(plan(wish, cluster))]
    assert {change.subject for change in planned} == {"systemd"}
    facts = cluster["pi-1"]
    for change in planned:
        facts = after(facts, change)
    assert all_changes(plan(wish, {**cluster, "pi-1": facts})) == []


def test_a_node_without_python_gets_no_code() -> None:
    wish = wish_for(small(1))
    assert plan(wish, {"pi-1": untouched("10.1.0.2", python=None)})["code"]["pi-1"] == ()


def test_what_would_be_done_can_be_written_as_json() -> None:
    wish = wish_for(small(1))
    for _, change in all_changes(plan(wish, untouched_cluster(wish.inventory))):
        plain = change.to_json()
        assert {"kind", "subject", "action", "detail"} <= set(plain)
        assert "steps" not in plain
