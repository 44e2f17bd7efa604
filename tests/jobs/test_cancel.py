"""Ctrl-C, once and twice."""

import os
import signal
import subprocess
import sys

import pytest

from cluster.jobs.cancel import Cancel, Cancelled
from tests.jobs.cluster import PROJECT

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
        with pytest.raises(Cancelled):
            cancel.check()
    assert signal.getsignal(number) is before


def test_the_second_one_ends_the_process() -> None:
    child = subprocess.run([sys.executable, "-c", TWICE], cwd=PROJECT, capture_output=True, text=True, check=False)
    assert child.returncode == 130
    assert child.stdout == "asked True\n"
