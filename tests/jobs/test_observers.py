"""Several watch a job, and none of them can end it."""

import pytest

from cluster.jobs.observer import Observer, Observers


class Heard(Observer):
    def __init__(self) -> None:
        self.done: list[int] = []

    def advanced(self, done: int) -> None:
        self.done.append(done)


class Broken(Heard):
    def advanced(self, done: int) -> None:
        super().advanced(done)
        raise KeyError("a bug")


def test_one_that_fails_is_told_nothing_more_and_the_others_all(caplog: pytest.LogCaptureFixture) -> None:
    before, broken, behind = Heard(), Broken(), Heard()
    told = Observers(before, broken, behind)
    for done in (1, 2):
        told.advanced(done)
    assert (before.done, broken.done, behind.done) == ([1, 2], [1], [1, 2])
    (line,) = caplog.messages
    assert line == "Broken is told nothing more: it failed"
