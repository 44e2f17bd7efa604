"""A kernel lab: a switch and machines on it, in the network namespace of the caller."""

import contextlib
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from tests.lab import network
from tests.lab.commands import LabError, run
from tests.lab.node import USER
from tests.lab.places import Places
from tests.lab_kernel.machine import MEMORY_MIB, Machine

NAME = "kernel"
FIRST_ADDRESS = 16
MAPPINGS = Path("/proc/sys/vm/max_map_count")
LEAST_MAPPINGS = 1 << 20


class KernelLab:
    """Machines rpi01, rpi02 ... at 192.168.1.16 and up.

    `up` makes it, `attach` finds it again, `down` ends it.
    """

    def __init__(self, places: Places, disk: Path, memory_mib: Sequence[int]) -> None:
        self.places = places
        self.machines = {
            f"rpi{number + 1:02d}": Machine(
                places,
                f"rpi{number + 1:02d}",
                f"{network.NETWORK}.{FIRST_ADDRESS + number}",
                disk,
                memory,
            )
            for number, memory in enumerate(memory_mib)
        }

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
        lab = cls(places, disk, memory_mib)
        try:
            places.run.mkdir(parents=True)
            places.state.write_text("\n".join([str(disk), *map(str, memory_mib)]))
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
            disk, *memory = places.state.read_text().split("\n")
        except FileNotFoundError:
            raise LabError(
                "no kernel lab is up: `python -m tests.lab_kernel up` makes one"
            ) from None
        return cls(places, Path(disk), [int(word) for word in memory])

    def down(self) -> None:
        """Ends it; nothing of it is left."""
        for machine in self.machines.values():
            machine.crash()
        network.remove_all(self.places)
        if self._mappings_before.exists():
            MAPPINGS.write_text(self._mappings_before.read_text())
        shutil.rmtree(self.places.run, ignore_errors=True)
        if left := network.left(self.places):
            raise LabError(f"the kernel lab left behind: {', '.join(left)}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.down()

    def machine(self, name: str) -> Machine:
        """One of its machines.

        Raises:
            LabError: There is none of this name.
        """
        with contextlib.suppress(KeyError):
            return self.machines[name]
        raise LabError(f"no machine {name!r}: expected one of {', '.join(self.machines)}")

    @property
    def ssh_config(self) -> Path:
        """For `ssh -F`: names, addresses, user, key and host keys."""
        return self.places.run / "ssh_config"

    def ssh(
        self, machine: str, command: str, *, check: bool = True, timeout_seconds: float = 120.0
    ) -> subprocess.CompletedProcess[str]:
        """Runs a command on a machine as user pi."""
        return run(
            "ssh",
            "-F",
            self.ssh_config,
            machine,
            command,
            check=check,
            timeout_seconds=timeout_seconds,
        )

    def root(
        self, machine: str, script: str, *, check: bool = True, timeout_seconds: float = 120.0
    ) -> str:
        """The output of a shell script that root runs on a machine."""
        words = ("ssh", "-F", self.ssh_config, machine, "sudo sh -s")
        return run(
            *words, stdin=script, check=check, timeout_seconds=timeout_seconds
        ).stdout.strip()

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
        run(
            "ssh-keygen",
            "-q",
            "-t",
            "ed25519",
            "-N",
            "",
            "-C",
            "pscluster-kernel-lab",
            "-f",
            self.places.key,
        )
        network.make_switch(self.places)
        public = self.places.key.with_suffix(".pub").read_text()
        for machine in self.machines.values():
            machine.make(public)
            machine.boot()
        self._describe({name: machine.address for name, machine in self.machines.items()})
        for machine in self.machines.values():
            machine.wait_until_reachable()

    def _describe(self, addresses: Mapping[str, str]) -> None:
        known = self.places.run / "known_hosts"
        keys = {
            name: (self.places.folder(name) / "ssh_host_ed25519_key.pub").read_text().split()
            for name in addresses
        }
        known.write_text(
            "".join(f"{addresses[name]} {words[0]} {words[1]}\n" for name, words in keys.items())
        )
        hosts = "".join(
            f"Host {name}\n    HostName {address}\n" for name, address in addresses.items()
        )
        self.ssh_config.write_text(
            f"{hosts}Host *\n    User {USER}\n    IdentityFile {self.places.key}\n   "
            f" IdentitiesOnly yes\n    UserKnownHostsFile {known}\n    GlobalKnownHostsFile none\n "
            "   StrictHostKeyChecking yes\n    BatchMode yes\n    ConnectTimeout 20\n   "
            " ServerAliveInterval 20\n    LogLevel ERROR\n"
        )
