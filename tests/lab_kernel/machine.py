"""One machine with a kernel of its own (User-Mode-Linux): disks, a network card, its switch."""

import contextlib
import io
import os
import signal
import subprocess
import tarfile
import time
from dataclasses import dataclass
from pathlib import Path

from tests.lab import network, over_ssh
from tests.lab.commands import APART, LabError, clean_environment, run
from tests.lab.over_ssh import identity

END_SECONDS = 30.0
MEMORY_MIB = 1024

POWER_ON = Path(__file__).with_name("power-on")

NETWORK = """\
[Match]
Name=vec0

[Network]
Address={address}/24
Gateway={gateway}
LinkLocalAddressing=no
IPv6AcceptRA=no
"""


@dataclass(frozen=True)
class Machine(over_ssh.Machine):
    """A machine of a running kernel lab. `disk` is shared by all and never changed."""

    disk: Path
    memory_mib: int = MEMORY_MIB

    @property
    def running(self) -> bool:
        """Whether the power is on."""
        return self._pid() is not None

    def make(self, public_key: str) -> None:
        """Makes its folder, with a disk that holds its identity, before the first boot."""
        self.folder.mkdir(parents=True)
        address = NETWORK.format(address=self.address, gateway=network.HOST_ADDRESS)
        files = identity(self.folder, self.name, public_key)
        files["etc/systemd/network/10-cluster.network"] = (address, 0o644, 0)
        with tarfile.open(self.folder / "identity.tar", "w") as archive:
            for path, (text, mode, owner) in files.items():
                entry = tarfile.TarInfo(path)
                entry.size = len(text)
                entry.mode = mode
                entry.uid = owner
                entry.gid = owner
                archive.addfile(entry, io.BytesIO(text.encode()))

    def boot(self) -> None:
        """Switches the power on; `wait_until_reachable` returns when the machine can be used.

        Raises:
            LabError: It is on.
        """
        self.must_be_off()
        self._plug_in()
        last = int(self.address.rpartition(".")[2])
        card = f"{self.places.cable(self.name)},mac=b8:27:eb:00:00:{last:02x}"
        words = f"""\
            {POWER_ON} mem={self.memory_mib}M umid={self.name} uml_dir={self.folder}
            ubd0={self.folder / "changes.cow"},{self.disk} ubd1r={self.folder / "identity.tar"}
            root=/dev/ubda rw vec0:transport=tap,ifname={card},depth=128,gro=1
            con=null con0=null,fd:2 ssl=null net.ifnames=0 systemd.show_status=0
        """
        # Killing the first of these kills them all: the rest live in a pid namespace of their own.
        with (self.folder / "console.log").open("ab") as console:
            started = subprocess.Popen(
                [*APART, "--mount-proc", "sh", "-c", '"$@"; exit', "sh", *words.split()],
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
                env={**clean_environment(), "TMPDIR": "/dev/shm", "HOME": str(self.folder)},
                start_new_session=True,
            )
        (self.folder / "pid").write_text(f"{started.pid} {_start_time(started.pid)}\n")

    def crash(self) -> None:
        """Pulls the plug without any notice; data that the kernel has not written yet is lost."""
        run("ip", "link", "delete", self.places.cable(self.name), check=False)
        if (pid := self._pid()) is not None:
            os.kill(pid, signal.SIGKILL)
            deadline = time.monotonic() + END_SECONDS
            while self.running:
                if time.monotonic() > deadline:
                    raise LabError(f"{self.name} is on {END_SECONDS:.0f} s after it was killed")
                time.sleep(0.05)

    def _plug_in(self) -> None:
        cable = self.places.cable(self.name)
        run("ip", "link", "delete", cable, check=False)
        run("ip", "tuntap", "add", "dev", cable, "mode", "tap")
        run("ip", "link", "set", cable, "master", self.places.switch, "up")

    def _pid(self) -> int | None:
        """The machine's first process, unless another process has its number now."""
        with contextlib.suppress(OSError, ValueError):
            pid, began = (self.folder / "pid").read_text().split()
            with contextlib.suppress(ChildProcessError):
                os.waitpid(int(pid), os.WNOHANG)
            if _start_time(int(pid)) == began:
                return int(pid)
        return None


def _start_time(pid: int) -> str:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    if fields[0] == "Z":
        raise ProcessLookupError(pid)
    return fields[19]
