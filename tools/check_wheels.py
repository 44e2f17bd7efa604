"""Checks that every package of uv.lock that a Pi would install has a wheel for it.

Nothing is compiled on a Pi.

The lock is walked the way an installer walks it, once for each target, with the development group;
a package counts only where its markers hold (`tensorflow-cpu` is not wanted on aarch64). Everything
must come from pypi.org.
"""

import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from packaging.markers import Marker
from packaging.utils import canonicalize_name, parse_wheel_filename

from deploy.release.requirements import Target

REGISTRY = "https://pypi.org/simple"
FILES = "https://files.pythonhosted.org/"
TARGETS = (Target("3.11.2", "aarch64"), Target("3.13.5", "aarch64"))


def problems(lock: Mapping[str, Any], targets: tuple[Target, ...] = TARGETS) -> list[str]:
    """One line for each locked package that a target cannot install from a wheel of pypi.org."""
    found = [line for package in lock["package"] for line in _foreign(package)]
    for target in targets:
        accepted = target.tags()
        for package in _installed(lock, target):
            names = [wheel["url"].rsplit("/", 1)[1] for wheel in package.get("wheels", ())]
            if not any(parse_wheel_filename(name)[3] & accepted for name in names):
                short = ".".join(target.python.split(".")[:2])
                found.append(
                    f"{package['name']} {package['version']}: no wheel for {target.machine} and"
                    f" CPython {short} among {len(names)}: choose a version that has one, or keep"
                    " the package away with a marker"
                )
    return found


def _foreign(package: Mapping[str, Any]) -> Iterator[str]:
    source = package["source"]
    if "virtual" in source:
        return
    name = f"{package['name']} {package.get('version', '')}".strip()
    if source != {"registry": REGISTRY}:
        yield (
            f"{name}: comes from {source}, expected {REGISTRY}: lock it again without private"
            " indexes"
        )
        return
    for file in [*package.get("wheels", ()), *([package["sdist"]] if "sdist" in package else [])]:
        if not file["url"].startswith(FILES):
            yield f"{name}: {file['url']} is not at {FILES}: lock it again without private indexes"


def _installed(lock: Mapping[str, Any], target: Target) -> list[Mapping[str, Any]]:
    """Return what an installer takes from the lock on `target`, without the project itself."""
    environment = target.environment()
    by_name: dict[str, list[Mapping[str, Any]]] = {}
    for package in lock["package"]:
        by_name.setdefault(canonicalize_name(package["name"]), []).append(package)
    roots = [package for package in lock["package"] if "virtual" in package["source"]]
    waiting = [
        dependency
        for root in roots
        for group in (root.get("dependencies", ()), *root.get("dev-dependencies", {}).values())
        for dependency in group
    ]
    seen: set[tuple[str, str, str]] = set()
    chosen: dict[tuple[str, str], Mapping[str, Any]] = {}
    while waiting:
        dependency = waiting.pop()
        if "marker" in dependency and not Marker(dependency["marker"]).evaluate(environment):
            continue
        candidates = by_name[canonicalize_name(dependency["name"])]
        if "version" in dependency:
            candidates = [
                package for package in candidates if package["version"] == dependency["version"]
            ]
        package = candidates[0]
        chosen[package["name"], package["version"]] = package
        for extra in ("", *dependency.get("extra", ())):
            key = (package["name"], package["version"], extra)
            if key not in seen:
                seen.add(key)
                optional = package.get("optional-dependencies", {}).get(extra, ())
                waiting += optional if extra else package.get("dependencies", ())
    return [chosen[key] for key in sorted(chosen)]


def main(path: Path) -> int:
    """Print the problems of the lock at `path`; 1 when there are some."""
    found = problems(tomllib.loads(path.read_text(encoding="utf-8")))
    for line in found:
        print(f"{path}: {line}", file=sys.stderr)
    if found:
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
