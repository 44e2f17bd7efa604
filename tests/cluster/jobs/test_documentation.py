"""docs/runs.md lists what a run's files hold, and nothing else."""

import re
from dataclasses import fields

import pytest

from cluster.jobs.cancel import Cancel
from cluster.jobs.cv import CrossValidationRun
from cluster.jobs.cv_record import FoldScore
from cluster.jobs.evaluate import EvaluateRun
from cluster.jobs.lifecycle import Job, JobContext
from cluster.jobs.pi import PiRun
from cluster.jobs.progress import Display
from cluster.jobs.train import TrainRun
from cluster.pages.files import RunRecord, SweepRecord
from core.inventory import load
from tests.cluster.jobs.cluster import PROJECT

PAGE = (PROJECT / "docs" / "runs.md").read_text()
OF_EVERY_JOB = ("schema", "job", "status", "reason", "cluster", "workers", "ps", "elapsed_seconds")


def listed(heading: str, row: str) -> set[str]:
    """The words of code in the rows, which `row` matches, of a section."""
    section = re.split(r"^##+ ", PAGE.partition(heading)[2], maxsplit=1, flags=re.M)[0]
    return set(re.findall(r"`(\w+)`", "".join(re.findall(row, section, re.M))))


@pytest.mark.parametrize(
    ("job", "heading", "row"),
    [
        (TrainRun, "### `train`", r"^\| (`.+?`) \|"),
        (CrossValidationRun, "### Other jobs", r"^\| `cv` \| (.+)"),
        (EvaluateRun, "### Other jobs", r"^\| `evaluate` \| (.+)"),
        (PiRun, "### Other jobs", r"^\| `pi` \| (.+)"),
    ],
)
def test_every_key_of_a_result_is_listed(job: type[Job], heading: str, row: str) -> None:
    inventory = load(PROJECT / "inventories" / "local.yaml")
    result = job(JobContext(inventory, Display(quiet=True), Cancel())).result()
    keys = listed(heading, row) - {"train"}
    assert keys | {*OF_EVERY_JOB} == {*OF_EVERY_JOB, *result}


def test_every_key_of_other_records_is_listed() -> None:
    keys = r"^- (`.+?`):"
    assert listed("## `cv.json`", keys) == {field.name for field in fields(FoldScore)}
    records = {field.name for kind in (SweepRecord, RunRecord) for field in fields(kind)}
    assert listed("## `sweep.json`", keys) | {"runs"} == records | {"schema"}
