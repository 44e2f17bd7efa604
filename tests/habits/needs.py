"""The needs of tests on the machine, and the only place that skips a test where one is missing.

A run ends with one line that lists the missing tools, and the command that gets them
(tests/conftest.py).
"""

import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import NoReturn

import pytest

from core.cage import landlock
from tools import debian_tools

_TOOL = "needs {name}: `" + debian_tools.COMMAND + "` fetches it"
_ROOT = "needs root: {purpose}"


def tool(name: str) -> Path:
    """Returns the program, the machine's own or the unpacked one; skips without it."""
    __tracebackhide__ = True
    found = debian_tools.find(name)
    if found is None:
        skip(
            _TOOL.format(name=name)
            if name in debian_tools.NAMES
            else f"needs {name}, which every Debian has"
        )
    return found


def tools(*names: str) -> None:
    """Skips unless all of them exist."""
    __tracebackhide__ = True
    for name in names:
        tool(name)


def root(purpose: str) -> None:
    """Skips where the tests do not run as root."""
    __tracebackhide__ = True
    if os.geteuid() != 0:
        skip(_ROOT.format(purpose=purpose))


def sudo() -> None:
    """Skips where sudo is neither installed nor, for root, unpacked; only root makes it set-uid."""
    __tracebackhide__ = True
    if debian_tools.installed("sudo"):
        return
    if os.geteuid() != 0 or not debian_tools.is_unpacked("sudo"):
        skip(
            _TOOL.format(name="sudo")
            if os.geteuid() == 0
            else _ROOT.format(purpose="sudo is not installed")
        )


def mount_namespace() -> None:
    """Skips where a test cannot make mounts that only its process sees."""
    __tracebackhide__ = True
    tool("unshare")
    root("mounts of a test's own")
    possible(_refused("unshare", "--mount", "mount", "-t", "tmpfs", "none", "/mnt"))


def ordinary_account() -> tuple[str, ...]:
    """The prefix of a command that is not to run as root; skips where root cannot cease to be it.

    Inside of the namespace it is another account, which owns what root owns outside.
    """
    __tracebackhide__ = True
    if os.geteuid() != 0:
        return ()
    tool("unshare")
    prefix = ("unshare", "--user", "--map-user=1000", "--map-group=1000", "--")
    possible(_refused(*prefix, "true"))
    return prefix


def overlay() -> None:
    """Skips where a mount namespace permits no overlay."""
    __tracebackhide__ = True
    mount_namespace()
    trial = (
        "cd /mnt && mkdir a b c && mount -t overlay -o lowerdir=a,upperdir=b,workdir=c overlay"
        " /mnt/a"
    )
    possible(_refused("unshare", "--mount", "sh", "-c", f"mount -t tmpfs none /mnt && {trial}"))


def machine_id() -> tuple[str, ...]:
    """The prefix of a command that reads the machine's id, which a container may lack; skips where
    none works."""
    __tracebackhide__ = True
    if Path("/etc/machine-id").exists():
        return ()
    overlay()
    script = (
        "mount -t tmpfs none /mnt && mkdir /mnt/upper /mnt/work && "
        "mount -t overlay -o lowerdir=/etc,upperdir=/mnt/upper,workdir=/mnt/work overlay /etc && "
        f'echo {"1" * 32} >/etc/machine-id && umount -l /mnt && exec "$@"'
    )
    return ("unshare", "--mount", "sh", "-c", script, "sh")


def network_namespace() -> None:
    """Skips where no network namespace can be made."""
    __tracebackhide__ = True
    tools("unshare", "ip")
    root("network namespaces")
    possible(_refused("unshare", "--net", "ip", "link", "set", "lo", "up"))


PROJECT = Path(__file__).resolve().parents[2]
_UNREACHABLE = re.compile(
    "failed to fetch|error sending request|dns error|connection refused|timed out", re.IGNORECASE
)


def packages(folder: Path, *requirements: str) -> Path:
    """The Python of an environment with these packages, made in `folder` by uv; skips where PyPI is
    out of reach.

    For programs whose packages contradict those of the lock.
    """
    __tracebackhide__ = True
    found = subprocess.run(
        ["sh", "tools/make_venv.sh", "--uv"],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=False,
    )
    if found.returncode:
        skip(f"needs uv: {found.stderr.strip()[-200:]}")
    uv = str(PROJECT / found.stdout.strip())
    python = folder / "bin" / "python"
    subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, str(folder)], check=True)
    done = subprocess.run(
        [
            uv,
            "pip",
            "install",
            "--quiet",
            "--only-binary",
            ":all:",
            "--python",
            str(python),
            *requirements,
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode and _UNREACHABLE.search(done.stderr):
        skip(
            f"needs PyPI for {', '.join(requirements)}:"
            f" {(done.stderr.strip().splitlines() or ['no reason'])[-1]}"
        )
    assert done.returncode == 0, done.stderr
    return python


def possible(why_not: str) -> None:
    """Skips for this reason, unless it is empty."""
    __tracebackhide__ = True
    if why_not:
        skip(why_not)


def cage(least: int = landlock.FILES) -> None:
    """Skips where the kernel's Landlock has not this ABI."""
    __tracebackhide__ = True
    if landlock.abi() < least:
        skip(landlock.kernel_coverage().line())


def skip(reason: str) -> NoReturn:
    """Skips the test."""
    __tracebackhide__ = True
    pytest.skip(reason)


@cache
def _refused(*command: str) -> str:
    """The reason why the command cannot run here; empty where it can."""
    done = subprocess.run(
        command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False
    )
    if done.returncode == 0:
        return ""
    return (
        f"`{' '.join(command)}` is refused here:"
        f" {(done.stderr.strip().splitlines() or ['no reason'])[-1]}"
    )


def closing_line(reasons: Iterable[str]) -> str:
    """The line about tests without tools or root, from the reasons of all skipped tests; empty
    without any."""
    tools: Counter[str] = Counter()
    roots = 0
    for reason in reasons:
        if found := re.search(_TOOL.replace("{name}", r"([\w-]+)"), reason):
            tools[found[1]] += 1
        roots += _ROOT.partition("{")[0] in reason
    said = []
    if tools:
        listed = ", ".join(f"{name} ({count})" for name, count in sorted(tools.items()))
        said.append(
            f"{tools.total()} without {listed}: `{debian_tools.COMMAND}` fetches what Debian has"
        )
    if roots:
        said.append(f"{roots} that need root: `sudo make test` runs them")
    if said:
        return f"skipped: {'; '.join(said)}"
    return ""
