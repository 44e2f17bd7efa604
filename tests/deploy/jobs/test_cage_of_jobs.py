"""Code of a job on a node changes its own folders, and no other job's; nor does it reach others."""

import json
import os
import sys
from pathlib import Path

import pytest

from core.cage import landlock
from deploy.common.project import environment_for_any_folder
from deploy.jobs.records import JobsRoot, JobState, read_all
from deploy.jobs.request import JobRequest, to_bytes
from tests.habits import needs
from tests.ran import python


@pytest.fixture(autouse=True)
def where_a_cage_is() -> None:
    """Where the kernel can."""
    needs.cage(landlock.SCOPED)


NAME = "20261121T2230-train"
OTHER = "20261121T2229-train"
REFUSED = ["PermissionError"] * 5

DRIVE = """
import sys
from pathlib import Path
from core.cage import profiles
from deploy.jobs.records import JobsRoot
from deploy.jobs.node_job import run
profiles._groups()["temporary"] = ()  # the test's own folders are temporary ones
root = JobsRoot(Path(sys.argv[1]))
sys.exit(run(root, sys.argv[2], sys.argv[3:-1], writes=[sys.argv[-1]]))
"""

CODE = """
import json, os, resource, sys
from pathlib import Path
own, home, other, pid = Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4])
def tried(work):
    try:
        work()
    except OSError as problem:
        return type(problem).__name__
    return "done"
(home / "kept").write_text("x")
found = [
    tried(lambda: (other / "app.py").write_text("x")),
    tried(lambda: Path(f"/proc/{pid}/root{other}/app.py").write_text("x")),
    tried(lambda: os.kill(pid, 0)),
    tried(lambda: resource.prlimit(pid, resource.RLIMIT_CPU)),
    tried(lambda: os.truncate(other / "state.json", 0)),
]
(own / "found").write_text(json.dumps(found))
(own / "run").write_text(str(home))
(home / "result.json").write_text("{}")
"""


def test_a_job_s_code_stays_in_its_own_folders(tmp_path: Path) -> None:
    root = JobsRoot(tmp_path / "state")
    home = root.path / "home"
    home.mkdir(parents=True)
    folder = root.job(NAME)
    other = root.job(OTHER).path
    for path in (folder.path, other):
        path.mkdir(parents=True)
    (other / "state.json").write_text("{}")
    folder.request.write_bytes(to_bytes(JobRequest(job="train", inventory="pi.yaml")))
    folder.inventory.write_text("schema: 1\n")
    code = (*("-c", CODE, str(folder.path), str(home), str(other)), str(os.getpid()))
    driven = ("-c", DRIVE, str(root.path), NAME, sys.executable, *code, str(home))
    python(*driven, environment=environment_for_any_folder())
    assert json.loads((folder.path / "found").read_text()) == REFUSED
    assert (home / "kept").exists()
    assert (other / "state.json").read_text() == "{}"
    (ended,) = (one for one in read_all(root) if one.id == NAME)
    assert ended.state is JobState.DONE
