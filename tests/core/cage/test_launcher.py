import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from core.cage.__main__ import caged_command
from tests.habits import needs


@pytest.fixture(autouse=True)
def where_a_cage_is() -> None:
    """Where the kernel can."""
    needs.cage()


def run(*command: str, made: Sequence[Path] = ()) -> subprocess.CompletedProcess[str]:
    caged = caged_command("export", command, made=made or ["/dev/null"], recordings=["/dev/null"])
    return subprocess.run(caged, capture_output=True, text=True, check=False)


def test_a_program_runs_inside_its_rights_alone(tmp_path: Path) -> None:
    out = tmp_path / "out"
    secret = tmp_path / "secret"
    out.mkdir()
    secret.write_text("words")
    script = f"echo made >{out}/file; cat {secret} || unshare -U true"
    done = run("sh", "-c", script, made=[out])
    assert (out / "file").read_text() == "made\n"
    assert done.returncode != 0
    assert "words" not in done.stdout
    assert "Permission denied" in done.stderr
    assert "Operation not permitted" in done.stderr


def test_a_program_reads_no_environment_of_another_process_as_root_either() -> None:
    for name in ("environ", "maps", "mem"):
        done = run("cat", f"/proc/{os.getpid()}/{name}")
        assert (done.returncode, done.stdout) == (1, ""), name
    assert run("cat", "/proc/self/environ").stdout


IN_A_UNIT = """
import os, sys
from core.cage import landlock
landlock.keep_capabilities(landlock.FILE_CAPABILITIES)
capset = {"x86_64": 126, "aarch64": 91}[os.uname().machine]
landlock.install(landlock.FilterProgram.from_instructions(
    (landlock.LOAD, 0, 0, landlock.CALL_NUMBER),
    (landlock.JUMP_IF_EQUAL, 0, 1, capset),
    (landlock.RETURN, 0, 0, landlock.ERRNO | 1),
    (landlock.RETURN, 0, 0, landlock.ALLOW),
))
os.execv(sys.argv[1], sys.argv[1:])
"""


def test_who_has_nothing_to_give_up_needs_no_call_that_a_unit_of_a_node_refuses() -> None:
    caged = caged_command("export", ("true",), made=["/dev/null"], recordings=["/dev/null"])
    done = subprocess.run(
        (sys.executable, "-c", IN_A_UNIT, *caged), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_what_is_no_program_is_one_line(tmp_path: Path) -> None:
    none = run(str(tmp_path / "program"))
    assert none.returncode == 126
    assert "No such file" in none.stderr or "Permission denied" in none.stderr
    assert len(none.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("profile", "reason"),
    [("export", "got some for ['made']"), ("nowhere", "expected the name of a profile")],
)
def test_a_profile_that_is_none_or_lacks_an_entry_is_one_line(profile: str, reason: str) -> None:
    command = caged_command(profile, ("true",), made=["/dev/null"], recordings=[])
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr.count("\n"), reason in ended.stderr) == (126, 1, True)


def test_what_a_process_has_written_it_does_not_execute(tmp_path: Path) -> None:
    script = f"cp /bin/true {tmp_path}/own && {tmp_path}/own"
    done = run("sh", "-c", script, made=[tmp_path])
    assert (tmp_path / "own").exists()
    assert done.returncode == 126
