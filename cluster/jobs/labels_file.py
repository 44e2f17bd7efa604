"""`labels.csv` of a run: a row a window in the order of time, and its totals."""

import csv
import hashlib
import io
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cluster.jobs.band import Band
from core.atomic_write import atomic_stream
from recognise.batches import ResultRow

LABELS = "labels.csv"
COLUMNS = ("time", "label", "confidence", "note")


@dataclass
class Total:
    """The windows of one label, and the sum of their confidences."""

    windows: int = 0
    confidence: float = 0.0


class LabelsFile:
    """Writes batches by their numbers, from 0.

    The file is there at the end of the block, complete, or not at all.
    """

    def __init__(self, path: Path, labels: Sequence[str], hop_seconds: float) -> None:
        self._path, self._labels = path, tuple(labels)
        self.totals = [Total() for _ in labels]
        self.band = Band(len(labels), hop_seconds)
        self._hop_seconds = hop_seconds
        self.windows = self.unlabelled = 0
        self._waiting: dict[int, tuple[Sequence[ResultRow], NDArray[np.float32]]] = {}
        self._next = 0
        self._digest = hashlib.sha256()
        self._stack = ExitStack()

    def __enter__(self) -> "LabelsFile":
        """Raises ClusterError if the folder does not take it."""
        self._stream = self._stack.enter_context(atomic_stream(self._path))
        self._write([COLUMNS])
        return self

    def __exit__(self, *problem: Any) -> None:
        self._stack.__exit__(*problem)

    @property
    def sha256(self) -> str:
        """The digest of what is written so far."""
        return self._digest.hexdigest()

    def add(self, number: int, rows: Sequence[ResultRow], logits: NDArray[np.float32]) -> None:
        """The rows of a batch, and logits (at least windows, classes) of its windows."""
        self._waiting[number] = (rows, logits)
        while self._next in self._waiting:
            self._write(self._cells(*self._waiting.pop(self._next)))
            self._next += 1

    def describe_totals(self) -> list[dict[str, Any]]:
        """The entry `totals` of a result."""
        return [
            {
                "label": label,
                "windows": total.windows,
                "share": total.windows / max(1, self.windows),
                "seconds": total.windows * self._hop_seconds,
                "confidence": total.confidence / total.windows if total.windows else None,
            }
            for label, total in zip(self._labels, self.totals, strict=True)
        ]

    def describe_band(self) -> list[dict[str, Any]]:
        """The entry `band` of a result."""
        return [
            {
                "label": self._labels[span.label],
                "begin_seconds": span.begin,
                "end_seconds": span.end,
            }
            for span in self.band.spans()
        ]

    def _cells(
        self, rows: Sequence[ResultRow], logits: NDArray[np.float32]
    ) -> Sequence[Sequence[str]]:
        labels, confidences = best_of(logits)
        cells = list[Sequence[str]]()
        window = 0
        for row in rows:
            time = f"{row.time:.3f}"
            if row.note:
                cells.append((time, "", "", row.note))
                continue
            label = int(labels[window])
            confidence = float(confidences[window])
            window += 1
            self.windows += 1
            if label < 0:
                self.unlabelled += 1
                cells.append((time, "", "", "the answer is not finite"))
                continue
            self.totals[label].windows += 1
            self.totals[label].confidence += confidence
            self.band.add(row.time, label)
            cells.append((time, _safe(self._labels[label]), f"{confidence:.4f}", ""))
        return cells

    def _write(self, rows: Sequence[Sequence[str]]) -> None:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(rows)
        content = text.getvalue().encode()
        self._digest.update(content)
        self._stream.write(content)


def best_of(logits: NDArray[np.float32]) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """Return the likeliest class of each window, (n,), and its softmax probability, (n,).

    The class is -1 where a logit is not finite.
    """
    wide = logits.astype(np.float64)
    finite = np.isfinite(wide).all(axis=1)
    wide[~finite] = 0.0
    best = wide.argmax(axis=1)
    powers = np.exp(wide - wide.max(axis=1, keepdims=True))
    return np.where(finite, best, -1), powers.max(axis=1) / powers.sum(axis=1)


def _safe(label: str) -> str:
    """A spreadsheet takes a text that begins so for a formula."""
    if label.startswith(("=", "+", "@", "-")) and len(label) > 1:
        return f"'{label}"
    return label
