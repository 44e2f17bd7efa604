"""Nodes with faults, and how each fault is emulated.

Callers of a wrapped command see the fault. A program that asks the kernel itself still gets the
host's answer, except the system's Python, which a start file patches.
"""

import enum

from tests.lab.card import Card
from tests.tables import table


class Oddity(enum.Enum):
    """The faults that a node may have from its first boot on."""

    FULL_CARD = "fill"
    WITHOUT_PYTHON = "without-python"
    WRONG_ARCHITECTURE = "wrong-architecture"
    WRONG_CLOCK = "wrong-clock"


def apply(oddity: Oddity, card: Card) -> None:
    """Changes the card of a node before its first boot. A full card is full from the beginning."""
    if oddity is Oddity.WITHOUT_PYTHON:
        card.write("usr/bin/python3.11", "", mode=0o644)
    if oddity is Oddity.WRONG_CLOCK:
        card.copy(
            "usr/bin/timedatectl.real", "timedatectl"
        )  # which reports an unsynchronized clock
    fault = table("lab/oddities").get(oddity.value, {"commands": {}})
    for command, script in fault["commands"].items():
        card.copy(f"usr/bin/{command}", f"{command}.real")
        card.write(f"usr/bin/{command}", f"#!/bin/sh\n{script}\n", mode=0o755)
    if "python" in fault:
        card.write("usr/lib/python3/dist-packages/lab_oddity.py", fault["python"])
        card.write("usr/lib/python3/dist-packages/lab_oddity.pth", "import lab_oddity\n")
