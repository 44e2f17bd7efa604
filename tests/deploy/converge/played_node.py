"""A folder that stands for a node's root: scripts of a deployment run in it, with real tools.

What would reach beyond the folder (systemd, accounts, mounts) is only written down.
"""

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.habits import needs
from tests.hang import HANG_SECONDS
from tests.tables import table

OWN_FOLDERS = ("etc", "var", "run", "opt", "srv", "mnt", "proc")
PLAYED = table("deploy/converge/played")
APT = """\
#!/bin/sh
PATH=/usr/sbin:/usr/bin:/sbin:/bin
echo "apt-get $*" >>{root}/done
{before}
exec apt-get -q -o Dir={root} -o Dir::State::status={root}/var/lib/dpkg/status \\
    -o Dir::Bin::dpkg=/usr/bin/dpkg -o DPkg::Options::=--root={root} \\
    -o Dir::Bin::methods=/usr/lib/apt/methods "$@"
"""


def about_package(name: str, depends: str = "", state: str = "installed") -> str:
    """A package in dpkg's list."""
    about = f"Package: {name}\nStatus: install ok {state}\nPriority: optional\nSection: misc\n"
    about += "Maintainer: x <x@example.org>\nArchitecture: all\nVersion: 1\n"
    return about + (f"Depends: {depends}\n" if depends else "") + "Description: x\n\n"


class PlayedNode:
    """`root` is the node's `/`; `done` has a line for each noted command and each call of apt."""

    def __init__(self, root: Path, own_folders: Sequence[str] = OWN_FOLDERS) -> None:
        """`own_folders` are those of `/` that the scripts have below `root`."""
        self.root = root
        self.own_folders = own_folders
        self.commands = root / "commands"
        self.commands.mkdir(parents=True)
        for folder in (
            *own_folders,
            "etc/systemd/system",
            "var/lib/dpkg/info",
            "var/lib/dpkg/updates",
            "proc/self",
        ):
            (root / folder).mkdir(parents=True, exist_ok=True)
        for name in PLAYED["tools"]:
            self.link(name, needs.tool(name))
        for name in PLAYED["noted"]:
            self.command(name, f'echo "{name} $*" >>{root}/done')
        self.command("getent", "exit 2")
        # The scripts run as root in some checkouts: nothing outside of the folder is ever removed.
        self.command(
            "rm",
            f'for one; do case $one in -*|{root}/*) ;; *) exit 99 ;; esac; done; exec /bin/rm "$@"',
        )
        for name in ("mounts", "self/mountinfo"):
            (root / "proc" / name).touch()
        (root / "done").touch()

    def command(self, name: str, body: str) -> None:
        """A command that the scripts find under this name."""
        path = self.commands / name
        path.unlink(missing_ok=True)
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)

    def link(self, name: str, target: Path) -> None:
        """A command that is the program `target`."""
        path = self.commands / name
        path.unlink(missing_ok=True)
        path.symlink_to(target)

    def write(self, path: str, text: str) -> Path:
        """A file of the node, by its path there."""
        file = self.at(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    def packages(self, depends: Mapping[str, str], before_apt: str = "") -> None:
        """Installed ones, each with what it depends on; a shell line before each call of apt.

        Takes Debian's tools.
        """
        needs.root("dpkg into a folder of a test's own")
        needs.tools("apt-get", "dpkg", "dpkg-query")
        for name in depends:
            self.write(f"/var/lib/dpkg/info/{name}.list", "")
        self.write(
            "/var/lib/dpkg/status",
            "".join(about_package(name, needed) for name, needed in depends.items()),
        )
        for folder in ("var/lib/apt/lists/partial", "var/cache/apt/archives/partial", "var/log"):
            (self.root / folder).mkdir(parents=True, exist_ok=True)
        self.apt(before_apt)
        dpkg = f"PATH=/usr/sbin:/usr/bin:/sbin:/bin exec /usr/bin/dpkg --root={self.root}"
        self.command("dpkg", f'{dpkg} "$@"')
        self.command("dpkg-query", f'exec /usr/bin/dpkg-query {self._list} "$@"')

    def apt(self, before: str) -> None:
        """apt-get, with a shell line before each call."""
        self.write("/commands/apt-get", APT.format(root=self.root, before=before)).chmod(0o755)

    def installed(self) -> set[str]:
        """What dpkg has now."""
        form = r"${db:Status-Abbrev} ${Package}\n"
        words = ["dpkg-query", self._list, "-W", "-f", form]
        listed = subprocess.run(words, capture_output=True, text=True, check=False).stdout
        return {line.split()[1] for line in listed.splitlines() if line.startswith("ii")}

    @property
    def _list(self) -> str:
        return f"--admindir={self.root}/var/lib/dpkg"

    @property
    def done(self) -> list[str]:
        """The lines so far."""
        return (self.root / "done").read_text().splitlines()

    @property
    def environment(self) -> dict[str, str]:
        """The environment of its scripts."""
        return {"PATH": str(self.commands), "LANG": "de_DE.UTF-8", "HOME": os.devnull}

    def here(self, script: str) -> str:
        """The script with the node's paths and commands in place of this machine's."""
        path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        ours = "|".join(self.own_folders)
        here = re.sub(
            rf"(?<![\w.$/}}])/(?=(?:{ours})\b)",
            f"{self.root}/",
            script.replace(path, f"PATH={self.commands}"),
        )
        if (self.commands / "python3").exists():
            here = here.replace("/usr/bin/python3", f"{self.commands}/python3")
        left = re.findall(rf"/(?:{ours})/\S*", here.replace(str(self.root), ""))
        assert all(f"{self.root}{one}" in here for one in left), left
        return here

    def does(self, script: str) -> str:
        """Run a script that has nothing to complain of; what it printed."""
        done = self.run(script)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    def at(self, path: str) -> Path:
        """Where a path of the node is here."""
        return self.root / path.lstrip("/")

    def run(self, script: str) -> subprocess.CompletedProcess[str]:
        """Run a script of a deployment on the node."""
        return subprocess.run(
            ["/bin/sh", "-c", self.here(script)],
            capture_output=True,
            text=True,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            timeout=HANG_SECONDS,
            check=False,
        )
