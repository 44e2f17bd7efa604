"""Command lines in messages, whole enough to be copied."""

from pathlib import Path

from deploy.common.command_line import quoted


def command(words: str, inventory: Path) -> str:
    """`fab deploy stop --inventory pi.yaml`: the words after `fab`, on the inventory as this call found it."""
    return f"fab {words} --inventory {quoted(inventory)}"
