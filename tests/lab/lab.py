"""A lab: the switch, up to sixteen nodes on it, an outsider, and the folder that describes them."""

import json
import os
import shlex
import shutil
import signal
import subprocess
import threading
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
from tests.lab.node import USER, USER_ID, LabNode
from tests.lab.oddities import Oddity
from tests.lab.places import REGISTRY, Places

FIRST_ADDRESS = 16
MOST_NODES = 16
REMOVE_SECONDS = 20.0
COMING_UP_SECONDS = 600.0
"""A lab younger than this may have no process yet, because building the image takes minutes."""
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

    @property
    def addresses(self) -> dict[str, str]:
        """By node name: rpi01 is 192.168.1.16."""
        return {
            f"rpi{number + 1:02d}": f"{network.NETWORK}.{FIRST_ADDRESS + number}"
            for number in range(self.count)
        }


class Lab:
    """A running lab. `Lab.up` makes it, `Lab.attach` finds it again, `down` ends it."""

    def __init__(self, places: Places, plan: Plan) -> None:
        self.places = places
        self.plan = plan
        self.nodes = {name: self._node(name, address) for name, address in plan.addresses.items()}

    @classmethod
    def up(
        cls,
        count: int = MOST_NODES,
        *,
        name: str | None = None,
        oddities_of: Mapping[str, Oddity] | None = None,
        seeds: Mapping[str, Path] | None = None,
        mbit_per_second: float = network.LINK_MBIT_PER_SECOND,
    ) -> Self:
        """Brings up nodes rpi01, rpi02 ... and returns when user pi can log in to each of them.

        `seeds`: a folder that lies read-only over the image, by node name (see `seed.build_seed`).

        Raises:
            LabError: It cannot run here, one of this name is up, or a node did not start. Nothing
                is left then.
        """
        requirements.check()
        places = Places.of(name)
        if not 1 <= count <= MOST_NODES:
            raise LabError(f"{count} nodes: expected 1 to {MOST_NODES}")
        layers = {node: [str(folder)] for node, folder in (seeds or {}).items()}
        wrong = {node: oddity.value for node, oddity in (oddities_of or {}).items()}
        plan = Plan(count, str(image()), wrong, layers, mbit_per_second)
        if unknown := sorted({*layers, *wrong} - plan.addresses.keys()):
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
    def attach(cls, name: str | None = None) -> Self:
        """The lab of this name.

        Raises:
            LabError: None is up.
        """
        places = Places.of(name)
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

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.down()

    def node(self, name: str) -> LabNode:
        """One of its nodes.

        Raises:
            LabError: There is none of this name.
        """
        try:
            return self.nodes[name]
        except KeyError:
            raise LabError(f"no node {name!r}: expected one of {', '.join(self.nodes)}") from None

    @property
    def ssh_config(self) -> Path:
        """For `ssh -F`: names, addresses, user, key and host keys."""
        return self.places.run / "ssh_config"

    def ssh(
        self, node: str, command: str, *, check: bool = True, timeout_seconds: float = 60.0
    ) -> subprocess.CompletedProcess[str]:
        """Runs a command on a node as user pi, over the network."""
        return run(
            "ssh",
            "-F",
            self.ssh_config,
            node,
            command,
            check=check,
            timeout_seconds=timeout_seconds,
        )

    def outsider_command(self, *words: str) -> list[str]:
        """The command line for a command of this machine at an address on the switch of no node."""
        space = self.places.namespace(network.OUTSIDER)
        return ["nsenter", f"--net=/run/netns/{space}", *words]

    def outsider(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Runs a command of this machine at 192.168.1.200."""
        return run(*self.outsider_command(*words), check=check)

    def wait_until_reachable(self) -> None:
        """Returns when user pi can log in to every node whose power is on."""
        _each([node.wait_until_reachable for node in self.nodes.values() if node.running])

    def _node(self, name: str, address: str) -> LabNode:
        lower = tuple(Path(folder) for folder in [*self.plan.layers.get(name, []), self.plan.image])
        small = self.plan.oddities.get(name) == Oddity.FULL_CARD.value
        folder = self.places.folder(name)
        card = Card(folder, lower, folder / "card.ext4" if small else None)
        return LabNode(self.places, name, address, card, self.plan.mbit_per_second)

    def _start(self) -> None:
        run(
            "ssh-keygen",
            "-q",
            "-t",
            "ed25519",
            "-N",
            "",
            "-C",
            f"pscluster-{self.places.lab}",
            "-f",
            self.places.key,
        )
        requirements.allow_watchers()
        meminfo.start(self.places)
        network.make_switch(self.places)
        network.plug_in(
            self.places, network.OUTSIDER, network.OUTSIDER_ADDRESS, self.plan.mbit_per_second
        )
        public = self.places.key.with_suffix(".pub").read_text()
        _each([partial(self._prepare, node, public) for node in self.nodes.values()])
        self._describe()
        _each([node.wait_until_reachable for node in self.nodes.values()])

    def _prepare(self, node: LabNode, public: str) -> None:
        card = node.card
        card.make()
        card.write("etc/hostname", f"{node.name}\n")
        card.write(
            "etc/hosts",
            f"127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost\n127.0.1.1\t{node.name}\n",
        )
        card.write("etc/machine-id", f"{os.urandom(16).hex()}\n", mode=0o444)
        card.write("home/pi/.ssh/authorized_keys", public, mode=0o600, owner=USER_ID)
        host_key = node.folder / "ssh_host_ed25519_key"
        run(
            "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", f"root@{node.name}", "-f", host_key
        )
        card.write("etc/ssh/ssh_host_ed25519_key", host_key.read_text(), mode=0o600)
        card.write("etc/ssh/ssh_host_ed25519_key.pub", host_key.with_suffix(".pub").read_text())
        if node.name in self.plan.oddities:
            oddities.apply(Oddity(self.plan.oddities[node.name]), card)
        card.freeze()
        cgroups.make(self.places, node.name)
        node.limit_memory(cgroups.MEMORY_BYTES)
        node.boot()

    def _describe(self) -> None:
        """Writes known hosts and a configuration for ssh."""
        known = []
        hosts = []
        for node in self.nodes.values():
            kind, key, _ = (node.folder / "ssh_host_ed25519_key.pub").read_text().split()
            known.append(f"{node.address} {kind} {key}\n")
            hosts.append(f"Host {node.name}\n    HostName {node.address}\n")
        (self.places.run / "known_hosts").write_text("".join(known))
        common = f"""\
Host *
    User {USER}
    IdentityFile {self.places.key}
    IdentitiesOnly yes
    UserKnownHostsFile {self.places.run / "known_hosts"}
    GlobalKnownHostsFile none
    StrictHostKeyChecking yes
    BatchMode yes
    ConnectTimeout 10
    LogLevel ERROR
"""
        self.ssh_config.write_text("".join(hosts) + common)


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
    """Take the lab's name on this machine, and remove what a lab without an end has left.

    Raises:
        LabError: One of this name is up.
    """
    REGISTRY.mkdir(exist_ok=True)
    if _has_ended(places):
        with _uninterrupted():
            remove(Places(places.lab, Path(places.registered.read_text().strip())))
    try:
        with places.registered.open("x") as file:
            file.write(f"{places.run}\n")
    except FileExistsError:
        raise LabError(
            f"lab {places.lab!r} is up already in {places.registered.read_text().strip()}:"
            f" `{shlex.join(['python', '-m', 'tests.lab', 'down'])}` ends it, PSCLUSTER_LAB names"
            " another"
        ) from None


def _has_ended(places: Places) -> bool:
    """Whether a lab without any process, and not just begun, holds the name."""
    try:
        age_seconds = time.time() - places.registered.stat().st_mtime
    except FileNotFoundError:
        return False
    alive = any(cgroups.processes(places, node) for node in cgroups.nodes(places))
    return not alive and age_seconds > COMING_UP_SECONDS


def _each(actions: Sequence[Callable[[], None]]) -> None:
    with ThreadPoolExecutor(HANDS) as pool:
        for done in [pool.submit(action) for action in actions]:
            done.result()


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Ctrl-C waits until the clean-up is done."""
    if threading.current_thread() is not threading.main_thread():  # no signal comes here
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
