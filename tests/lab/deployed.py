"""A lab whose nodes have the environment, and an operator who has pinned their host keys."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.lab import network
from tests.lab.environment import environment_seed
from tests.lab.lab import Lab
from tests.lab.operator import Operator


@dataclass(frozen=True)
class Place:
    """The lab and its operator."""

    lab: Lab
    operator: Operator

    def on(self, node: str, script: str, *words: str) -> str:
        """The output of a script of root's on a node."""
        return self.lab.node(node).execute("sh", "-c", script, "sh", *words).stdout.strip()

    def problems(self, *words: str) -> list[dict[str, Any]]:
        """The findings of a `check` that stop a start."""
        found = self.operator.fab("deploy", "check", "--json", *words, code=1).json()["findings"]
        return [one for one in found if one["level"] == "problem"]


@contextmanager
def trusted(folder: Path, count: int, **of_lab: Any) -> Iterator[tuple[Lab, Operator]]:
    """Brings up `count` nodes for the operator of `folder`; `of_lab`: see `Lab.up`."""
    seeds = dict.fromkeys(network.addresses(count), environment_seed())
    with Lab.up(count, seeds=seeds, **of_lab) as lab:
        operator = Operator(lab, folder)
        written = subprocess.run(
            [*operator.tool, "init", "--hosts", f"192.168.1.16-{15 + count}"],
            capture_output=True,
            text=True,
            check=True,
        )
        named = written.stdout.replace("node0", "rpi0").replace("node-", "rpi0")
        operator.inventory.write_text(named)
        operator.fab("deploy", "trust", "--yes")
        yield lab, operator
