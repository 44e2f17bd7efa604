"""A program that fails while a parameter server of it becomes another process."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from cluster.jobs import roles
from cluster.jobs.cancel import Cancel
from cluster.jobs.lifecycle import JobContext
from cluster.jobs.progress import Display
from cluster.jobs.run_folder import SPEAKER, RunFolder
from cluster.programs import group
from cluster.programs.job import ProgramFailed, ProgramLostServer, ProgramRun
from cluster.programs.program import ProgramRequest
from core.control.actions import Actions
from core.metrics import exporter
from tests.cluster.jobs.kit import inventory_in
from tests.hang import HANG_SECONDS

FAILS_ONCE_THERE = """
import pathlib, sys, time
while not pathlib.Path(sys.argv[1]).exists():
    time.sleep(0.01)
sys.exit(1)
"""


@pytest.mark.parametrize(
    ("replaced_at", "failure"), [("begin", ProgramLostServer), ("end", ProgramFailed)]
)
def test_a_server_is_lost_if_another_process_is_there_before_the_end_is_announced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, replaced_at: str, failure: type[Exception]
) -> None:
    """The announcement of the end may restart it."""
    for module, name in (
        (roles, "ANNOUNCED_SECONDS"),
        (roles, "ALL_ANNOUNCED_SECONDS"),
        (group, "ANSWER_SECONDS"),
    ):
        monkeypatch.setattr(module, name, HANG_SECONDS)
    monkeypatch.setattr(SPEAKER, "run", "20261121T224500Z-run")

    def heard(what: str) -> Callable[[str], None]:
        def act(_run: str) -> None:
            if what == replaced_at:
                serving._server.process = "the next"
            (tmp_path / what).touch()

        return act

    inventory = inventory_in(tmp_path)
    program = tmp_path / "program.py"
    program.write_text(FAILS_ONCE_THERE)
    request = ProgramRequest(str(program), (str(tmp_path / "begin"),))
    context = JobContext(inventory, Display(quiet=True), Cancel(), muted=True)
    serving = exporter.serve(
        CollectorRegistry(),
        "127.0.0.1",
        inventory.task("ps", 0).metrics_port,
        lambda: True,
        actions=Actions(begin_run=heard("begin"), end_run=heard("end")),
    )
    with closing(serving), pytest.raises(failure):
        ProgramRun(context, request, quiet=True).run(RunFolder(tmp_path / "runs", "run"))
    assert (tmp_path / "end").exists()
