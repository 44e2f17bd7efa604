"""Debian's `promtool` and `prometheus` for the checks and tests, without installing their service.

`python -m tools.prometheus_tools promtool check metrics < metrics.txt` runs what is on PATH. Where
nothing is, Debian's package is fetched, which needs no root, and unpacked into `.cache/prometheus`.
"""

import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from core.ground.errors import ClusterError, UsageError
from tools.debian_packages import Apt, NoPackageError, alone

CACHE = Path(__file__).resolve().parent.parent / ".cache"
PACKAGE = "prometheus"
TOOLS = ("prometheus", "promtool")
REMEDY = f"install Debian's `{PACKAGE}`, or run this again where a Debian mirror can be reached"


class NoPrometheus(ClusterError):
    """The tools are missing, and fetching them failed."""


def present(name: str, cache: Path = CACHE, search: str | None = None) -> Path | None:
    """The program on PATH (or `search`), or unpacked below `cache`; None without one."""
    found = shutil.which(name, path=search)
    if found:
        return Path(found)
    unpacked = cache / PACKAGE / "usr/bin" / name
    if unpacked.exists():
        return unpacked
    return None


def tool(name: str, cache: Path = CACHE, search: str | None = None) -> Path:
    """The program `name`; unpacks it below `cache` if it is missing.

    Raises NoPrometheus with the reason and the remedy.
    """
    if name not in TOOLS:
        raise UsageError(f"{name}: expected one of {', '.join(TOOLS)}")
    found = present(name, cache, search)
    if found is None:
        with alone(cache / f"{PACKAGE}.lock"):  # tests run side by side, and one download is enough
            if not (cache / PACKAGE).exists():
                _fetch(cache)
        found = present(name, cache, search)
    if found is None:
        raise NoPrometheus(
            f"Debian's package {PACKAGE} has no {name}, expected it at"
            f" {cache / PACKAGE / 'usr/bin' / name}: remove {cache / PACKAGE} or {REMEDY}"
        )
    return found


def _fetch(cache: Path) -> None:
    with tempfile.TemporaryDirectory(dir=cache, prefix=f".{PACKAGE}-") as scratch:
        apt = Apt(Path(scratch))
        try:
            apt.update()
            apt.unpack([PACKAGE], cache / PACKAGE)  # alone: Go's programs depend on no library
        except NoPackageError as problem:
            raise NoPrometheus(f"{problem}: {REMEDY}") from None


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
