"""One emulated Raspberry Pi: its card, its cable, its limits, and the power switch."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.lab import cgroups, network
from tests.lab.card import Card
from tests.lab.commands import LabError, clean_environment, complaint, run
from tests.lab.over_ssh import Machine
from tests.lab.places import FILES
from tests.lab.snapshot import Snapshot, snapshot


@dataclass(frozen=True)
class LabNode(Machine):
    """An emulated Raspberry Pi."""

    card: Card
    mbit_per_second: float = network.LINK_MBIT_PER_SECOND

    @property
    def running(self) -> bool:
        """Whether the power is on."""
        return bool(cgroups.processes(self.places, self.name))

    def boot(self) -> None:
        """Switches the power on; `wait_until_reachable` returns when the node can be used.

        Raises:
            LabError: It is on.
        """
        self.must_be_off()
        network.unplug(self.places, self.name)  # it may have shut down rather than crashed
        network.plug_in(self.places, self.name, self.address, self.mbit_per_second)
        cgroups.make(self.places, self.name)
        (self.folder / "pid").unlink(missing_ok=True)
        card = str(self.card.image_file or "")
        lower = ":".join(str(folder) for folder in self.card.lower)
        groups = [
            str(self.places.cgroup(controller, self.name)) for controller in cgroups.CONTROLLERS
        ]
        with (self.folder / "console.log").open("ab") as console:
            subprocess.run(
                [
                    *("setsid", "--fork", str(FILES / "node" / "power-on")),
                    *(str(self.folder / "pid"), self.places.namespace(self.name), *groups, "--"),
                    *(
                        str(FILES / "node" / "init"),
                        self.name,
                        str(self.folder),
                        str(self.places.told),
                        lower,
                        card,
                    ),
                ],
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
                env=clean_environment(),
                check=True,
            )

    def crash(self) -> None:
        """Pulls the plug without any notice; files that were written stay on the card."""
        network.unplug(self.places, self.name)
        cgroups.kill_all(self.places, self.name)

    def link(self, up: bool) -> None:
        """Pulls the network cable out of the switch, or puts it back in."""
        network.set_link(self.places, self.name, up)

    def shape(self, mbit_per_second: float) -> None:
        """Limits the cable, both ways, until the next boot."""
        network.shape(self.places, self.name, mbit_per_second)

    def limit_memory(self, limit_bytes: int | None) -> None:
        """Limits the memory of all the node's processes; /proc/meminfo there shows the limit.

        None for no limit.
        """
        cgroups.limit_memory(self.places, self.name, limit_bytes)

    def limit_cpu(self, percent: float | None) -> None:
        """Limit all processes to a percentage of one core, or not; 10 % is about a Pi 3."""
        cgroups.limit_cpu(self.places, self.name, percent)

    def command(self, *words: str) -> list[str]:
        """The command line that runs a command as root on the node, within its limits."""
        enter = 'for group in $1; do echo $$ >"$group/cgroup.procs"; done; shift; exec "$@"'
        groups = [
            str(self.places.cgroup(controller, self.name)) for controller in ("memory", "cpu")
        ]
        entering = f"""
            nsenter --target={self._pid_one()} --mount --uts --ipc --net --time --pid --cgroup
            --root --wd
        """
        clean = [f"{name}={value}" for name, value in clean_environment().items()]
        limited = ["sh", "-c", enter, "sh", " ".join(groups)]
        return ["env", "-i", *clean, *limited, *entering.split(), *words]

    def execute(
        self,
        *words: str,
        stdin: str | None = None,
        check: bool = True,
        timeout_seconds: float = 60.0,
    ) -> subprocess.CompletedProcess[str]:
        """Runs a command as root on the node, as if at its keyboard.

        Raises:
            LabError: It ended with a code other than 0, and `check` is true.
        """
        done = run(*self.command(*words), stdin=stdin, check=False, timeout_seconds=timeout_seconds)
        if check and done.returncode != 0:
            said = complaint(words, done.returncode, done.stderr or done.stdout)
            raise LabError(f"{self.name}: {said}")
        return done

    def reachable(self) -> bool:
        """Whether its sshd greets, and users may log in already."""
        return (
            super().reachable()
            and self.running
            and not Path(f"/proc/{self._pid_one()}/root/run/nologin").exists()
        )

    def snapshot(self) -> Snapshot:
        """The present units and files, for comparison with another snapshot."""
        units = self.execute(
            "sh", "-c", "systemctl list-unit-files --no-legend --plain | awk '{print $1, $2}'"
        ).stdout
        active = self.execute("systemctl", "list-units", "--no-legend", "--plain", "--all").stdout
        return snapshot(self.card, units, active)

    def _pid_one(self) -> int:
        """Its pid 1, by the host's count."""
        try:
            outer = int((self.folder / "pid").read_text())
            return int(Path(f"/proc/{outer}/task/{outer}/children").read_text().split()[0])
        except (OSError, ValueError, IndexError):
            raise LabError(f"{self.name} is off: `boot {self.name}` switches it on") from None
