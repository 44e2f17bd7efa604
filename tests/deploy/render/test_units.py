"""The units of roles, as text and as systemd reads them."""

import re
import subprocess
from pathlib import Path

import pytest

from cluster.inventory import Inventory
from deploy.cluster.places import CURRENT
from deploy.render import firewall, units
from tests.deploy.converge.pi import thesis
from tests.habits import needs
from tests.inventory.cases import edited, machine, read

ODD = """\
schema: 1
cluster: A-b_9
connection: ssh
nodes:
  - name: Node_With-odd_name9
    address: 10.0.0.1
    roles: [storage, {ps: {port: 5000, metrics_port: 5001}}, coordinator, service]
  - {name: "0", address: 10.0.0.2, roles: [worker, monitor, {worker: {port: 6000, metrics_port: 6001}}]}
storage: {server: Node_With-odd_name9, export: /srv/a~b+c@d.e, mount: /mnt/übung}
"""
PYTHON = f"{CURRENT}/environment/bin/python"
PROGRAMS = (PYTHON, "/usr/sbin/nft", "/usr/bin/prometheus", "/usr/bin/promtool")


def odd() -> Inventory:
    return read(ODD, on=machine())


def unit_texts(inventory: Inventory) -> dict[str, str]:
    """Every unit of an inventory, by the name of its file."""
    tasks = [task for task in inventory.tasks() if task.role in units.MODULES]
    return {
        **{units.unit_name(task): units.role_unit(inventory, task) for task in tasks},
        "pscluster.slice": units.slice_unit(memory_controller=True),
        firewall.UNIT: firewall.unit(),
        units.JOB_UNIT: units.job_unit(inventory),
        **(
            {units.MONITOR_UNIT: units.monitor_unit(inventory, memory_controller=True)}
            if inventory.monitor_node is not None
            else {}
        ),
        **(
            {units.SERVICE_UNIT: units.service_unit(inventory, inventory.service_nodes[0], memory_controller=True)}
            if inventory.service_nodes
            else {}
        ),
    }


def test_a_worker_s_command_line() -> None:
    inventory = thesis()
    lines = units.role_unit(inventory, inventory.task("worker", 3)).splitlines()
    assert (
        f"ExecStart={PYTHON} -m worker_node --task 3 --host 192.168.1.19 --port 2223 --metrics-port 9201 --peers 16 "
        "--guard none --coordinator 192.168.1.26 --shared /mnt/pscluster/shared" in lines
    )
    for line in ("User=pscluster", "Type=notify", "WatchdogSec=20", "Restart=always", "Slice=pscluster.slice"):
        assert line in lines


def test_a_worker_with_a_gpu_sees_the_files_of_gpus_and_a_parameter_server_sees_none() -> None:
    inventory = thesis("jobs.train.device.kind=gpu")
    text = units.role_unit(inventory, inventory.task("worker", 3))
    assert " --device gpu:0\n" in text
    lines = text.splitlines()
    assert {"DevicePolicy=closed", "DeviceAllow=char-nvidia* rw"} <= set(lines)
    assert "PrivateDevices=yes" not in lines
    plain = thesis()
    assert units.role_unit(inventory, inventory.task("ps", 0)) == units.role_unit(plain, plain.task("ps", 0))
    for coordinates in (True, False):  # `job train --mode mirrored`; a run of a sweep on the worker's node
        job = units.job_unit(inventory, coordinates=coordinates)
        assert "DeviceAllow=char-nvidia* rw" in job.splitlines()
        assert "PrivateDevices=yes" in units.job_unit(plain, coordinates=coordinates).splitlines()


def test_ports_of_a_role_s_own_are_in_its_unit() -> None:
    inventory = odd()
    assert "-m ps_node --task 0 --host 10.0.0.1 --port 5000 --metrics-port 5001" in units.role_unit(
        inventory, inventory.task("ps", 0)
    )
    assert "--task 1 --host 10.0.0.2 --port 6000 --metrics-port 6001" in units.role_unit(
        inventory, inventory.task("worker", 1)
    )


