"""Lines of the journals of several nodes, in one order. Pure."""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class JournalLine:
    """One line; `seconds` since the epoch by the node's own clock."""

    seconds: float
    node: str
    unit: str
    text: str


def parse_line(node: str, text: str) -> JournalLine | None:
    """A line of `journalctl -o json`; None for what is none."""
    try:
        entry = json.loads(text)
        message = entry["MESSAGE"]
        seconds = int(entry["__REALTIME_TIMESTAMP"]) / 1e6
        unit = str(entry.get("_SYSTEMD_UNIT") or entry.get("UNIT") or "")
        if unit == "init.scope":
            unit = str(entry.get("UNIT", unit))
        if message is None:
            message = "(a line of more than 4096 bytes)"
        elif isinstance(message, list):  # bytes that are no UTF-8
            message = bytes(message).decode("utf-8", errors="replace")
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    return JournalLine(seconds, node, unit.removeprefix("pscluster-").removesuffix(".service"), str(message))


class Journal:
    """Renders lines in columns as wide as the names need."""

    def __init__(self, nodes: Sequence[str]) -> None:
        self._width = max(map(len, nodes), default=0)

    def render(self, line: JournalLine) -> str:
        """`22:45:01.123 rpi03 worker-2     | text`."""
        clock = time.strftime("%H:%M:%S", time.localtime(line.seconds)) + f".{int(line.seconds % 1 * 1000):03d}"
        return f"{clock} {line.node:<{self._width}} {line.unit:<14} | {line.text}"
