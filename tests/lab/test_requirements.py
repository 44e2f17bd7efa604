"""Where no lab can run, one line has the reason. These tests need no lab."""

import os
import shutil
from pathlib import Path

import pytest

from tests.lab import requirements
from tests.lab.commands import LabError, run
from tests.lab.places import Places


def test_somebody_else_than_root_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert (
        requirements.why_not()
        == "the lab needs root: it makes network namespaces, mounts and control groups"
    )
    with pytest.raises(LabError, match="the lab needs root"):
        requirements.check()


def test_a_machine_without_version_1_control_groups_is_told_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(requirements, "missing", list)
    monkeypatch.setattr(requirements, "CGROUPS", tmp_path)
    assert requirements.why_not().startswith("the lab needs control groups of version 1, writable")


def test_missing_packages_are_named_once_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    assert {"iproute2", "lxcfs", "mmdebstrap", "openssh-client"} <= set(requirements.missing())
    assert len(requirements.missing()) == len(set(requirements.missing()))


def test_a_command_that_fails_is_one_line() -> None:
    with pytest.raises(LabError) as caught:
        run("sh", "-c", "echo one >&2; echo two >&2; exit 3")
    assert (
        str(caught.value) == "`sh -c 'echo one >&2; echo two >&2; exit 3'` ended with 3: one / two"
    )


@pytest.mark.parametrize("name", ["Lab", "a-b", "9", "muchtoolong", ""])
def test_a_lab_has_a_name_that_an_interface_can_bear(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PSCLUSTER_LAB", name or "?")
    with pytest.raises(
        LabError, match="expected a lower-case letter and up to seven letters or digits"
    ):
        Places.of()