def test_a_parameter_server_is_the_last_to_be_killed() -> None:
    inventory = thesis()
    scores = [
        int(re.findall(r"OOMScoreAdjust=(\d+)", units.role_unit(inventory, task))[0])
        for task in (inventory.task("ps", 0), inventory.task("worker", 0))
    ]
    assert scores[0] < scores[1]


@pytest.mark.parametrize(("workers", "peers"), [(1, 16), (2, 16), (16, 16), (17, 32), (32, 32), (33, 64)])
def test_threads_grow_in_steps(workers: int, peers: int) -> None:
    nodes = [f"  - {{name: w{n}, address: 10.0.1.{n + 1}, roles: [worker]}}" for n in range(workers)]
    head = "schema: 1\ncluster: c\nconnection: ssh\nstorage: {server: s}\nnodes:\n"
    server = "  - {name: s, address: 10.0.0.1, roles: [storage, ps, coordinator]}\n"
    text = head + server + "\n".join(nodes)
    assert units.peers(read(text, on=machine())) == peers


def test_a_monitor_is_held_to_its_memory_and_its_address() -> None:
    text = units.monitor_unit(odd(), memory_controller=True)
    assert "--web.listen-address=10.0.0.2:9090 " in text
    assert "MemoryMax=256M\n" in text
    assert "GOMEMLIMIT=205MiB\n" in text
    assert "MemoryMax" not in units.monitor_unit(odd(), memory_controller=False)


def test_a_slice_has_limits_where_the_kernel_can_hold_them() -> None:
    assert "MemoryMax=90%" in units.slice_unit(memory_controller=True)
    assert "Memory" not in units.slice_unit(memory_controller=False)


def test_processes_talk_to_the_inventory_alone() -> None:
    inventory = read(edited(("storage:", "deployment: {allow: [10.9.0.0/16]}\nstorage:")), on=machine())
    drop_in = units.addresses_drop_in(inventory)
    assert "IPAddressDeny=any\n" in drop_in
    assert "IPAddressAllow=localhost 10.9.0.0/16 192.168.1.16 192.168.1.17 192.168.1.18\n" in drop_in


@pytest.mark.parametrize("inventory", [thesis(), odd()], ids=["thesis", "odd"])
def test_every_line_of_a_unit_is_a_setting(inventory: Inventory) -> None:
    for name, text in unit_texts(inventory).items():
        assert text.endswith("\n"), name
        for line in text.splitlines():
            assert re.fullmatch(r"|#.*|\[[A-Z][a-z]+\]|[A-Za-z]+=.*", line), (name, line)


@pytest.fixture
def unit_folder(tmp_path: Path) -> Path:
    """The units as files, of a program that is on this machine and an account that is."""
    needs.tool("systemd-analyze")
    for number, inventory in enumerate((thesis(), odd())):
        folder = tmp_path / str(number)
        folder.mkdir()
        for name, text in unit_texts(inventory).items():
            kept = re.sub("|".join(map(re.escape, PROGRAMS)), "/bin/true", text)
            (folder / name).write_text(kept.replace("User=pscluster", "User=root"), encoding="utf-8")
    return tmp_path


def test_systemd_understands_every_line(unit_folder: Path) -> None:
    for folder in sorted(unit_folder.iterdir()):
        names = sorted(path.name.replace("@", "@one") for path in folder.iterdir())
        done = subprocess.run(
            ["systemd-analyze", "verify", *names], cwd=folder, capture_output=True, text=True, timeout=60, check=False
        )
        ours = [line for line in done.stderr.splitlines() if "pscluster" in line]
        assert (done.returncode, ours) == (0, []), done.stderr


def test_exposure_is_at_most_two(unit_folder: Path) -> None:
    for name in ("0/pscluster-ps-0.service", "0/pscluster-worker-3.service", "1/pscluster-monitor.service"):
        path = unit_folder / name
        path.write_text(path.read_text().replace("User=root", "User=pscluster"))
        words = ["systemd-analyze", "security", "--offline=true", "--threshold=20", "--no-pager", str(path)]
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
