"""A Raspberry Pi that is a folder: deployments run on it with their scripts and questions.

`PlayedMachine` is a node's connector. What would reach beyond its folder (systemd, apt, accounts,
mounts, nftables, NFS) is done by `play_command.py`, which keeps in files what each command leaves.
"""

import hashlib
import subprocess
import zipfile
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from deploy.cluster.connector import Connector, Following, Kept
from deploy.common.project import ROOT
from deploy.converge.change import PublishedFile
from deploy.converge.machine_facts import MachineFacts, Questions
from deploy.converge.survey import machine_facts
from deploy.release.code_wheel import CodeWheel
from deploy.release.wheelhouse import Wheelhouse
from tests.deploy.converge import play_command
from tests.deploy.converge.played_node import OWN_FOLDERS, PlayedNode
from tests.habits import needs
from tests.ran import program

ENVIRONMENT = "0123456789abcdef"
PROGRAM = program(
    f"""\
import sys
sys.path.insert(0, {str(ROOT)!r})
from tests.deploy.converge.play_command import main
main()
""",
    "-IS",
)
REAL = (
    *("base64", "cmp", "comm", "cut", "date", "du", "find", "flock", "head", "ln", "nice"),
    *("readlink", "sha256sum", "stat", "timeout", "tr", "uniq"),
)
# Shell where it does: a Python for each of a deployment's hundreds of commands takes long.
ESCAPE = """\
for word; do case $word in --suffix=*) suffix=${word#--suffix=} ;; esac; done
echo "$(echo "$word" | tr / %).$suffix"
"""
EXPORTFS = """\
[ "$1" = -ra ] || exec cat {root}/run/exports
sed '/^#/d' {root}/etc/exports.d/* |
    awk '{ for (i = 2; i <= NF; i++) print "{root}" $1 "  " $i }' >{root}/run/exports
"""
GETENT = """\
file={root}/etc/$1; shift
awk -F: -v all=" $* " 'index(all, " " $1 " ") || index(all, " " $3 " ") { print; found = 1 }
    END { exit !found * 2 }' $file 2>/dev/null
"""
NFT = """\
for file; do :; done
case "$*" in
    *delete*) rm -f {root}/run/nft ;;
    *list*) cat {root}/run/nft 2>/dev/null ;;
    *-c*) ;;
    *) cp "$file" {root}/run/nft ;;
esac
"""
USERADD = """\
while [ $# -gt 1 ]; do case $1 in --uid) uid=$2 ;; --gid) gid=$2 ;; esac; shift; done
"""
WG = """\
case "$1" in
    genkey) head -c 32 /dev/urandom | base64 ;;
    pubkey) sha256sum | cut -c 1-32 | tr -d '\\n' | base64 ;;
esac
"""
"""In the place of WireGuard's tool: a public key that only its private one makes."""
ANSWERS = {
    "df": "echo Filesystem; echo '/dev/mmcblk0p2 30000000 1000000 20000000 5% /'",
    "dpkg": "exit 0",
    "exportfs": EXPORTFS,
    "getconf": "echo 64",
    "getent": GETENT,
    "groupadd": USERADD + 'echo "$1:x:$gid:" >>{root}/etc/group',
    "ip": 'case "$*" in *addr*) echo "2: eth0 inet $(cat {root}/address)/24" ;; esac',
    "nft": NFT,
    "nproc": "echo 4",
    "rpc.nfsd": "exit 0",
    "sync": "exit 0",
    "systemd-escape": ESCAPE,
    "systemd-run": "exit 0",
    "timedatectl": "echo yes",
    "useradd": USERADD + 'echo "$1:x:$uid:$gid::/:/usr/sbin/nologin" >>{root}/etc/passwd',
    "uname": 'case "$1" in -m) echo aarch64 ;; *) echo 6.12.47+rpt-rpi-v8 ;; esac',
    "vcgencmd": "echo throttled=0x0",
    "wg": WG,
}
FILES = {
    "boot/firmware/cmdline.txt": "console=tty1\n",
    "etc/fstab": "proc /proc proc defaults 0 0\nPARTUUID=1-02 / ext4 defaults,noatime 0 1\n",
    "etc/os-release": "ID=debian\nVERSION_ID=12\n",
    "proc/meminfo": "MemTotal: 927735 kB\nMemAvailable: 683593 kB\n",
    "proc/self/mountinfo": "20 1 179:2 / / rw - ext4 /dev/mmcblk0p2 rw\n",
    "proc/sys/kernel/random/uuid": "a-mark\n",
    "sys/fs/cgroup/cgroup.controllers": "cpuset cpu io pids\n",
    "sys/class/thermal/thermal_zone0/temp": "48000\n",
}
UV = """\
#!/bin/sh
[ "$1" = venv ] || exit 0
for last; do :; done
mkdir -p "$last/bin"
printf '#!/bin/sh\\nexec "%s" "$@"\\n' "$(command -v python3)" >"$last/bin/python"
chmod +x "$last/bin/python"
"""
"""In the place of uv: an environment with a Python alone."""


