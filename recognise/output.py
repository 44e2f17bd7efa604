"""The output of `python -m recognise`: one line an event, as CSV or JSON, and a summary."""

import csv
import io
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from core.logs import one_line, say

FIELDS = ("source", "event", "at", "label", "confidence", "latency_samples", "detail")
"""The columns of the CSV."""
_DIGITS = 6


Writer = Callable[[dict[str, Any]], None]
"""Prints one event, with `source` beside what `as_json` gives: `say_json`, or a row of CSV."""


class CsvWriter:
    """A writer of one row a line, after a row of names.

    The row of a change has the new label, and the old one as its detail.
    """

    def __init__(self) -> None:
        self._row(dict(zip(FIELDS, FIELDS, strict=True)))

    def __call__(self, event: Mapping[str, Any]) -> None:
        """Print one event."""
        row = dict(event)
        if row["event"] == "changed":
            row |= {"label": row["to"], "detail": f"from {row['from'] or 'nothing'}"}
        elif row["event"] == "fault":
            row |= {"event": row["kind"]}
        elif row["event"] == "window":
            row |= {"at": row["row"], "detail": f"expected {row['expected']}"}
        self._row(row)

    def _row(self, row: Mapping[str, Any]) -> None:
        text = io.StringIO()
        values = [row.get(name) for name in FIELDS]
        cells = [round(value, _DIGITS) if isinstance(value, float) else value for value in values]
        csv.writer(text, lineterminator="").writerow(
            "" if cell is None else _safe(cell) for cell in cells
        )
        say(one_line(text.getvalue()))


def _safe(cell: object) -> object:
    """Return the cell so that no spreadsheet takes it for a formula."""
    if isinstance(cell, str) and cell.startswith(("=", "+", "@", "-")) and len(cell) > 1:
        return f"'{cell}"
    return cell


@dataclass
class Summary:
    """Counts of one recording."""

    source: str
    windows: int = 0
    right: int | None = None
    milliseconds: float = 0.0
    labels: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    changes: int = 0
    bad_lines: int = 0
    details: dict[str, str] = field(default_factory=dict)
    """What the first fault of each kind said."""
    nothing: str = ""
    """Why there is no window at all."""

    def count(self, event: Mapping[str, Any]) -> None:
        """Add one event, as JSON has it."""
        match event["event"]:
            case "fault":
                self.faults[event["kind"]] += 1
                self.details.setdefault(event["kind"], event["detail"])
            case "changed":
                self.changes += 1
            case _:
                self.labels[event["label"] or "undecided"] += 1

    def remarks(self) -> Sequence[str]:
        """Return why windows have no label, for a person."""
        if self.nothing:
            return (self.nothing,)
        count = self.faults["implausible"]
        words = (
            f"{count:,} of {count + self.windows:,} windows got no label:"
            f" {self.details.get('implausible', '')}"
        )
        if count:
            return (f"warning: {self.source}: {words}",)
        return ()

    @property
    def worst(self) -> str:
        """The text of the first fault of the most frequent kind; empty without faults."""
        if self.faults:
            return self.details[self.faults.most_common(1)[0][0]]
        return ""

    def line(self) -> str:
        """Return the summary in one line."""
        total = sum(self.labels.values())
        shares = ", ".join(
            f"{label} {100 * count / total:.1f} %" for label, count in self.labels.most_common()
        )
        words = [f"{self.windows:,} windows" + (f" ({shares})" if shares else "")]
        if self.right is not None and self.windows:
            words.append(f"{self.right / self.windows:.4f} right")
        else:
            words.append(f"{self.changes:,} changes")
        words += [f"{count:,} {kind}" for kind, count in sorted(self.faults.items())]
        words += [f"{self.bad_lines:,} bad lines"] if self.bad_lines else []
        words += [f"{self.milliseconds / self.windows:.3f} ms a window"] if self.windows else []
        return f"{self.source}: {'; '.join(words)}"
