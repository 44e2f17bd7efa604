"""The programs that the tests start, from Debian's packages, without installing them.

`python -m tools.debian_tools` is `make test-tools`: what is not on PATH is unpacked into
`.cache/test-tools`, with the missing libraries; its `bin/` has a command for each. It needs no
root.
"""

import argparse
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from core.ground.errors import ClusterError
from tools import prometheus_tools
from tools.debian_packages import Apt, NoPackageError, alone

CACHE = Path(__file__).resolve().parent.parent / ".cache"
FOLDER = "test-tools"
COMMAND = "make test-tools"
_FONTS = """<?xml version="1.0"?>
<fontconfig>
<dir>{root}/usr/share/fonts</dir><dir>/usr/share/fonts</dir><cachedir>{root}/fontconfig</cachedir>
</fontconfig>
"""
"""Fonts that this machine has are not fetched; a Chromium that finds none ends at the first unusual
letter."""
_UNITS = {"SYSTEMD_UNIT_PATH": "{root}/usr/lib/systemd/system:"}
"""Before the folders of this machine, for which the colon stands."""


@dataclass(frozen=True)
class Tool:
    """A command and its Debian package.

    `environment` is what it needs where it is unpacked only.
    """

    name: str
    package: str
    path: str
    also: Sequence[str] = ()
    """Other names of the same program."""
    with_packages: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


TOOLS = {
    tool.name: tool
    for tool in (
        Tool("sshd", "openssh-server", "usr/sbin/sshd"),
        Tool("ssh", "openssh-client", "usr/bin/ssh"),
        Tool("ssh-keygen", "openssh-client", "usr/bin/ssh-keygen"),
        Tool("ssh-agent", "openssh-client", "usr/bin/ssh-agent"),
        Tool("ssh-add", "openssh-client", "usr/bin/ssh-add"),
        Tool("dropbear", "dropbear-bin", "usr/sbin/dropbear"),
        Tool("dropbearkey", "dropbear-bin", "usr/bin/dropbearkey"),
        Tool("sudo", "sudo", "usr/bin/sudo"),
        Tool("ip", "iproute2", "usr/bin/ip"),
        Tool("tc", "iproute2", "usr/sbin/tc"),
        Tool("ss", "iproute2", "usr/bin/ss"),
        Tool("nft", "nftables", "usr/sbin/nft"),
        Tool("wg", "wireguard-tools", "usr/bin/wg"),
        Tool("wireguard-go", "wireguard-go", "usr/bin/wireguard-go"),
        Tool("systemd-analyze", "systemd", "usr/bin/systemd-analyze", environment=_UNITS),
        Tool("journalctl", "systemd", "usr/bin/journalctl"),
        Tool(
            "systemd-journal-remote",
            "systemd-journal-remote",
            "usr/lib/systemd/systemd-journal-remote",
        ),
        Tool("git", "git", "usr/bin/git", environment={"GIT_EXEC_PATH": "{root}/usr/lib/git-core"}),
        Tool("ps", "procps", "usr/bin/ps"),
        Tool("pgrep", "procps", "usr/bin/pgrep"),
        Tool("shellcheck", "shellcheck", "usr/bin/shellcheck"),
        Tool("fish", "fish", "usr/bin/fish"),
        Tool("zsh", "zsh", "bin/zsh", environment={"ZSH_ROOT": "{root}"}),
        Tool("mosquitto", "mosquitto", "usr/sbin/mosquitto"),
        Tool("nginx", "nginx", "usr/sbin/nginx"),
        Tool("kubectl", "kubernetes-client", "usr/bin/kubectl"),
        Tool(
            "chromium",
            "chromium-headless-shell",
            "usr/lib/chromium/chromium-headless-shell",
            also=("chromium-browser", "google-chrome"),
            with_packages=("fonts-dejavu-core",),
            environment={"FONTCONFIG_FILE": "{root}/fonts.conf"},
        ),
    )
}
NAMES = (*TOOLS, *prometheus_tools.TOOLS)

ELSEWHERE = ("/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/lib/systemd", "/lib/systemd")
"""Folders of Debian's commands that are not on every PATH."""


def search_path(cache: Path = CACHE) -> str:
    """PATH, and after it the further folders that the tests search."""
    known = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return os.pathsep.join(dict.fromkeys((*known, *ELSEWHERE, str(cache / FOLDER / "bin"))))


def find(name: str, cache: Path = CACHE) -> Path | None:
    """The program: the machine's own before the unpacked one; None without either."""
    if name in prometheus_tools.TOOLS:
        return prometheus_tools.present(name, cache, search_path(cache))
    if name in TOOLS:
        names = (name, *TOOLS[name].also)
    else:
        names = (name,)
    found = next(
        (path for one in names if (path := shutil.which(one, path=search_path(cache)))), None
    )
    if found:
        return Path(found)
    return None


def installed(name: str, cache: Path = CACHE) -> bool:
    """Whether the machine has the program itself."""
    found = find(name, cache)
    return found is not None and not found.is_relative_to(cache)


def is_unpacked(name: str, cache: Path = CACHE) -> bool:
    """Return whether the program of TOOLS is unpacked, with or without a command of its own."""
    return (cache / FOLDER / "root" / TOOLS[name].path).exists()


