"""A line of a node's journal. Pure."""

import json
from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class JournalLine:
    """One line; `seconds` since the epoch by the node's own clock. `cursor`: its place, for `--after-cursor`."""

    seconds: float
    node: str
    unit: str
    text: str
    cursor: str = ""


def parse_line(node: str, text: str) -> JournalLine | None:
    """A line of `journalctl -o json`; None for what is none."""
    try:
        entry = json.loads(text)
        message = entry["MESSAGE"]
        seconds = int(entry["__REALTIME_TIMESTAMP"]) / 1e6
        cursor = str(entry.get("__CURSOR") or "")
        unit = str(entry.get("_SYSTEMD_UNIT") or entry.get("UNIT") or "")
        if unit == "init.scope":
            unit = str(entry.get("UNIT", unit))
        if message is None:
            message = "(a line of more than 4096 bytes)"
        elif isinstance(message, list):  # bytes that are no UTF-8
            message = bytes(message).decode("utf-8", errors="replace")
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    return JournalLine(seconds, node, unit.removeprefix("pscluster-").removesuffix(".service"), str(message), cursor)
