"""A release as CycloneDX: valid by its schema, the same twice, with the stated licences."""

import json
import os
import re
import shutil
from pathlib import Path

import pytest
from jsonschema import Draft7Validator
from referencing import Registry, Resource

from deploy.common.project import ROOT
from deploy.release.code_wheel import PACKAGES, build_code_wheel
from deploy.release.sbom import UNKNOWN, Part, by_licence, document, parts_of
from deploy.release.scripts import statement_of
from deploy.release.wheelhouse import make_wheelhouse
from tests.deploy.release.wheels import MACHINE, PYTHON, pure_wheel, requirements, uv_wheel

SCHEMAS = [
    json.loads(path.read_text())
    for path in sorted(Path(__file__).with_name("cyclonedx").glob("*.json"))
]
STATED = {
    "alpha": ("License-Expression: MIT OR Apache-2.0", "MIT OR Apache-2.0"),
    "beta": ("Classifier: License :: OSI Approved :: BSD License", "BSD License"),
    "gamma": ("License: MPL-2.0", "MPL-2.0"),
    "delta": ("License: UNKNOWN", UNKNOWN),
}


@pytest.fixture
def lists(index: Path) -> str:
    """A list of packages with licences in each way that metadata has."""
    wheels = [pure_wheel(index, name, python=f">=3\n{line}") for name, (line, _) in STATED.items()]
    return requirements(*wheels, uv_wheel(index))


def built(lists: str, folder: Path, umask: int) -> tuple[tuple[Part, ...], list[bytes]]:
    """Build a release in a copy of the checkout with other times and modes; all that counts."""
    for package in PACKAGES:
        shutil.copytree(ROOT / package, folder / package, copy_function=shutil.copyfile)
    for path in folder.rglob("*.py"):
        path.chmod(0o777 & ~umask)
        os.utime(path, (umask, umask))
    before = os.umask(umask)
    try:
        code = build_code_wheel(folder, folder / "cache")
        house = make_wheelhouse(lists, PYTHON, MACHINE, cache=folder / "wheels", say=lambda _: None)
    finally:
        os.umask(before)
    parts = parts_of(code, [house])
    texts = (document(code, parts), house.sums(), statement_of(house))
    return parts, [code.path.read_bytes(), *(text.encode() for text in texts)]


def test_two_builds_of_a_release_are_the_same_bytes(lists: str, tmp_path: Path) -> None:
    """In other folders, at other times, with another umask; its parts are valid CycloneDX."""
    parts, first = built(lists, tmp_path / "one", 0o022)
    assert built(lists, tmp_path / "a second one", 0o077)[1] == first
    registry: Registry = Registry().with_resources(
        (schema["$id"], Resource.from_contents(schema)) for schema in SCHEMAS
    )
    found = json.loads(first[1])
    validator = Draft7Validator(SCHEMAS[0], registry=registry)
    validator.validate(found)
    assert not validator.is_valid({**found, "components": [{"name": "no type"}]})
    for part in parts:
        assert part.kind == "application" or part.sha256.encode() in first[2] or "kern" in part.name
    listed = by_licence(parts)
    assert [name for name, (_, stated) in STATED.items() if name not in listed[stated]] == []
    assert listed[UNKNOWN] == ["delta", "uv"]


def test_an_image_takes_the_packages_of_a_release_and_nothing_else() -> None:
    lines = (ROOT / ".containerignore").read_text().split()
    assert lines[0] == "*"
    assert {line[1:] for line in lines if line.startswith("!")} == {*PACKAGES}
    steps = (ROOT / "Containerfile").read_text()
    assert {*re.findall(r"(?m)^COPY (\w+) /opt/pscluster/code/\1$", steps)} == {*PACKAGES}
