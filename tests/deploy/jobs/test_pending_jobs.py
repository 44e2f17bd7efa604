"""The note of jobs to be submitted, and which of those submitted before are still good."""

from pathlib import Path

import pytest

from deploy.jobs.records import JobRecord, JobState
from deploy.jobs.services import PendingJobs, reusable


def test_the_note_is_there_until_it_is_forgotten(tmp_path: Path) -> None:
    pending = PendingJobs(tmp_path / "not yet there/pending_jobs.json")
    assert (pending.noted, pending.submitted) == (False, ())
    pending.note()
    assert (pending.noted, pending.submitted) == (True, ())
    pending.note(["1-pi"])
    assert PendingJobs(tmp_path / "not yet there/pending_jobs.json").submitted == ("1-pi",)
    pending.forget()
    pending.forget()
    assert not pending.noted


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"submitted": 3}', "\xff"])
def test_a_damaged_note_is_one_of_all_jobs(tmp_path: Path, content: str) -> None:
    (tmp_path / "note").write_text(content, encoding="latin-1")
    pending = PendingJobs(tmp_path / "note")
    assert (pending.noted, pending.submitted) == (True, ())


def records(*states: JobState) -> list[JobRecord]:
    jobs = ("pi", "train", "evaluate")
    return [JobRecord(f"{n}-{jobs[n]}", jobs[n], state) for n, state in enumerate(states)]


@pytest.mark.parametrize("state", JobState)
def test_the_rest_follows_a_job_that_may_still_be_done(state: JobState) -> None:
    good = state in (JobState.WAITING, JobState.RUNNING, JobState.DONE)
    assert reusable(["0-pi"], ["pi", "train"], records(state)) == (("0-pi",) if good else ())


def test_after_another_order_or_a_reset_all_begin_anew() -> None:
    there = records(JobState.DONE, JobState.RUNNING)
    both = ["0-pi", "1-train"]
    assert reusable(both, ["pi", "train", "evaluate"], there) == tuple(both)
    assert reusable(both, ["train", "pi"], there) == ()
    assert reusable(both, ["pi"], there) == ()
    assert reusable(["0-pi"], ["pi", "train"], []) == ()
    assert reusable([], ["pi", "train"], there) == ()
