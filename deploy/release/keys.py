"""The names of what lies on a node: hashes of what is in it, so that an equal name means that nothing need move."""

import hashlib
import json
import re

from deploy.release import requirements as required
from deploy.release.target import Target

DIGITS = 16
"""Hexadecimal digits of a key: 64 bits."""
_KEY = re.compile(rf"[0-9a-f]{{{DIGITS}}}")


def environment_key(requirements: str, python: str = "3.11", machine: str = "aarch64") -> str:
    """Key of the environment that the list `requirements` makes on a node with this Python and machine.

    Only the lines that count there count: another NumPy for Python 3.13 leaves the nodes with 3.11 alone.
    """
    target = Target(python, machine)
    described = [target.short_python, machine, required.text_for(requirements, target, installer=True)]
    return hashlib.sha256(json.dumps(described).encode()).hexdigest()[:DIGITS]


def code_key(wheel: bytes) -> str:
    """Key of the code wheel with these bytes."""
    return hashlib.sha256(wheel).hexdigest()[:DIGITS]


def checked(key: str) -> str:
    """`key`, if it is one: it goes into paths that root removes. Raises ValueError."""
    if not _KEY.fullmatch(key):
        raise ValueError(f"expected a key of {DIGITS} hexadecimal digits, got {key!r}")
    return key
