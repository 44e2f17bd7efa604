"""A kernel lab: a switch and machines on it, in the network namespace of the caller."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from tests.lab import network
from tests.lab.commands import LabError
from tests.lab.over_ssh import OverSsh, make_key
from tests.lab.places import Places
from tests.lab_kernel.machine import MEMORY_MIB, Machine

NAME = "kernel"
MAPPINGS = Path("/proc/sys/vm/max_map_count")
LEAST_MAPPINGS = 1 << 20


class KernelLab(OverSsh[Machine]):
    """Machines rpi01, rpi02 ... at 192.168.1.16 and up.

    `up` makes it, `attach` finds it again, `down` ends it.
    """

    def __init__(self, places: Places, disk: str, memory_mib: Sequence[int]) -> None:
        at = network.addresses(len(memory_mib))
        machines = {
            name: Machine(places, name, address, Path(disk), memory)
            for (name, address), memory in zip(at.items(), memory_mib, strict=True)
        }
        super().__init__(places, machines)

    @classmethod
    def up(cls, disk: Path, memory_mib: Sequence[int] = (MEMORY_MIB,) * 3) -> Self:
        """Brings up one machine for each entry of `memory_mib`; returns when all of them greet.

        Raises:
            LabError: One is up already, or a machine did not start. Nothing is left then.
        """
        places = Places.of(NAME)
        if places.run.exists():
            raise LabError(
                f"a kernel lab is up already in {places.run}: `python -m tests.lab_kernel down`"
                " ends it"
            )
        plan: list[Any] = [str(disk), list(memory_mib)]
        lab = cls(places, *plan)
        try:
            places.run.mkdir(parents=True)
            places.state.write_text(json.dumps(plan))
            lab._allow_mappings()
            lab._start()
        except BaseException:
            lab.down()
            raise
        return lab

    @classmethod
    def attach(cls) -> Self:
        """The running lab.

        Raises:
            LabError: None is.
        """
        places = Places.of(NAME)
        try:
            plan: list[Any] = json.loads(places.state.read_text())
        except FileNotFoundError:
            raise LabError(
                "no kernel lab is up: `python -m tests.lab_kernel up` makes one"
            ) from None
        return cls(places, *plan)

    def down(self) -> None:
        """Ends it; nothing of it is left."""
        for machine in self.nodes.values():
            machine.crash()
        network.remove_all(self.places)
        if self._mappings_before.exists():
            MAPPINGS.write_text(self._mappings_before.read_text())
        shutil.rmtree(self.places.run, ignore_errors=True)
        if left := network.left(self.places):
            raise LabError(f"the kernel lab left behind: {', '.join(left)}")

    def root(self, machine: str, script: str, **options: Any) -> str:
        """The output of a shell script that root runs on a machine; `options`: see `run`."""
        return self.ssh(machine, "sudo sh -s", stdin=script, **options).stdout.strip()

    @property
    def _mappings_before(self) -> Path:
        return self.places.run / "max_map_count"

    def _allow_mappings(self) -> None:
        """Raise the host's limit while the lab is up: a process's page may be a mapping there.

        At the usual 65,530 the kernel kills a process with TensorFlow silently when the machine's
        memory is scattered.
        """
        self._mappings_before.write_text(MAPPINGS.read_text())
        MAPPINGS.write_text(str(max(int(MAPPINGS.read_text()), LEAST_MAPPINGS)))

    def _start(self) -> None:
        public = make_key(self.places.key, "pscluster-kernel-lab")
        network.make_switch(self.places)
        for machine in self.nodes.values():
            machine.make(public)
            machine.boot()
        self.describe()
        for machine in self.nodes.values():
            machine.wait_until_reachable()
