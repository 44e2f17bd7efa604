"""Command lines in messages, whole enough to be copied."""

import shlex
from pathlib import Path


def command(words: str, inventory: Path) -> str:
    """`fab deploy stop --inventory pi.yaml`: the words after `fab`, on the inventory as this call found it."""
    return f"fab {words} --inventory {shlex.quote(str(inventory))}"
