"""Ctrl-C, once and twice."""

import os
import signal
import subprocess
import sys
import threading

import pytest

from cluster.jobs.cancel import Cancel, JobCancelled
from tests.ran import ran

TWICE = """
import os, signal
from cluster.jobs.cancel import Cancel
with Cancel() as cancel:
    os.kill(os.getpid(), signal.SIGINT)
    print("asked", cancel.asked, flush=True)
    os.kill(os.getpid(), signal.SIGINT)
    print("still here", flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_heard_and_the_handlers_come_back(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with Cancel() as cancel:
        cancel.check()
        assert not cancel.asked
        os.kill(os.getpid(), number)
        assert cancel.asked
        assert not cancel.overdue()
        with pytest.raises(JobCancelled):
            cancel.check()
    assert signal.getsignal(number) is before


def test_a_persons_own_code_is_interrupted_in_the_midst_of_it() -> None:
    later = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    with Cancel() as cancel:
        later.start()
        with pytest.raises(JobCancelled), cancel.at_once():
            threading.Event().wait()
        with pytest.raises(JobCancelled), cancel.at_once():
            pytest.fail("begun although a person asked to stop")
    with Cancel() as cancel, pytest.raises(KeyboardInterrupt), cancel.at_once():
        raise KeyboardInterrupt  # nobody asked


def test_the_second_one_ends_the_process() -> None:
    assert ran(sys.executable, "-c", TWICE, code=130).stdout == "asked True\n"


class InterruptedAsItIsRead(Cancel):
    """Hears a signal right after it was asked whether there was one."""

    @property
    def asked(self) -> bool:
        before = super().asked
        os.kill(os.getpid(), signal.SIGINT)
        return before


def test_a_request_that_comes_as_a_child_begins_to_get_them_reaches_it() -> None:
    child = subprocess.Popen(["sleep", "60"])
    with InterruptedAsItIsRead() as cancel, cancel.passed_on_to(child.pid):
        assert child.wait() == -signal.SIGINT