def unpacked(cache: Path = CACHE) -> Path | None:
    """The root folder of the unpacked packages; None before the first one."""
    root = cache / FOLDER / "root"
    if root.exists():
        return root
    return None


def missing(cache: Path = CACHE) -> list[str]:
    """The tools that are neither on this machine nor unpacked."""
    # sudo gets no command: its tests lay it over the machine's own programs.
    return [
        name
        for name in NAMES
        if find(name, cache) is None and not (name == "sudo" and is_unpacked(name, cache))
    ]


def fetch(cache: Path = CACHE) -> dict[str, str]:
    """Unpack the missing tools. Returns the reason for each tool that stays missing."""
    refused: dict[str, str] = {}
    with alone(cache / f"{FOLDER}.lock"):
        absent = missing(cache)
        if any(name in TOOLS for name in absent):
            # The unpacked tools come again with the others: their folder is replaced.
            wanted = [
                tool for name, tool in TOOLS.items() if name in absent or is_unpacked(name, cache)
            ]
            with tempfile.TemporaryDirectory(dir=cache, prefix=f".{FOLDER}-") as scratch:
                refused = _fetch(wanted, Path(scratch), cache / FOLDER)
    if any(name in prometheus_tools.TOOLS for name in absent):
        try:
            prometheus_tools.tool(prometheus_tools.TOOLS[0], cache)
        except ClusterError as problem:
            refused |= dict.fromkeys(prometheus_tools.TOOLS, str(problem))
    return {name: refused.get(name, "its package has no such program") for name in missing(cache)}


def _fetch(wanted: Sequence[Tool], scratch: Path, folder: Path) -> dict[str, str]:
    """Put the tools into `folder`. Returns the reason for each that stays missing."""
    apt = Apt(scratch / "apt")
    refused: dict[str, str] = {}
    sizes: dict[str, int] = {}
    try:
        apt.update()
        for tool in wanted:
            try:
                for package in (tool.package, *tool.with_packages):
                    sizes |= apt.missing(package)
            except NoPackageError as problem:
                refused[tool.name] = str(problem)
        had = [tool for tool in wanted if tool.name not in refused]
        if had:
            names = ", ".join(tool.name for tool in had)
            megabytes = sum(sizes.values()) / 1e6
            _say(
                f"{names}: fetching {len(sizes)} of Debian's packages, {megabytes:.0f} MB, into"
                f" {folder}"
            )
            _unpack(apt, had, sizes, scratch / "made", folder)
    except NoPackageError as problem:
        return dict.fromkeys((tool.name for tool in wanted), str(problem)) | refused
    return refused


def _unpack(
    apt: Apt, tools: Sequence[Tool], packages: Iterable[str], made: Path, folder: Path
) -> None:
    """Fill `made` with the packages and a command for each tool, then replace `folder` by it."""
    (made / "bin").mkdir(parents=True)
    apt.unpack(packages, made / "root")
    root = folder / "root"
    (made / "root" / "fonts.conf").write_text(_FONTS.format(root=root))
    holding = {
        path.parent.relative_to(made / "root") for path in (made / "root/usr/lib").rglob("lib*.so*")
    }
    libraries = [str(root / path) for path in sorted(holding)]
    for tool in tools:
        if (made / "root" / tool.path).exists() and tool.name != "sudo":
            command = made / "bin" / tool.name
            command.write_text(_command(tool, root, libraries))
            command.chmod(0o755)
    if folder.exists():
        shutil.rmtree(folder)
    made.replace(folder)


def _command(tool: Tool, root: Path, libraries: Sequence[str]) -> str:
    environment = {name: value.format(root=root) for name, value in tool.environment.items()}
    exports = "".join(
        f"export {name}={shlex.quote(value)}\n" for name, value in environment.items()
    )
    return (
        f"#!/bin/sh\n{exports}export LD_LIBRARY_PATH={shlex.quote(':'.join(libraries))}"
        "${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}\n"
        f'exec {shlex.quote(str(root / tool.path))} "$@"\n'
    )


def _say(text: str) -> None:
    print(f"{COMMAND}: {text}", file=sys.stderr)


def main(arguments: Sequence[str], cache: Path = CACHE) -> int:
    """Fetch the missing tools and name those that stay missing.

    Then 1, except with --on-the-way.
    """
    parser = argparse.ArgumentParser(prog="python -m tools.debian_tools", description=__doc__)
    parser.add_argument(
        "--on-the-way", action="store_true", help="skip what was refused before, and never fail"
    )
    on_the_way = parser.parse_args(arguments).on_the_way
    tried = cache / f"{FOLDER}.refused"
    absent = missing(cache)
    if on_the_way and (not absent or (tried.exists() and tried.read_text().split() == absent)):
        return 0
    refused = fetch(cache)
    tried.unlink(missing_ok=True)
    if not refused:
        _say(f"all {len(NAMES)} are here")
        return 0
    for reason in dict.fromkeys(refused.values()):
        _say(f"no {', '.join(name for name, why in refused.items() if why == reason)}: {reason}")
    tried.write_text(" ".join(refused))
    if on_the_way:
        return 0
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
