"""What inventories want of Raspberry Pis, facts of Pis, and deployments on played ones."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from core.inventory import Inventory
from core.inventory.loading import loads
from deploy.common.project import ROOT
from deploy.converge.apply import apply
from deploy.converge.code import ReleaseChoice
from deploy.converge.deployment import PHASES, plan
from deploy.converge.desired import Machines
from deploy.converge.machine_facts import MachineFacts, MountFact, UnitFact
from deploy.converge.publication import Publication
from deploy.converge.subject import Change
from tests.deploy.converge.played_machine import (
    ENVIRONMENT,
    PlayedMachine,
    code_wheel,
    wheelhouse,
    wheels,
)
from tests.deploy.converge.tables import TABLES

Cluster = dict[str, MachineFacts]
Plans = Mapping[str, Mapping[str, Sequence[Change]]]


@dataclass(frozen=True)
class KnownRelease(ReleaseChoice):
    """A release whose environment has a known key: another test hashes the list of packages."""

    def environment_for(self, facts: MachineFacts, *, serves: bool = False) -> str | None:
        if facts.python_version is None:
            return None
        return ENVIRONMENT


def release(key: str = "feedfacefeedface") -> ReleaseChoice:
    return KnownRelease(code_wheel(key), "")


def thesis(*overrides: str, **more: str) -> Inventory:
    """The shipped inventory of sixteen Pis; `rpi02="monitor"` adds a role to a worker's."""
    path = ROOT / "inventory.yaml"
    lines = path.read_text(encoding="utf-8").splitlines()
    for node, role in more.items():
        (number,) = (number for number, line in enumerate(lines) if f"name: {node}," in line)
        lines[number] = lines[number].replace("[worker]", f"[worker, {role}]")
    return loads("\n".join(lines), str(path), overrides, path=path, machine=None)


def machines_for(inventory: Inventory, key: str = "feedfacefeedface") -> Machines:
    publication = Publication("wheels", ENVIRONMENT, wheels())
    return Machines(inventory, release(key), (publication,), {ENVIRONMENT: wheelhouse()})


def untouched(address: str = "192.168.1.16", **changes: Any) -> MachineFacts:
    """Raspberry Pi OS bookworm on a Pi 3B+, as it comes from the card."""
    facts = MachineFacts(
        **TABLES["untouched"],
        addresses={"lo": ("127.0.0.1",), "eth0": (address,)},
        mounts={"/": MountFact("/dev/mmcblk0p2", "ext4", "179:2")},
    )
    return replace(facts, **changes)


def untouched_cluster(inventory: Inventory) -> Cluster:
    return {node.name: untouched(inventory.links[node.name]) for node in inventory.nodes}


def with_unit(facts: MachineFacts, name: str, **changes: object) -> MachineFacts:
    """The facts of a node whose unit differs so."""
    unit: UnitFact = replace(facts.units[name], **changes)  # type: ignore[arg-type]
    return replace(facts, units={**facts.units, name: unit})


class PlayedPis:
    """The machines of a cluster in folders; a name that is new is an untouched Pi."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.machines: dict[str, PlayedMachine] = {}

    def facts(self, machines: Machines, *names: str) -> Cluster:
        """What these machines say of themselves."""
        for name in names:
            if name not in self.machines:
                address = machines.inventory.links[name]
                self.machines[name] = PlayedMachine(self._folder / name, name, address)
        return {name: machines.ask(self.machines[name]) for name in names}

    def apply(self, name: str, changes: Sequence[Change]) -> None:
        """Carry out some changes on one machine."""
        apply(self.machines[name], "for a test", changes, lambda change, seconds: None)

    def deploy(
        self, machines: Machines, *names: str, phases: Sequence[str] = PHASES
    ) -> tuple[Cluster, Plans]:
        """One deployment on these machines: what they are afterwards, and what was planned.

        Asserts that nothing is left to plan in its phases.
        """
        plans = plan(machines, self.facts(machines, *names))
        for phase in phases:
            for name in names:
                self.apply(name, plans[phase][name])
        after = self.facts(machines, *names)
        again = plan(machines, after)
        for phase in phases:
            for name in names:
                assert named(again[phase][name]) == [], name
        return after, plans


def all_changes(plans: Plans) -> list[tuple[str, Change]]:
    """Node and change, in order of the phases."""
    return [
        (name, one) for phase in PHASES for name, changes in plans[phase].items() for one in changes
    ]


def named(changes: Iterable[Change]) -> list[str]:
    """`start pscluster-ps-0.service` of each change."""
    return [f"{change.action} {change.subject}" for change in changes]


def on_node(plans: Plans, node: str) -> list[str]:
    """All changes of a node, named."""
    return named(change for name, change in all_changes(plans) if name == node)
