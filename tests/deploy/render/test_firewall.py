"""The nftables table, as text and as nft reads and loads it."""

import subprocess
from pathlib import Path

import pytest

from cluster.inventory import Inventory
from deploy.render import firewall
from tests.deploy.converge.pi import thesis
from tests.habits import needs
from tests.inventory.cases import edited, machine, problems, read

ALLOWING = ("storage:", "deployment: {allow: [10.9.0.0/16, 10.9.1.7, 172.16.0.1]}\nstorage:")


def allowing() -> Inventory:
    return read(edited(ALLOWING), on=machine())


def test_only_nodes_reach_the_cluster_s_ports() -> None:
    rules = firewall.ruleset(thesis())
    assert "tcp dport { 2049, 2222, 2223, 2224, 2240-2271, 9100, 9200, 9201, 9202 } ip saddr @nodes accept" in rules
    assert "tcp dport { 2049, 2222, 2223, 2224, 2240-2271, 9100, 9200, 9201, 9202 } drop" in rules
    assert rules.index("@nodes accept") < rules.index("9202 } drop\n")
    assert "policy accept" in rules  # SSH is none of its business
    assert "readers" not in rules


def test_only_the_account_and_root_of_a_node_reach_tensorflow() -> None:
    output = firewall.ruleset(thesis("deployment.service_uid=901")).partition("chain output")[2]
    assert output.count("meta skuid { 0, 901 } accept") == 2
    assert "2049" not in output
    assert output.partition("chain forward")[0].count("2240-2271") == 5
    assert "9200" not in output


def test_readers_reach_metrics_and_no_tensorflow() -> None:
    rules = firewall.ruleset(allowing())
    assert "tcp dport { 9100, 9200, 9201, 9202 } ip saddr @readers accept" in rules


def test_readers_reach_the_monitor_where_there_is_one() -> None:
    role = ("roles: [worker]\n  - name: rpi03", "roles: [worker, monitor]\n  - name: rpi03")
    rules = firewall.ruleset(read(edited(ALLOWING, role), on=machine()))
    assert "tcp dport { 9090, 9100, 9200, 9201, 9202 } ip saddr @readers accept" in rules
    assert "tcp dport { 2049, 2222, 2223, 2224, 2240-2271, 9090, 9100, 9200, 9201, 9202 } drop" in rules
    assert "9090" not in firewall.ruleset(allowing())


def test_the_page_is_closed_unless_it_listens_for_the_cluster() -> None:
    assert "9203" not in firewall.ruleset(thesis())
    rules = firewall.ruleset(read(edited(ALLOWING), ["page.listen=cluster"], on=machine()))
    assert "tcp dport { 9100, 9200, 9201, 9202, 9203 } ip saddr @readers accept" in rules
    assert "2224, 2240-2271, 9100, 9200, 9201, 9202, 9203 } drop" in rules


def test_the_same_rules_have_the_same_mark_and_others_another() -> None:
    mark = firewall.loaded_mark(firewall.ruleset(thesis()))
    assert len(mark) == 16
    assert mark == firewall.loaded_mark(firewall.ruleset(thesis()))
    assert mark != firewall.loaded_mark(firewall.ruleset(thesis("ports.worker=2300")))
    assert mark != firewall.loaded_mark(firewall.ruleset(allowing()))


def test_what_is_no_network_is_refused_with_the_inventory() -> None:
    for network in ("10.0.0.300", "256.0.0.1", "10.0.0.0/33", "10.0.0", "010.0.0.1", "any", "10.0.0.1; drop"):
        assert problems(edited(("storage:", f"deployment: {{allow: ['{network}']}}\nstorage:")), on=machine())


@pytest.mark.parametrize("inventory", [thesis(), allowing()], ids=["thesis", "allowing"])
def test_nft_loads_them_twice(tmp_path: Path, inventory: Inventory) -> None:
    """In a network namespace of its own, which ends with the command."""
    needs.tool("nft")
    needs.network_namespace()
    rules = tmp_path / "rules.nft"
    rules.write_text(firewall.ruleset(inventory))
    script = f"nft -f {rules} && nft -f {rules} && nft list table inet pscluster"
    done = subprocess.run(
        ["unshare", "-n", "sh", "-c", script],
        capture_output=True,
        text=True,
        check=False,
    )
    refused = "Operation not supported" in done.stderr or "not permitted" in done.stderr
    needs.possible(f"this kernel has no nftables: {done.stderr.splitlines()[0]}" if refused else "")
    assert done.returncode == 0, done.stderr
    assert f"pscluster {firewall.loaded_mark(rules.read_text())}" in done.stdout
    assert done.stdout.count("@nodes accept") == 1


def test_debian_s_own_rules_come_first_because_they_begin_by_flushing_all() -> None:
    (line,) = [line for line in firewall.unit().splitlines() if line.startswith("After=")]
    assert "nftables.service" in line.removeprefix("After=").split()
