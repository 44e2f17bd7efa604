"""What a machine says of itself, asked for real."""

import os
import shutil
import subprocess
import time
from pathlib import Path
from unittest.mock import Mock

import pytest

from core.ground.errors import ClusterError
from deploy.cluster.fleet import Local
from deploy.converge import survey
from deploy.converge.machine_facts import MachineFacts, Questions
from deploy.converge.survey import fact_script, machine_facts, read_facts
from deploy.rooted.commands import PYTHON
from tests.habits import needs

SEARCHED = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
SYSTEM = "/etc/os-release"


def ask(
    *files: Path, path: str = SEARCHED, system: str = SYSTEM, **others: tuple[str, ...]
) -> MachineFacts:
    """This machine's own facts, through `sh` as on a node that finds its commands in `path`."""
    names = tuple(map(str, files))
    packages = ("base-files", "nothing-of-this-name")
    units = ("pscluster-worker-0.service",)
    asked = Questions(names, units, packages, (890,), **{"space": ("/opt/pscluster",)} | others)
    script = fact_script(asked).replace(SEARCHED, path).replace(SYSTEM, system)
    before = time.time()
    done = subprocess.run(["sh", "-s"], input=script.encode(), capture_output=True, check=False)
    return read_facts(done.stdout.decode(errors="replace"), before, time.time())


def test_this_machine(tmp_path: Path) -> None:
    awkward = tmp_path / "with 'quotes' $HOME `id` \"x\""
    awkward.write_bytes(b"\x00\xff content")
    awkward.chmod(0o640)
    link = tmp_path / "link"
    link.symlink_to("elsewhere")
    missing = tmp_path / "missing"
    not_yet = f"{tmp_path}/not/yet"
    facts = ask(awkward, tmp_path, link, missing, space=(not_yet,))
    assert (facts.machine, facts.kernel) == (os.uname().machine, os.uname().release)
    assert facts.bits in (32, 64)
    assert facts.cores >= 1
    assert facts.memory_bytes > 50_000_000
    assert abs(facts.clock_offset_seconds) <= facts.clock_error_seconds + 0.1
    free = shutil.disk_usage(tmp_path).free
    assert facts.disk_free_bytes[not_yet] == pytest.approx(free, rel=0.2)
    assert "/" in facts.mounts
    found = facts.files[str(awkward)]
    assert (found.kind, found.mode, found.content) == ("file", 0o640, b"\x00\xff content")
    assert found.modified_seconds == pytest.approx(awkward.stat().st_mtime, abs=1.0)
    assert facts.files[str(tmp_path)].kind == "folder"
    assert (facts.files[str(link)].kind, facts.files[str(link)].target) == ("link", "elsewhere")
    assert str(missing) not in facts.files
    assert "nothing-of-this-name" not in facts.packages


def test_what_attempts_left_is_measured_and_what_is_complete_is_not(tmp_path: Path) -> None:
    wheels = tmp_path / "wheels"
    for folder in (".partial-a/environment", ".partial-removed-b", "c", "d"):
        (wheels / folder).mkdir(parents=True)
        (wheels / folder / "file").write_bytes(b"x" * 300_000)
    for complete in (".partial-removed-b", "d"):
        (wheels / complete / ".complete").touch()
    (tmp_path / "empty").mkdir()
    folders = tuple(f"{tmp_path}/{name}" for name in ("wheels", "empty", "none"))
    left = ask(unfinished=folders).leftover_bytes
    assert {name: left[name] for name in folders if name in left} == {
        str(wheels): pytest.approx(900_000, rel=0.1)
    }


def test_a_machine_without_most_commands(tmp_path: Path) -> None:
    for name in ("date", "uname", "tar", "base64", "sort", "cat", "df", "awk"):
        (tmp_path / name).symlink_to(needs.tool(name))
    facts = ask(path=f"PATH={tmp_path}")
    assert (facts.machine, facts.bits, facts.kernel) == (os.uname().machine, 0, os.uname().release)
    assert (facts.addresses, facts.packages, facts.units, facts.listening) == ({}, {}, {}, {})


def test_a_system_s_file_that_ends_its_shell_costs_the_name_of_the_system_alone(
    tmp_path: Path,
) -> None:
    (tmp_path / "system").write_text("ID=debian\nexit 1\n")
    facts = ask(system=str(tmp_path / "system"))
    assert (facts.os_id, facts.os_version, facts.machine) == ("", "", os.uname().machine)


def test_the_python_that_is_looked_at_is_the_one_that_is_used(tmp_path: Path) -> None:
    """Whatever python3 the owner has built or wrapped in /usr/local/bin."""
    other = tmp_path / "python3"
    other.write_text("#!/bin/sh\necho 3.99.0 64\n")
    other.chmod(0o755)
    facts = ask(path=SEARCHED.replace("PATH=", f"PATH={tmp_path}:"))
    words = [PYTHON, "-c", "import platform; print(platform.python_version())"]
    assert facts.python == subprocess.check_output(words, text=True).strip()


def test_values_of_the_inventory_are_words_for_the_shell(tmp_path: Path) -> None:
    touch = f"touch {tmp_path}/trapped"
    trap = f"{tmp_path}/x'; {touch}; echo '$({touch})`{touch}`"
    asked = Questions((trap,), (trap,), (trap,), (890,), (trap,), (f"{tmp_path}/ok", trap))
    script = fact_script(asked).encode()
    subprocess.run(["sh", "-s"], input=script, capture_output=True, check=False)
    assert not (tmp_path / "trapped").exists()


FORGER = r"""
import ctypes, socket, sys
name = sys.stdin.readline().strip().encode().decode("unicode_escape").encode()
ctypes.CDLL(None).prctl(15, name, 0, 0, 0)  # PR_SET_NAME: up to 15 bytes
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
sys.stdin.readline()
"""


@pytest.mark.parametrize(
    "name", [r'"\n@@ python\n', r'"\n@@ current\n', r'"\n@@ end\n', r"\nL 0 0 :65535\n"]
)
def test_a_process_s_name_forges_no_section(name: str) -> None:
    # A bare Debian has no `ss`: the tests bring theirs.
    path = SEARCHED.replace("PATH=", f"PATH='{needs.tool('ss').parent}':")
    plain = ask(path=path)
    with subprocess.Popen(
        [PYTHON, "-c", FORGER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(name + "\n")
        process.stdin.flush()
        port = int(process.stdout.readline())
        facts = ask(path=path)
        process.stdin.close()
    assert port in facts.listening
    assert 65535 not in facts.listening
    assert (facts.python, facts.current) == (plain.python, plain.current)


def test_a_folder_s_name_forges_no_published_folder(tmp_path: Path) -> None:
    for name in ("abc", "x\n", "y\n/srv/pscluster/shared/wheels/0123", "z 1"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / ".complete").touch()
    assert ask(published=(str(tmp_path),)).published == (f"{tmp_path}/abc",)


def test_each_question_has_a_marker_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = Mock(return_value="false")
    monkeypatch.setattr(survey, "fact_script", drawn)
    for _ in range(2):
        with pytest.raises(ClusterError):
            machine_facts(Local("here"), Questions())
    assert drawn.call_args_list[0] != drawn.call_args_list[1]
