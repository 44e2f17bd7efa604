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

from deploy.cluster.connector import BoundedOutput, CommandInput, Connector, FileToWrite, Following
from deploy.common.project import ROOT
from deploy.converge.machine_facts import MachineFacts, Questions
from deploy.converge.subject import PublishedFile
from deploy.converge.survey import machine_facts
from deploy.release.code_wheel import CodeWheel
from deploy.release.wheelhouse import Wheelhouse
from tests.deploy.converge import play_command
from tests.deploy.converge.played_node import OWN_FOLDERS, PLAYED, PlayedNode
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
    return KnownWheelhouse(Path("wheels"), ENVIRONMENT, "3.11", "aarch64", sizes, 1_700_000_000)


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
        for path, text in {**PLAYED["files"], "address": address}.items():
            self.node.write(path, text)
        for name in ("stat", "uptime"):
            (root / "proc" / name).symlink_to(f"/proc/{name}")
        for tool in PLAYED["real"]:
            self.node.link(tool, needs.tool(tool))
        for command, body in PLAYED["answers"].items():
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
        stdin: CommandInput,
        deadline_seconds: float,
        kept: BoundedOutput,
        said: BoundedOutput,
    ) -> int | None:
        sent = b"".join(stdin)
        if words[:2] == ["sh", "-s"]:
            sent = self.node.here(sent.decode()).encode()
        here = [self.node.here(word) for word in words]
        done = subprocess.run(
            here,
            input=sent,
            capture_output=True,
            env=self.node.environment,
            timeout=deadline_seconds,
            check=False,
        )
        kept.add(done.stdout.replace(str(self.node.root).encode(), b""))
        said.add(done.stderr.replace(str(self.node.root).encode(), b""))
        return done.returncode

    def _put(self, file: FileToWrite, **how: Any) -> None:
        self.node.write(file.path, "").write_bytes(b"".join(file.blocks))

    def _following(self, prefix: list[str], words: list[str]) -> AbstractContextManager[Following]:
        raise NotImplementedError
