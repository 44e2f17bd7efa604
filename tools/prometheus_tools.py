"""Debian's `promtool` and `prometheus` for the checks and tests, without installing their service.

`python -m tools.prometheus_tools promtool check metrics < metrics.txt` runs what is on PATH. Where nothing is, Debian's
package is fetched with `apt-get download`, which checks its signature and needs no root, and unpacked into
`.cache/prometheus`.
"""

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from cluster.errors import ClusterError, UsageError

CACHE = Path(__file__).resolve().parent.parent / ".cache"
PACKAGE = "prometheus"
TOOLS = ("prometheus", "promtool")
FETCH_SECONDS = 300
REMEDY = "install Debian's `prometheus`, or run `apt-get update` where a Debian mirror can be reached"


class NoPrometheus(ClusterError):
    """The tools are not here and cannot be had."""


def tool(name: str, cache: Path = CACHE, search: str | None = None) -> Path:
    """Where the program `name` is: on PATH (`search` instead, if given), or unpacked below `cache`, now if need be.

    Raises NoPrometheus saying why it cannot be had and what to do.
    """
    if name not in TOOLS:
        raise UsageError(f"{name}: expected one of {', '.join(TOOLS)}")
    found = shutil.which(name, path=search)
    if found:
        return Path(found)
    unpacked = cache / PACKAGE / "usr/bin" / name
    if not unpacked.exists():
        cache.mkdir(parents=True, exist_ok=True)
        with (cache / f"{PACKAGE}.lock").open("w") as lock:  # tests run side by side, and one download is enough
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (cache / PACKAGE).exists():
                _fetch(cache)
    if not unpacked.exists():
        raise NoPrometheus(
            f"Debian's package {PACKAGE} has no {name}, expected it at {unpacked}: remove {cache / PACKAGE} or {REMEDY}"
        )
    return unpacked


def _fetch(cache: Path) -> None:
    """Download and unpack the package. The folder appears whole or not at all."""
    with tempfile.TemporaryDirectory(dir=cache, prefix=f".{PACKAGE}-") as scratch:
        folder = Path(scratch)
        _run(["apt-get", "-o", "Acquire::Retries=3", "download", "--quiet", PACKAGE], folder)
        packages = list(folder.glob(f"{PACKAGE}_*.deb"))
        if len(packages) != 1:
            raise NoPrometheus(f"`apt-get download {PACKAGE}` left {len(packages)} packages, expected one: {REMEDY}")
        _run(["dpkg", "-x", packages[0].name, "unpacked"], folder)
        (folder / "unpacked").chmod(0o755)
        (folder / "unpacked").replace(cache / PACKAGE)


def _run(command: Sequence[str], folder: Path) -> None:
    said = " ".join(command)
    try:
        subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True, timeout=FETCH_SECONDS)
    except FileNotFoundError:
        raise NoPrometheus(f"{command[0]} is not on PATH, so `{said}` cannot run: {REMEDY}") from None
    except subprocess.TimeoutExpired:
        raise NoPrometheus(f"`{said}` did not end within {FETCH_SECONDS} s: {REMEDY}") from None
    except subprocess.CalledProcessError as problem:
        reasons = [line for line in problem.stderr.splitlines() if line.startswith(("E:", "dpkg"))] or ["no reason"]
        raise NoPrometheus(f"`{said}` failed ({reasons[0]}): {REMEDY}") from None


def main(arguments: Sequence[str]) -> None:
    """Become the tool, with the arguments that follow its name."""
    if not arguments:
        sys.exit(f"usage: python -m tools.prometheus_tools {'|'.join(TOOLS)} [ARGUMENT ...]")
    try:
        path = tool(arguments[0])
    except ClusterError as problem:
        print(problem, file=sys.stderr)
        sys.exit(problem.exit_code)
    os.execv(path, [str(path), *arguments[1:]])


if __name__ == "__main__":
    main(sys.argv[1:])
