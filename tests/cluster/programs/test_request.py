"""What is asked for, from the command line to the process that runs the program."""

import json
from pathlib import Path

import pytest

from cluster.programs.program import ProgramRequest, program_file
from core.ground.errors import ClusterError, UsageError
from core.ground.parcel import blocks_of, unpack_folder
from deploy.jobs.program_task import PROGRAM_FOLDER, packed_program
from deploy.jobs.request import PROGRAM, needs_roles, request_of
from tests.cluster.apps.trees import write_tree
from tests.deploy.converge.pi import thesis
from tests.tables import table


def test_a_request_arrives_as_it_was() -> None:
    request = ProgramRequest(
        "/a b/p.py", ("--x", "'", '"', "a\nb", "é", "$(x)", ""), "workers", 0, bounded=True
    )
    assert ProgramRequest.of_text(request.to_text()) == request


@pytest.mark.parametrize(
    ("text", "words"),
    [
        *table("cluster/programs/rows", "requests"),
        (json.dumps({"program": "p", "arguments": ["x" * 200_000]}), "at most 131072 bytes"),
    ],
)
def test_another_text_is_refused_in_one_line(text: str, words: str) -> None:
    with pytest.raises(UsageError) as refused:
        ProgramRequest.of_text(text)
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_program_is_a_file(tmp_path: Path) -> None:
    for path, said in (
        (str(tmp_path / "gone.py"), "found no such file"),
        ("x" * 300, "File name too long"),
        (str(tmp_path), "a folder or device"),
    ):
        with pytest.raises(UsageError, match=said):
            program_file(path)


def test_the_folder_of_a_program_travels_without_what_is_private(tmp_path: Path) -> None:
    here = tmp_path / "here"
    travels = ["lib/x.py", "p.py"]
    stays = [".env", ".git/config", "__pycache__/x.pyc", "venv/lib/y.py", "runs/1/result.json"]
    write_tree(here, dict.fromkeys([*travels, *stays, "venv/pyvenv.cfg"], "x"))
    (here / "link.py").symlink_to("/etc/passwd")
    with packed_program(here / "p.py") as archive, packed_program(here / "p.py") as again:
        assert b"".join(blocks_of(archive)) == b"".join(blocks_of(again))
        found = unpack_folder(archive, PROGRAM_FOLDER, tmp_path / "there", PROGRAM)
    files = [path for path in found.rglob("*") if path.is_file()]
    assert sorted(str(path.relative_to(found)) for path in files) == travels


@pytest.mark.parametrize("name", [".hidden.py", "link.py"])
def test_a_program_that_would_stay_here_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / ".hidden.py").touch()
    (tmp_path / "link.py").symlink_to(tmp_path / ".hidden.py")
    with pytest.raises(UsageError, match="hidden files and links stay here"):
        packed_program(tmp_path / name)


def test_a_folder_that_is_too_large_stays_here(tmp_path: Path) -> None:
    (tmp_path / "p.py").touch()
    with (tmp_path / "data.bin").open("wb") as file:
        file.truncate(65 << 20)
    with pytest.raises(UsageError, match="a folder of their own"):
        packed_program(tmp_path / "p.py")


def test_a_file_that_grows_after_the_look_does_not_travel(tmp_path: Path) -> None:
    write_tree(tmp_path, {"p.py": "", "log.txt": ""})
    packing = packed_program(tmp_path / "p.py")
    (tmp_path / "log.txt").write_text("more")
    with pytest.raises(ClusterError, match=r"log\.txt: has changed"), packing:
        raise AssertionError("it was packed")


def test_a_program_on_the_workers_needs_no_roles() -> None:
    inventory = thesis()
    chief = ProgramRequest("/a/p.py")
    workers = ProgramRequest("/a/p.py", on="workers")
    assert needs_roles(inventory, "run", chief)
    assert not needs_roles(inventory, "run", workers)
    request = request_of(
        inventory, "run", (), ("--json", "--quiet"), "/runs", program_request=chief
    )
    assert ProgramRequest.of_text(request.program) == ProgramRequest("p.py", bounded=True)
    assert request.flags == ("--quiet",)
    assert len(request.roles) == 17
    assert request_of(inventory, "run", (), (), "/runs", program_request=workers).roles == {}
