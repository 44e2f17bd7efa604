"""A person's program on the coordinator's node, which is this machine with a played systemd."""

from pathlib import Path

import pytest

from cluster.programs.program import ProgramRequest
from core.ground.errors import ExitCode
from deploy.jobs import attached_job
from tests.deploy.job_node import JobNode


def test_the_program_and_what_lies_beside_it_are_there(
    node: JobNode, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = node.folder / "mine"
    mine.mkdir()
    (mine / "train.py").write_text("import beside\n")
    (mine / "beside.py").write_text("WORD = 1\n")
    node.play("0")
    request = ProgramRequest(str(mine / "train.py"), ("--name", "first try"))
    assert attached_job.run_attached(node.jobs(), "run", [], request=request) == ExitCode.DONE
    (record,) = node.jobs().records()
    words = node.asked()
    arrived = ProgramRequest.of_text(words[words.index("--program") + 1])
    assert arrived.arguments == request.arguments
    assert arrived.bounded
    assert Path(arrived.program) == node.root.job(record.id).path / "program/train.py"
    assert (Path(arrived.program).parent / "beside.py").read_text() == "WORD = 1\n"
    assert record.job == "run"


def test_a_line_of_the_program_that_looks_like_ours_is_shown(
    capsys: pytest.CaptureFixture[str],
) -> None:
    attached_job._show("result: 5")
    attached_job._show("result: /mnt/runs/20260101T000000Z-run/result.json")
    assert capsys.readouterr().err == "result: 5\n"
