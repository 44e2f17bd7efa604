"""`make lab-kernel`: the deployment on machines with kernels of their own, a line a result."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests.lab.commands import LabError
from tests.lab_kernel.kernel_lab import KernelLab
from tests.lab_kernel.seeded import seeded_disk

SERVER = "rpi01"
CLIENT = "rpi02"
LAST = "rpi03"
PATIENCE_SECONDS = 600.0
START_SECONDS = 1800.0

GROW = """\
systemd-run --quiet --wait --collect --unit=pscluster-trial \
-p Slice=pscluster.slice -p OOMScoreAdjust=900 python3 -c 'parts = []
while True: parts.append(bytearray(b"x") * (8 << 20))'
grep -w oom_kill /sys/fs/cgroup/pscluster.slice/memory.events
"""

WRITER = """\
import os, time
last = time.monotonic()
with open("/run/gaps", "w", buffering=1) as gaps:
    for number in range(100000):
        with open("/mnt/trial/part", "wb") as file:
            file.write(bytes(65536)); file.flush(); os.fsync(file.fileno())
        os.replace("/mnt/trial/part", f"/mnt/trial/file{number % 5}")
        now = time.monotonic(); gaps.write(f"{now - last:.3f}\\n"); last = now
        time.sleep(0.1)
"""


def main() -> int:
    """Exit code 0 when all of it holds."""
    with KernelLab.up(seeded_disk()) as lab:
        Proof(lab).run()
    return 0


class Proof:
    """The steps, in order; each prints its result and its seconds."""

    def __init__(self, lab: KernelLab) -> None:
        self._lab = lab
        self._inventory = lab.places.run / "kernel.yaml"
        text = Path(__file__).with_name("inventory.yaml").read_text()
        text = text.replace("KEY", str(lab.places.key))
        self._inventory.write_text(text.replace("RUNS", str(lab.places.run / "runs")))

    def run(self) -> None:
        """All of them."""
        for step in (
            self.start_and_train,
            self.second_start_changes_nothing,
            self.server_listens_on_one_nfs_port,
            self.outsiders_are_not_answered,
            self.memory_limit_kills_the_one_that_grows,
            self.exporting_anew_stalls_nobody,
            self.clients_outlast_a_reboot_of_the_server,
            self.worker_comes_back_by_itself,
            self.reset,
        ):
            began = time.monotonic()
            said = step()
            print(
                f"{step.__name__.replace('_', ' ')}: {said} ({time.monotonic() - began:.0f} s)",
                flush=True,
            )

    def start_and_train(self) -> str:
        """Trust, check, start with both jobs."""
        self._fab("trust", "--yes")
        self._fab("check")
        result = json.loads(
            Path(_last(self._fab("start"), "result: ").removeprefix("result: ")).read_text()
        )
        _expect(
            result["status"] == "done",
            f"the training done, got {result['status']}: {result['reason']}",
        )
        return (
            f"trained on {result['workers']} machines, accuracy {result['final']['accuracy']:.3f}"
        )

    def second_start_changes_nothing(self) -> str:
        """The second start."""
        return _last(self._fab("start"), " 0 changed")

    def server_listens_on_one_nfs_port(self) -> str:
        """Threads, versions, and listening processes."""
        versions = self._lab.root(SERVER, "cat /proc/fs/nfsd/versions /proc/fs/nfsd/threads").split(
            "\n"
        )
        _expect(versions[0].startswith("-3 +4"), f"version 4 alone, got {versions[0]}")
        listening = self._lab.root(SERVER, "ss -Htlnup | grep -E 'rpcbind|rpc[.]|:111 ' || :")
        _expect(not listening, f"no port but 2049, got {listening}")
        return f"versions {versions[0]}, {versions[1]} threads, port 2049"

    def outsiders_are_not_answered(self) -> str:
        """Without nftables the units' own filter rejects this machine, which is no node."""
        ask = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 5)"
        address = self._lab.node(SERVER).address
        for port in ("2222", "2223", "9200"):
            answered = subprocess.run(
                [sys.executable, "-c", ask, address, port], capture_output=True, check=False
            )
            _expect(
                answered.returncode != 0, f"port {port} answers an address outside of the inventory"
            )
        return "2222, 2223, 9200 do not answer"

    def memory_limit_kills_the_one_that_grows(self) -> str:
        """A process in the slice that takes all memory."""
        before = self._lab.root(CLIENT, "systemctl show --value -p NRestarts pscluster-worker-1")
        said = self._lab.root(CLIENT, GROW, check=False, timeout_seconds=PATIENCE_SECONDS)
        _expect(said.endswith("oom_kill 1"), f"one process killed, got {said}")
        after = self._lab.root(CLIENT, "systemctl show --value -p NRestarts pscluster-worker-1")
        _expect(before == after, "the worker beside it was restarted")
        return said

    def exporting_anew_stalls_nobody(self) -> str:
        """A client that writes while the server exports again."""
        options = "rw,sync,no_subtree_check,all_squash,anonuid=890,anongid=890"
        client = self._lab.node(CLIENT).address
        self._lab.root(
            SERVER,
            f"echo '/srv/pscluster/runs {client}({options})' >/etc/exports.d/trial.exports;"
            " exportfs -ra",
        )
        source = f"{self._lab.node(SERVER).address}:/srv/pscluster/runs"
        self._lab.root(
            CLIENT, f"set -e; mkdir -p /mnt/trial; mount -t nfs4 -o hard {source} /mnt/trial"
        )
        self._lab.root(CLIENT, f"cat >/run/writer.py <<'END'\n{WRITER}END\n")
        self._lab.root(CLIENT, "systemd-run --quiet --collect --unit=writer python3 /run/writer.py")
        for _ in range(3):
            wrote = self._written()
            self._lab.root(SERVER, "exportfs -ra")
            self._until(lambda wrote=wrote: self._written() > wrote + 20, "the writer continues")  # type: ignore[misc]
        return f"longest gap between two writes {self._gap():.2f} s"

    def clients_outlast_a_reboot_of_the_server(self) -> str:
        """The writer is the same, with a hard mount."""
        wrote = self._written()
        self._reboot(SERVER, "pscluster-ps-0 pscluster-worker-0 nfs-server")
        self._until(lambda: self._written() > wrote + 50, "the writer continues")
        self._lab.root(
            CLIENT, "systemctl stop writer; umount /mnt/trial; rmdir /mnt/trial; rm /run/writer.py"
        )
        self._lab.root(
            SERVER, "rm /etc/exports.d/trial.exports /srv/pscluster/runs/file* ; exportfs -ra"
        )
        return f"longest gap between two writes {self._gap():.0f} s"

    def worker_comes_back_by_itself(self) -> str:
        """Role ready and mount there, without any start."""
        self._reboot(LAST, "pscluster-worker-2")
        return (
            "ready; /mnt/pscluster/shared has"
            f" {self._lab.ssh(LAST, 'ls /mnt/pscluster/shared').stdout.strip()}"
        )

    def reset(self) -> str:
        """Everything is removed."""
        self._fab("reset", "--yes", "--with-data")
        for name in self._lab.nodes:
            left = self._lab.root(
                name, "ls -d /opt/pscluster /srv/pscluster /var/lib/pscluster* 2>/dev/null || :"
            )
            failed = self._lab.root(name, "systemctl --failed --no-legend --plain")
            _expect(not left and not failed, f"nothing left on {name}, got {left} {failed}")
        listens = self._lab.root(SERVER, "systemctl is-active rpcbind.socket", check=False)
        _expect(listens == "active", f"rpcbind as before, it is {listens}")
        return "nothing left"

    def _fab(self, *words: str) -> str:
        command = [str(Path(sys.executable).with_name("fab")), f"deploy.{words[0]}", *words[1:]]
        done = subprocess.run(
            [*command, "--inventory", str(self._inventory)],
            capture_output=True,
            text=True,
            check=False,
            timeout=START_SECONDS,
        )
        _expect(
            done.returncode == 0,
            f"`fab deploy {' '.join(words)}` ended with {done.returncode}:\n{done.stdout}",
        )
        return done.stdout

    def _reboot(self, name: str, units: str) -> None:
        boot = "cat /proc/sys/kernel/random/boot_id"
        before = self._lab.root(name, boot)
        self._lab.root(name, "systemctl reboot", check=False)
        self._until(
            lambda: self._lab.root(name, boot, check=False) not in ("", before), f"{name} boots"
        )
        active = f"systemctl is-active --quiet {units} && echo up"
        self._until(
            lambda: self._lab.root(name, active, check=False) == "up",
            f"{units} of {name} are active",
        )

    def _written(self) -> int:
        return int(self._lab.root(CLIENT, "wc -l </run/gaps", check=False) or 0)

    def _gap(self) -> float:
        return float(self._lab.root(CLIENT, "sort -n /run/gaps | tail -n 1"))

    def _until(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            _expect(time.monotonic() < deadline, f"not within {PATIENCE_SECONDS:.0f} s: {what}")
            time.sleep(0.5)


def _expect(holds: bool, what: str) -> None:
    if not holds:
        raise LabError(f"expected: {what}")


def _last(text: str, part: str) -> str:
    found = [line for line in text.splitlines() if part in line]
    _expect(bool(found), f"a line with {part!r}, got:\n{text}")
    return found[-1].strip()


if __name__ == "__main__":
    try:
        sys.exit(main())
    except LabError as problem:
        print(f"kernel lab: {problem}", file=sys.stderr)
        sys.exit(1)
