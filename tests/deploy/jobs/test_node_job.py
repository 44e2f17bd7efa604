"""A job as its unit runs it: `python -m deploy.jobs.node_job`, and what it leaves in
`state.json`."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from core.ground.errors import ExitCode, UsageError
from deploy.common.project import environment_for_any_folder
from deploy.jobs.records import JobRecord, JobsRoot, JobState, is_job_id, read_all
from deploy.jobs.request import JobRequest, read_record, to_bytes
from tests.deploy.played_roles import PlayedRole, played_roles
from tests.deploy.playing import PATIENCE_SECONDS, eventually
from tests.deploy.tables import Tables
from tests.ran import python

rows = Tables(__file__)

HERE = Path(__file__).parents[1]
FIRST = "20261121T2230-train"
SECOND = "20261121T2231-pi"


def submit(root: JobsRoot, name: str = FIRST, **more: Any) -> None:
    folder = root.job(name)
    folder.path.mkdir(parents=True)
    request = JobRequest(job=name.split("-")[1], inventory="pi.yaml", **more)
    folder.request.write_bytes(to_bytes(request))
    folder.inventory.write_text("schema: 1\n")


@contextmanager
def begun(root: JobsRoot, endings: str, name: str = FIRST) -> Iterator["subprocess.Popen[str]"]:
    """The job's process, with a coordinator that ends that way; one that waits does so already."""
    player = [str(HERE / "play_attempts.py"), str(root.path / "journal"), endings]
    with subprocess.Popen(
        [sys.executable, str(HERE / "drive_node_job.py"), str(root.path), name, *player],
        env=environment_for_any_folder(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        try:
            if endings == "waits":
                eventually((root.path / "journal.waits").exists, "the coordinator's wait")
            yield process
        finally:
            process.kill()


def ended(root: JobsRoot, endings: str, name: str = FIRST) -> tuple[int, str]:
    with begun(root, endings, name) as process:
        output, _ = process.communicate(timeout=PATIENCE_SECONDS)
    return process.returncode, output


def record(root: JobsRoot, name: str = FIRST) -> JobRecord:
    (found,) = (one for one in read_all(root) if one.id == name)
    return found


def state(root: JobsRoot, name: str = FIRST) -> JobState:
    return record(root, name).state


def waiting(root: JobsRoot, name: str = SECOND) -> None:
    """Returns when the job waits for the one before."""
    eventually(lambda: state(root, name) is JobState.WAITING, "the wait")


def run_of(root: JobsRoot) -> str:
    return f"{root.path}/runs/one"


def attempts(root: JobsRoot) -> list[str | None]:
    return [json.loads(line)["resume"] for line in (root.path / "journal").read_text().splitlines()]


@pytest.fixture
def root(tmp_path: Path) -> JobsRoot:
    return JobsRoot(tmp_path / "state")


@rows("code", "ending")
def test_the_state_tells_how_it_ended(root: JobsRoot, code: int, ending: str) -> None:
    submit(root)
    assert state(root) is JobState.SUBMITTED
    assert ended(root, str(code))[0] == code
    left = record(root)
    assert (left.state, left.exit_code, left.run_folder) == (ending, code, run_of(root))
    assert "" < str(left.begun) <= str(left.ended) < "9"  # times, not None


def test_a_training_goes_on_with_fresh_roles(root: JobsRoot) -> None:
    server = PlayedRole()
    worker = PlayedRole()
    with played_roles(ps_0=server, worker_0=worker) as roles:
        submit(root, roles=roles, flags=("--resume", "asked"))
        code, output = ended(root, "24,killed,0")
    assert code == 0
    assert attempts(root) == ["asked", run_of(root), run_of(root)]
    assert (server.restarts, worker.restarts) == (2, 2)
    assert "train: started again, resuming runs/one\n" in output


def test_a_job_that_gets_nowhere_says_how_the_operator_goes_on(root: JobsRoot) -> None:
    submit(root)
    code, output = ended(root, "24,24,24")
    assert (code, state(root)) == (ExitCode.SERVER_LOST, JobState.FAILED)
    hint = "`fab job train --resume --run runs/one --inventory pi.yaml` resumes it"
    assert output.splitlines()[-1] == hint


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_interrupts_it_once(root: JobsRoot, number: signal.Signals) -> None:
    submit(root)
    with begun(root, "waits") as process:
        running = record(root)
        assert (running.state, running.pid) == (JobState.RUNNING, process.pid)
        process.send_signal(number)
        output, _ = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == ExitCode.CANCELLED, output
    assert state(root) is JobState.CANCELLED


def test_only_one_runs_at_a_time_and_the_holder_is_named(root: JobsRoot) -> None:
    submit(root)
    submit(root, SECOND)
    with begun(root, "waits"):
        code, output = ended(root, "0", SECOND)
        assert code == ExitCode.FAILED
        assert output.startswith(f"a job is running on this cluster already ({FIRST}): ")
        assert state(root, SECOND) is JobState.SUBMITTED


def test_a_killed_job_is_recognised_and_the_next_one_clears_up_after_it_once(
    root: JobsRoot,
) -> None:
    submit(root)
    with begun(root, "waits"):
        pass  # and killed
    left = record(root)
    assert (left.state, left.exit_code, left.ended) == (JobState.INTERRUPTED, None, None)
    assert left.run_folder == run_of(root)
    server = PlayedRole()
    worker = PlayedRole()
    with played_roles(ps_0=server, worker_0=worker) as roles:
        for name in (SECOND, "20261121T2232-pi"):
            submit(root, name, roles=roles)
            (root.path / "journal").unlink()
            code, output = ended(root, "0", name)
            assert code == 0
            assert (f"{FIRST} was interrupted" in output) == (name == SECOND)
            assert (server.restarts, worker.restarts) == (1, 1)
    assert state(root) is JobState.INTERRUPTED
    assert record(root).ended is not None


def test_what_was_never_submitted_is_one_line(root: JobsRoot) -> None:
    code, output = ended(root, "0")
    assert code == ExitCode.FAILED
    assert output.startswith(f"{FIRST}: expected a job that was submitted, found no ")
    assert not is_job_id("../../etc")


@pytest.mark.parametrize("content", [b"", b"{}", b'{"schema": 2}', b'{"schema": 1, "job": "pi"}'])
def test_a_request_of_another_kind_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "request.json").write_bytes(content)
    said = r"request\.json: expected the request that `fab job` writes.*fab deploy start --no-jobs`"
    with pytest.raises(UsageError, match=said):
        read_record(tmp_path / "request.json", JobRequest, "the request that `fab job`")


def test_a_request_is_as_the_releases_before_write_and_read_it(tmp_path: Path) -> None:
    request = JobRequest("run", "pi.yaml", program="{}")
    content = json.loads(to_bytes(request))
    assert (content["schema"], content["wish"], "program" in content) == (1, "{}", False)
    (tmp_path / "request.json").write_bytes(to_bytes(request))
    assert read_record(tmp_path / "request.json", JobRequest, "") == request


def test_it_imports_neither_tensorflow_nor_what_an_inventory_costs() -> None:
    heavy = ("tensorflow", "pydantic", "yaml", "psutil", "rich")
    program = (
        f"import sys, deploy.jobs.node_job; print([name for name in {heavy} if name in"
        " sys.modules])"
    )
    assert python("-c", program).strip() == "[]"


def test_a_job_waits_for_the_one_before_and_begins_when_that_is_done(root: JobsRoot) -> None:
    submit(root)
    submit(root, SECOND, after=FIRST)
    with begun(root, "0,0", SECOND) as process:
        waiting(root)
        assert record(root, SECOND).pid == process.pid
        assert ended(root, "0")[0] == 0
        output, _ = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0, output
    assert state(root, SECOND) is JobState.DONE


@rows("code", "ending")
def test_a_job_is_not_begun_when_the_one_before_is_not_done(
    root: JobsRoot, code: int, ending: str
) -> None:
    submit(root)
    submit(root, SECOND, after=FIRST)
    assert ended(root, str(code))[0] == code
    (root.path / "journal").unlink()
    assert ended(root, "0", SECOND) == (
        code,
        f"pi: not begun: {FIRST}, which it was to follow, is {ending}\n",
    )
    assert state(root, SECOND) == ending
    assert not (root.path / "journal").exists()


@rows("name", "ending")
def test_a_waiting_job_can_be_interrupted_and_a_killed_one_is_recognised(
    root: JobsRoot, name: str, ending: str
) -> None:
    submit(root)
    submit(root, SECOND, after=FIRST)
    with begun(root, "0", SECOND) as process:
        waiting(root)
        process.send_signal(signal.Signals[name])
        process.wait(PATIENCE_SECONDS)
    assert state(root, SECOND) == ending
