"""The nftables table as nft reads and loads it; `rendered/` has its text."""

import subprocess
from pathlib import Path

import pytest

from core.inventory import Inventory
from deploy.render.network import loaded_mark, ruleset
from tests.core.inventory.cases import edited, problems, read
from tests.deploy.converge.pi import thesis
from tests.deploy.render.rendered import FULL, PLAIN
from tests.habits import needs


@pytest.mark.parametrize(
    "network",
    ["10.0.0.300", "256.0.0.1", "10.0.0.0/33", "10.0.0", "010.0.0.1", "any", "10.0.0.1; drop"],
)
def test_what_is_no_network_is_refused_with_the_inventory(network: str) -> None:
    assert problems(edited(("storage:", f"deployment: {{allow: ['{network}']}}\nstorage:")))


def loaded(script: str, *words: str) -> str:
    """What a script prints in a network namespace, or skips where nft cannot work."""
    done = subprocess.run([*words, "sh", "-c", script], capture_output=True, text=True, check=False)
    if "Operation not supported" in done.stderr or "not permitted" in done.stderr:
        needs.possible(f"this kernel has no nftables: {done.stderr.splitlines()[0]}")
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("inventory", [thesis(), read(PLAIN), read(FULL)])
def test_nft_loads_them_twice(tmp_path: Path, inventory: Inventory) -> None:
    """In a network namespace of its own, which ends with the command."""
    needs.tool("nft")
    needs.network_namespace()
    rules = tmp_path / "rules.nft"
    rules.write_text(ruleset(inventory, inventory.nodes[0].name))
    script = f"nft -f {rules} && nft -f {rules} && nft list table inet pscluster"
    listed = loaded(script, "unshare", "-n")
    assert f"pscluster {loaded_mark(rules.read_text())}" in listed
    assert listed.count("@nodes goto bounded") == 1
