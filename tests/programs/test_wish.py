"""What is asked for, from the command line to the process that runs the program."""

import json
from pathlib import Path

import pytest

from cluster.errors import UsageError
from cluster.programs.wish import ProgramWish, program_file
from deploy.commands.typed import with_word_as_flag
from deploy.jobs.program_files import FOLDER, packed
from deploy.jobs.request import needs_roles, request_of
from deploy.jobs.run_archive import unpack
from tests.deploy.converge.pi import thesis


@pytest.mark.parametrize(
    ("typed", "read"),
    [
        ("job run a.py", "job run --program a.py"),
        ("job.run a.py --on workers", "job.run --program a.py --on workers"),
        ("job run --on workers --json a.py", "job run --on workers --json --program a.py"),
        ("job run --inventory=x.yaml a.py", "job run --inventory=x.yaml --program a.py"),
        ("job run --set a=1 --set b=2 a.py", "job run --set a=1 --set b=2 --program a.py"),
        ("job run --program a.py", "job run --program a.py"),
        ("job run --on workers", "job run --on workers"),
        ("job train --epochs 3", "job train --epochs 3"),
        ("deploy start", "deploy start"),
        ("deploy render kubernetes --out x", "deploy render --kind kubernetes --out x"),
        ("deploy.render --out x kubernetes", "deploy.render --out x --kind kubernetes"),
        ("deploy render --kind kubernetes", "deploy render --kind kubernetes"),
    ],
)
def test_the_program_may_stand_anywhere(typed: str, read: str) -> None:
    assert with_word_as_flag(typed.split()) == read.split()


def test_a_wish_arrives_as_it_was() -> None:
    wish = ProgramWish("/a b/p.py", ("--x", "'", '"', "a\nb", "é", "$(x)", ""), "workers", 0, bounded=True)
    assert ProgramWish.of_text(wish.to_text()) == wish


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "--wish: expected"),
        ("[]", "--wish: expected"),
        ('{"program": "p", "arguments": [1]}', "--wish: expected"),
        ('{"program": "p", "arguments": [], "other": 1}', "--wish: expected"),
        ('{"program": "p", "arguments": [], "on": "moon"}', "--on: expected chief or workers"),
        ('{"program": "p", "arguments": [], "restarts": -1}', "--restarts: expected"),
        ('{"program": "p", "arguments": ["a\\u0000"]}', "NUL"),
        (json.dumps({"program": "p", "arguments": ["x" * 200_000]}), "at most 131072 bytes"),
    ],
)
def test_another_text_is_refused_in_one_line(text: str, words: str) -> None:
    with pytest.raises(UsageError) as refused:
        ProgramWish.of_text(text)
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_program_is_a_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="found no such file"):
        program_file(str(tmp_path / "gone.py"))
    with pytest.raises(UsageError, match="File name too long"):
        program_file("x" * 300)
    with pytest.raises(UsageError, match="a folder or device"):
        program_file(str(tmp_path))


def test_the_folder_of_a_program_travels_without_what_is_private(tmp_path: Path) -> None:
    here = tmp_path / "here"
    for name in ("p.py", "lib/x.py", ".env", ".git/config", "__pycache__/x.pyc", "venv/lib/y.py", "runs/1/result.json"):
        (here / name).parent.mkdir(parents=True, exist_ok=True)
        (here / name).write_text(name)
    (here / "venv" / "pyvenv.cfg").touch()
    (here / "link.py").symlink_to("/etc/passwd")
    archive = tmp_path / "a.tar.gz"
    archive.write_bytes(packed(here / "p.py"))
    assert packed(here / "p.py") == archive.read_bytes()
    with archive.open("rb") as stream:
        found = unpack(stream, FOLDER, tmp_path / "there")
    assert sorted(str(path.relative_to(found)) for path in found.rglob("*") if path.is_file()) == ["lib/x.py", "p.py"]


@pytest.mark.parametrize("name", [".hidden.py", "link.py"])
def test_a_program_that_would_stay_here_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / ".hidden.py").touch()
    (tmp_path / "link.py").symlink_to(tmp_path / ".hidden.py")
    with pytest.raises(UsageError, match="hidden files and links stay here"):
        packed(tmp_path / name)


def test_a_folder_that_is_too_large_stays_here(tmp_path: Path) -> None:
    (tmp_path / "p.py").touch()
    with (tmp_path / "data.bin").open("wb") as file:
        file.truncate(65 << 20)
    with pytest.raises(UsageError, match="a folder of their own"):
        packed(tmp_path / "p.py")


def test_a_program_on_the_workers_needs_no_roles() -> None:
    inventory = thesis()
    chief, workers = ProgramWish("/a/p.py"), ProgramWish("/a/p.py", on="workers")
    assert needs_roles(inventory, "run", chief)
    assert not needs_roles(inventory, "run", workers)
    request = request_of(inventory, "run", (), ("--json", "--quiet"), "/runs", wish=chief)
    assert ProgramWish.of_text(request.wish) == ProgramWish("p.py", bounded=True)
    assert request.flags == ("--quiet",)
    assert len(request.roles) == 17
    assert request_of(inventory, "run", (), (), "/runs", wish=workers).roles == {}