@cache
def _folder() -> TemporaryDirectory[str]:
    return TemporaryDirectory(prefix="played-release-")  # it goes with this process


@cache
def wheels() -> tuple[PublishedFile, ...]:
    """The published wheelhouse of the played environment."""
    folder = Path(_folder().name)
    with zipfile.ZipFile(folder / "uv-1-py3-none-any.whl", "w") as archive:
        archive.writestr(zipfile.ZipInfo("uv-1.data/scripts/uv"), UV)
    (folder / "requirements.txt").touch()
    found = []
    for path in sorted(folder.iterdir()):
        content = path.read_bytes()
        digest = hashlib.sha256(content).hexdigest()
        found.append(PublishedFile(path.name, path, digest, len(content)))
    return tuple(found)


class KnownWheelhouse(Wheelhouse):
    """The wheelhouse of the played environment."""

    def sums(self) -> str:
        return "".join(f"{file.sha256}  {file.name}\n" for file in wheels())


@cache
def wheelhouse() -> Wheelhouse:
    sizes = {file.name: file.size_bytes for file in wheels()}
    return KnownWheelhouse(
        Path("wheels"), ENVIRONMENT, "3.11", "aarch64", "0" * 64, sizes, 1_700_000_000
    )


@cache
def code_wheel(key: str) -> CodeWheel:
    """The code wheel has the same content under any key."""
    (uv,) = (file for file in wheels() if file.name.endswith(".whl"))
    return CodeWheel(uv.path, key, uv.sha256, "1.0")


class PlayedMachine(Connector):
    """An untouched Pi in the folder `root`, with this address."""

    def __init__(self, root: Path, name: str, address: str) -> None:
        super().__init__(name)
        self.node = PlayedNode(root, (*OWN_FOLDERS, "boot", "sys", "exported", "owners"))
        for path, text in {**FILES, "address": address}.items():
            self.node.write(path, text)
        (root / "proc/uptime").symlink_to("/proc/uptime")
        for tool in REAL:
            self.node.link(tool, needs.tool(tool))
        for command, body in ANSWERS.items():
            self.node.command(command, body.replace("{root}", str(root)))
        program = self.node.write("played-command", PROGRAM)
        program.chmod(0o755)
        for command in play_command.COMMANDS:
            self.node.link(command, program)
        exported = root / "exported/shared/wheels" / ENVIRONMENT
        exported.mkdir(parents=True)
        for file in wheels():
            (exported / file.name).write_bytes(file.path.read_bytes())
        (exported / "SHA256SUMS").write_text(wheelhouse().sums())
        for name in ("data", "runs"):
            (root / "exported" / name).mkdir()

    def facts(self, questions: Questions) -> MachineFacts:
        """What it answers, with the clock of this machine."""
        return replace(machine_facts(self, questions), clock_offset_seconds=0.2)

    def close(self) -> None:
        """A connection is nothing here."""

    def _run(
        self,
        prefix: list[str],
        words: list[str],
        stdin: bytes,
        deadline_seconds: float,
        kept: Kept,
        said: Kept,
    ) -> int | None:
        if words == ["sh", "-s"]:
            stdin = self.node.here(stdin.decode()).encode()
        here = [self.node.here(word) for word in words]
        done = subprocess.run(
            here,
            input=stdin,
            capture_output=True,
            env=self.node.environment,
            timeout=deadline_seconds,
            check=False,
        )
        kept.add(done.stdout.replace(str(self.node.root).encode(), b""))
        said.add(done.stderr.replace(str(self.node.root).encode(), b""))
        return done.returncode

    def _put(self, data: bytes, remote: str, mode: int, **how: Any) -> None:
        self.node.write(remote, "").write_bytes(data)

    def _following(self, prefix: list[str], words: list[str]) -> AbstractContextManager[Following]:
        raise NotImplementedError
