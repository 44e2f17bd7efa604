"""A lab: the switch, up to sixteen nodes on it, an outsider, and the folder that describes them."""

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Self

from tests.lab import cgroups, meminfo, network, oddities, requirements
from tests.lab.card import Card
from tests.lab.commands import LabError, run
from tests.lab.image import image
from tests.lab.node import LabNode
from tests.lab.oddities import Oddity
from tests.lab.over_ssh import OverSsh, identity, make_key
from tests.lab.places import REGISTRY, Places

MOST_NODES = 16
REMOVE_SECONDS = 20.0
HANDS = 8
"""How many nodes are handled at once."""


@dataclass(frozen=True)
class Plan:
    """The request of `up`.

    `oddities` by node name; `layers`: read-only folders over the image, the topmost first, by node
    name.
    """

    count: int
    image: str
    oddities: dict[str, str]
    layers: dict[str, list[str]]
    mbit_per_second: float


class Lab(OverSsh[LabNode]):
    """A running lab. `Lab.up` makes it, `Lab.attach` finds it again, `down` ends it."""

    def __init__(self, places: Places, plan: Plan) -> None:
        self.places = places
        self.plan = plan
        addresses = network.addresses(plan.count)
        super().__init__(places, {name: self._node(name, at) for name, at in addresses.items()})

    @classmethod
    def up(
        cls,
        count: int = MOST_NODES,
        *,
        oddities_of: Mapping[str, Oddity] | None = None,
        seeds: Mapping[str, Path] | None = None,
        mbit_per_second: float = network.LINK_MBIT_PER_SECOND,
    ) -> Self:
        """Brings up nodes rpi01, rpi02 ... and returns when user pi can log in to each of them.

        `seeds`: a folder that lies read-only over the image, by node name (see `environment`).

        Raises:
            LabError: It cannot run here, one of this name is up, or a node did not start. Nothing
                is left then.
        """
        requirements.check()
        places = Places.of()
        if not 1 <= count <= MOST_NODES:
            raise LabError(f"{count} nodes: expected 1 to {MOST_NODES}")
        layers = {node: [str(folder)] for node, folder in (seeds or {}).items()}
        wrong = {node: oddity.value for node, oddity in (oddities_of or {}).items()}
        plan = Plan(count, str(image()), wrong, layers, mbit_per_second)
        if unknown := sorted({*layers, *wrong} - network.addresses(count).keys()):
            raise LabError(
                f"no node {', '.join(unknown)} in a lab of {count}: rpi01 to rpi{count:02d}"
            )
        register(places)
        try:
            if places.run.exists():  # of a lab that a restart of this machine has ended
                shutil.rmtree(places.run)
            places.run.mkdir(parents=True)
            places.state.write_text(json.dumps(plan.__dict__, indent=1))
            lab = cls(places, plan)
            lab._start()
        except BaseException:
            with _uninterrupted():
                remove(places)
            raise
        return lab

    @classmethod
    def attach(cls) -> Self:
        """The lab of this name.

        Raises:
            LabError: None is up.
        """
        places = Places.of()
        try:
            return cls(places, Plan(**json.loads(places.state.read_text())))
        except FileNotFoundError:
            raise LabError(
                f"no lab {places.lab!r} in {places.run}: `python -m tests.lab up` makes one"
            ) from None

    def down(self) -> None:
        """Ends it; nothing of it is left."""
        with _uninterrupted():
            remove(self.places)

    def outsider_command(self, *words: str) -> list[str]:
        """The command line for a command of this machine at an address on the switch of no node."""
        space = self.places.namespace(network.OUTSIDER)
        return ["nsenter", f"--net=/run/netns/{space}", *words]

    def outsider(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Runs a command of this machine at 192.168.1.200."""
        return run(*self.outsider_command(*words), check=check)

    def _node(self, name: str, address: str) -> LabNode:
        lower = tuple(Path(folder) for folder in [*self.plan.layers.get(name, []), self.plan.image])
        small = self.plan.oddities.get(name) == Oddity.FULL_CARD.value
        folder = self.places.folder(name)
        card = Card(folder, lower, folder / "card.ext4" if small else None)
        return LabNode(self.places, name, address, card, self.plan.mbit_per_second)

    def _start(self) -> None:
        public = make_key(self.places.key, f"pscluster-{self.places.lab}")
        requirements.allow_watchers()
        meminfo.start(self.places)
        network.make_switch(self.places)
        network.plug_in(
            self.places, network.OUTSIDER, network.OUTSIDER_ADDRESS, self.plan.mbit_per_second
        )
        _each([partial(self._prepare, node, public) for node in self.nodes.values()])
        self.describe()
        _each([node.wait_until_reachable for node in self.nodes.values()])

    def _prepare(self, node: LabNode, public: str) -> None:
        card = node.card
        card.make()
        for path, (content, mode, owner) in identity(node.folder, node.name, public).items():
            card.write(path, content, mode, owner)
        card.write("etc/machine-id", f"{os.urandom(16).hex()}\n", mode=0o444)
        if node.name in self.plan.oddities:
            oddities.apply(Oddity(self.plan.oddities[node.name]), card)
        card.freeze()
        cgroups.make(self.places, node.name)
        node.limit_memory(cgroups.MEMORY_BYTES)
        node.boot()


def remove(places: Places) -> None:
    """Ends everything with the lab's name, also the remains of a killed `up`.

    Raises:
        LabError: The lab of this name is another checkout's.
    """
    if places.registered.exists() and (other := places.registered.read_text().strip()) != str(
        places.run
    ):
        raise LabError(f"lab {places.lab!r} is in {other}, not in {places.run}: end it from there")
    deadline = time.monotonic() + REMOVE_SECONDS
    while True:
        network.remove_all(places)
        cgroups.kill_all(places, *cgroups.nodes(places))
        left = [*cgroups.remove(places), *network.left(places)]
        if not left:
            break
        # Steps of a killed `up` continue for a moment: a node that is just being switched on, the
        # cable of another.
        if time.monotonic() > deadline:
            raise LabError(f"lab {places.lab!r} left behind: {', '.join(left)}")
        time.sleep(0.05)
    meminfo.stop(places)
    if places.run.exists():
        shutil.rmtree(places.run)
    places.registered.unlink(missing_ok=True)


def register(places: Places) -> None:
    """Take the lab's name on this machine.

    Raises:
        LabError: One of this name is up.
    """
    REGISTRY.mkdir(exist_ok=True)
    try:
        with places.registered.open("x") as file:
            file.write(f"{places.run}\n")
    except FileExistsError:
        where = places.registered.read_text().strip()
        raise LabError(
            f"lab {places.lab!r} is up already in {where}: `python -m tests.lab down` ends it,"
            " PSCLUSTER_LAB names another"
        ) from None


def _each(actions: Sequence[Callable[[], None]]) -> None:
    with ThreadPoolExecutor(HANDS) as pool:
        for done in [pool.submit(action) for action in actions]:
            done.result()


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Ctrl-C waits until the clean-up is done."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
