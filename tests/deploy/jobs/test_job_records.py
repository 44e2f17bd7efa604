"""Records of jobs as the account writes them: parsed with types and bounds, on the node and on the
operator's side."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.ground.errors import ClusterError
from deploy.jobs.records import (
    MOST_BYTES,
    JobRecord,
    JobsRoot,
    JobState,
    read_all,
    run_folder,
    run_folder_of,
)
from tests.deploy.job_node import JobNode
from tests.deploy.tables import Tables
from tests.ran import python

rows = Tables(__file__)

ID = "20261121T2230-pi"
GOOD = {
    "id": ID,
    "job": "pi",
    "state": "done",
    "pid": 4242,
    "exit_code": 0,
    "begun": "2026-11-21T22:30:00+00:00",
    "ended": "2026-11-21T22:31:00+00:00",
    "run_folder": "/mnt/pscluster/runs/20261121T223000Z-pi",
}


@pytest.fixture
def root(tmp_path: Path) -> JobsRoot:
    made = JobsRoot(tmp_path / "state")
    made.job(ID).path.mkdir(parents=True)
    return made


def test_what_was_written_is_read() -> None:
    record = JobRecord.from_json(GOOD)
    assert record.to_json() == GOOD
    assert record.state is JobState.DONE


@rows("wrong")
def test_a_field_of_another_kind_is_refused(root: JobsRoot, wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"expected|is not a valid"):
        JobRecord.from_json({**GOOD, **wrong})
    root.job(ID).state.write_text(json.dumps({**GOOD, **wrong}))
    (record,) = read_all(root)
    assert record.id == ID  # the folder's name, which root gave
    assert record.state is (JobState.DONE if "id" in wrong else JobState.SUBMITTED)


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists, max_leaves=5))
def test_no_other_json_is_a_record(content: Any) -> None:
    with pytest.raises(ValueError, match="expected"):
        JobRecord.from_json(content)


@given(st.text())
def test_a_run_folder_is_an_absolute_path_with_a_plain_name(text: str) -> None:
    try:
        folder = run_folder_of(text)
    except ValueError:
        return
    assert folder == text == os.path.normpath(text)
    assert text.isprintable() or not text.isascii()
    assert Path(text).name not in ("", ".", "..")


@pytest.mark.parametrize(
    "content",
    [b"", b"\xff", b"null", b" " * (MOST_BYTES + 1), b"1" * 5000],
)
def test_a_file_of_another_kind_is_a_job_that_never_began(root: JobsRoot, content: bytes) -> None:
    root.job(ID).state.write_bytes(content)
    root.job(ID).run_file.write_bytes(content)
    (record,) = read_all(root)
    assert (record.id, record.state, record.run_folder) == (ID, JobState.SUBMITTED, None)


def test_links_and_pipes_are_not_read(root: JobsRoot, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(json.dumps(GOOD))
    root.job(ID).state.symlink_to(tmp_path / "secret")
    os.mkfifo(root.job(ID).run_file)
    (record,) = read_all(root)
    assert record.state is JobState.SUBMITTED
    assert run_folder(root.job(ID)) is None


@rows("printed")
def test_a_report_of_a_hostile_node_is_one_line(node: JobNode, printed: str) -> None:
    (node.folder / "printed").write_text(printed)
    environment = node.folder / "release/environment"
    environment.unlink()
    python = environment / "bin/python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec cat "{node.folder}/printed"\n')
    python.chmod(0o755)
    with pytest.raises(
        ClusterError, match=r"^rpi11: its jobs cannot be listed: .{,900}deploy start --no-jobs"
    ):
        node.jobs().records()


def test_the_job_s_own_log_is_no_link(root: JobsRoot, tmp_path: Path) -> None:
    """The process that opens it is the account's: it says why it does not begin, and writes nowhere
    else."""
    (tmp_path / "secret").write_text("of root\n")
    root.job(ID).output.symlink_to(tmp_path / "secret")
    said = python("-m", "deploy.jobs.node_job", ID, "--root", root.path, code=1)
    assert (tmp_path / "secret").read_text() == "of root\n"
    assert said.startswith(f"{ID}: its log cannot be opened")
