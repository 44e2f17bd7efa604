"""The exporter stays until the last figures were read, for whoever reads, and not for long."""

import itertools
import threading

import pytest

from core.metrics import Scrapes
from tests.hang import HANG_SECONDS


def test_nobody_reads_so_nobody_is_waited_for() -> None:
    assert not Scrapes().linger(lambda: pytest.fail("looked up"))


def test_who_read_long_ago_is_not_waited_for() -> None:
    times = iter([0.0, *[61.0] * 10])
    scrapes = Scrapes(lambda: next(times))
    with scrapes.one():
        pass
    assert not scrapes.watched
    assert not scrapes.linger(lambda: pytest.fail("looked up"))


def test_waits_until_somebody_reads_what_is_there_now() -> None:
    scrapes = Scrapes()
    begun = threading.Event()
    go = threading.Event()

    def read(wait: bool) -> None:
        with scrapes.one():
            begun.set()
            if wait:
                go.wait(HANG_SECONDS)

    read(wait=False)
    begun.clear()
    early = threading.Thread(target=read, args=(True,))
    early.start()
    begun.wait(HANG_SECONDS)
    looked = itertools.count()
    last = threading.Thread(target=read, args=(False,))

    def stop() -> bool:
        match next(looked):
            case 1:
                go.set()  # this one took its figures before the end: it does not count
                early.join(HANG_SECONDS)
            case 3:
                last.start()
        return False

    assert scrapes.linger(stop)
    last.join(HANG_SECONDS)
    assert next(looked) >= 4


def test_not_longer_than_given() -> None:
    times = itertools.count(0.0, 1.0)
    scrapes = Scrapes(lambda: next(times))
    with scrapes.one():
        pass
    assert not scrapes.linger(lambda: False, longest_seconds=5.0)
    assert next(times) <= 12.0


def test_not_after_ctrl_c() -> None:
    scrapes = Scrapes()
    with scrapes.one():
        pass
    assert not scrapes.linger(lambda: True)


def test_a_reading_that_broke_off_is_none() -> None:
    scrapes = Scrapes()
    with pytest.raises(BrokenPipeError), scrapes.one():
        raise BrokenPipeError
    assert not scrapes.watched
