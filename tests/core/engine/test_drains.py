"""Waiting for a worker to have nothing to do: threads that wait and one that tells."""

from concurrent.futures import ThreadPoolExecutor

from core.engine.changes import Drains

LONG_SECONDS = 60.0


def test_everybody_who_waits_for_a_worker_is_told() -> None:
    drains = Drains()
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(drains.wait, 3, lambda: None, LONG_SECONDS)
        assert drains.wait(3, lambda: drains.done(3), LONG_SECONDS)
        drains.done(3)
        drains.close()  # the first one may have come to wait after both
        assert first.result(LONG_SECONDS)


def test_one_that_is_done_says_nothing_of_another() -> None:
    drains = Drains()
    assert not drains.wait(3, lambda: drains.done(4), 0.0)
    assert drains.wait(3, lambda: drains.done(3), 0.0), "the wait before it is over and forgotten"


def test_when_no_work_is_given_out_any_more_all_are_drained() -> None:
    drains = Drains()
    assert drains.wait(0, drains.close, LONG_SECONDS)
    assert drains.wait(1, lambda: None, LONG_SECONDS)
