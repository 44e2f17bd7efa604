"""What the checks before a start say of a node."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from core.inventory import Inventory
from deploy.converge.check import Finding
from deploy.converge.desired import examine
from deploy.converge.machine_facts import FileFact, MachineFacts, MountFact, UnitFact, estimate
from deploy.converge.subject import DeploymentSpec
from tests.deploy.converge.pi import release, thesis, untouched

INVENTORY = thesis()


def findings(
    name: str = "rpi01",
    of: Inventory = INVENTORY,
    *,
    model_units: int = 32,
    publishes_bytes: int = 0,
    facts: MachineFacts | None = None,
    **changes: Any,
) -> tuple[Finding, ...]:
    """All of them, of `facts` or an untouched Pi with these changes and a memory controller."""
    if facts is None:
        facts = untouched(of.hosts[name], **({"controllers": ("cpu", "memory")} | changes))
    memory = estimate(model_units)
    spec = DeploymentSpec(of, release(), name=name, memory=memory, publishes_bytes=publishes_bytes)
    return examine(spec, facts)


def found(name: str = "rpi01", of: Inventory = INVENTORY, **changes: Any) -> dict[str, Finding]:
    """What is not well, by topic."""
    return {one.topic: one for one in findings(name, of, **changes) if one.level != "ok"}


def problem(name: str = "rpi01", of: Inventory = INVENTORY, **changes: Any) -> str:
    """The line of the one thing that would make a start fail; empty without one."""
    lines = [one.line for one in findings(name, of, **changes) if one.level == "problem"]
    assert len(lines) < 2, lines
    return "".join(lines)


def running(**changes: Any) -> UnitFact:
    fresh = UnitFact("loaded", "active", "running", "enabled", False, "success", 812, 0)
    return replace(fresh, **changes)


def roots(text: str) -> FileFact:
    """A file of root's, or after an arrow a link."""
    if text.startswith("-> "):
        return FileFact("link", 0o777, "root", "root", target=text.removeprefix("-> "))
    return FileFact("file", 0o644, "root", "root", text.encode())


def of_row(row: Any) -> dict[str, Finding]:
    """What is not well on the node of a row of tables.yaml, by topic."""
    of = INVENTORY
    if "settings" in row or "roles" in row:
        of = thesis(*row.get("settings", ()), **row.get("roles", {}))
    facts = dict(row.get("facts", {}))
    kinds: dict[str, Callable[[Any], object]] = {
        "files": roots,
        "mounts": lambda said: MountFact(*said),
        "units": lambda said: running(**said),
    }
    for kind in kinds.keys() & facts.keys():
        facts[kind] = {name: kinds[kind](said) for name, said in facts[kind].items()}
    return found(row.get("node", "rpi01"), of, **facts)
