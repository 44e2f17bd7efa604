"""The lock check refuses what a Pi could not install."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.tables import Tables
from tests.habits.leaks import PROJECT
from tools.check_wheels import FILES, REGISTRY, main, problems

rows = Tables(__file__)


def package(name: str, *wheels: str, **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "version": "1.0",
        "source": {"registry": REGISTRY},
        "wheels": [{"url": f"{FILES}packages/{wheel}"} for wheel in wheels],
        **more,
    }


def lock(*packages: dict[str, Any], **root: Any) -> dict[str, Any]:
    project = {"name": "pscluster", "source": {"virtual": "."}, **root}
    return {"package": [project, *packages]}


PURE = "pure-1.0-py3-none-any.whl"


def wanting(**entry: Any) -> list[dict[str, Any]]:
    """What the project depends on: one package that is called `fast`."""
    return [{"name": "fast", **entry}]


def test_the_projects_lock_serves_a_pi() -> None:
    assert main(PROJECT / "uv.lock") == 0


@rows("wheels", "count")
def test_a_wheel_counts_for_each_python_that_it_serves(wheels: list[str], count: int) -> None:
    found = problems(lock(package("fast", *wheels), dependencies=wanting()))
    assert len(found) == count
    assert all(line.startswith("fast 1.0: no wheel for aarch64 and CPython 3.1") for line in found)
    assert count != 1 or "CPython 3.13" in found[0]


def test_packages_that_a_pi_does_not_install_are_left_alone() -> None:
    here_only = package("fast", "fast-1.0-py3-none-manylinux_2_17_x86_64.whl")
    wanted = wanting(marker="platform_machine == 'x86_64'")
    assert problems(lock(here_only, dependencies=wanted)) == []


def test_indirect_development_and_extra_dependencies_count() -> None:
    extras = {"optional-dependencies": {"more": [{"name": "speedups"}]}}
    fast = package("fast", PURE, dependencies=[{"name": "deep"}], **extras)
    others = [package(name) for name in ("deep", "speedups", "linter", "not-wanted")]
    groups = {"dev-dependencies": {"dev": [{"name": "linter"}]}}
    found = problems(lock(fast, *others, dependencies=wanting(extra=["more"]), **groups))
    assert {line.split(" ")[0] for line in found} == {"deep", "speedups", "linter"}


def test_the_version_that_the_marker_chooses_is_judged() -> None:
    versions = [package("fast", PURE), package("fast", version="2.0")]
    chosen = [
        *wanting(version="1.0", marker="python_full_version < '3.13'"),
        *wanting(version="2.0", marker="python_full_version >= '3.13'"),
    ]
    found = problems(lock(*versions, dependencies=chosen))
    assert [line.split(":")[0] for line in found] == ["fast 2.0"]


def test_a_private_index_is_refused() -> None:
    private = package("private", PURE, source={"registry": "https://pypi.example.org/simple"})
    moved = package("moved", PURE)
    moved["wheels"][0]["url"] = "https://mirror.example.org/pure-1.0-py3-none-any.whl"
    found = problems(lock(private, moved))
    assert [line.split(":")[0] for line in found] == ["private 1.0", "moved 1.0"]


def test_a_bad_lock_ends_with_status_1_and_names_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = (PROJECT / "uv.lock").read_text(encoding="utf-8")
    numpy = next(entry for entry in tomllib.loads(good)["package"] if entry["name"] == "numpy")
    bad = good
    for wheel in numpy["wheels"]:
        bad = bad.replace(wheel["url"], wheel["url"].replace("aarch64", "riscv64"))
    path = tmp_path / "uv.lock"
    path.write_text(bad, encoding="utf-8")
    assert main(path) == 1
    assert f"{path}: numpy {numpy['version']}: no wheel for aarch64" in capsys.readouterr().err
