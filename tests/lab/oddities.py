"""Nodes with faults, and how each fault is emulated.

Callers of a wrapped command see the fault. A program that asks the kernel itself still gets the
host's answer, except the system's Python, which a start file patches.
"""

import enum

from tests.lab.card import Card


class Oddity(enum.Enum):
    """The faults that a node may have from its first boot on."""

    FULL_CARD = "fill"
    WITHOUT_PYTHON = "without-python"
    WRONG_ARCHITECTURE = "wrong-architecture"
    WRONG_CLOCK = "wrong-clock"


CLOCK_OFFSET_SECONDS = -26 * 3600

WRAPPERS = {
    Oddity.WRONG_ARCHITECTURE: {
        "uname": "uname.real \"$@\" | sed 's/x86_64/armv7l/g; s/aarch64/armv7l/g'",
        "arch": "echo armv7l",
        "getconf": 'case "$*" in LONG_BIT) echo 32 ;; *) exec getconf.real "$@" ;; esac',
        "dpkg": 'case "$*" in --print-architecture) echo armhf ;; *) exec dpkg.real "$@" ;; esac',
    },
    Oddity.WRONG_CLOCK: {
        # Only the present time is wrong; `date` with a given time is right.
        "date": (
            'case " $* " in *" -d"* | *" --date"* | *" -r"* | *" -f"* | *" -s"*) exec date.real'
            f' "$@" ;; esac\nexec date.real -d "{CLOCK_OFFSET_SECONDS} seconds" "$@"'
        ),
    },
}
"""Shell scripts by the command of /usr/bin that they wrap; the command itself is NAME.real."""

PYTHON = {
    Oddity.WRONG_ARCHITECTURE: (
        """\
import os
import struct
import sys

_uname, _calcsize = os.uname, struct.calcsize
os.uname = lambda: os.uname_result((*_uname()[:4], "armv7l"))
struct.calcsize = lambda form: 4 if form == "P" else _calcsize(form)
sys.maxsize = 2**31 - 1
"""
    ),
    Oddity.WRONG_CLOCK: (
        f"""\
import time

_time, _time_ns = time.time, time.time_ns
time.time = lambda: _time() + {CLOCK_OFFSET_SECONDS}
time.time_ns = lambda: _time_ns() + {CLOCK_OFFSET_SECONDS} * 10**9
"""
    ),
}
"""The start file of every Python of the system."""


def apply(oddity: Oddity, card: Card) -> None:
    """Changes the card of a node before its first boot. A full card is full from the beginning."""
    if oddity is Oddity.WITHOUT_PYTHON:
        card.write("usr/bin/python3.11", "", mode=0o644)
    if oddity is Oddity.WRONG_CLOCK:
        card.copy(
            "usr/bin/timedatectl.real", "timedatectl"
        )  # which reports an unsynchronized clock
    for command, script in WRAPPERS.get(oddity, {}).items():
        card.copy(f"usr/bin/{command}", f"{command}.real")
        card.write(f"usr/bin/{command}", f"#!/bin/sh\n{script}\n", mode=0o755)
    if oddity in PYTHON:
        card.write("usr/lib/python3/dist-packages/lab_oddity.py", PYTHON[oddity])
        card.write("usr/lib/python3/dist-packages/lab_oddity.pth", "import lab_oddity\n")
