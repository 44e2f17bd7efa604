"""How far a sweep's runs are: the lines that a run prints, and the time that is left. Pure."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from cluster.pages.files import OVER, RunRecord
from core.ground.files import parsed_json

WORD = "pscluster_run"
"""Begins each line that a run says to its sweep."""
LONGEST_LINE = 4096
LARGEST = 10**12
LONGEST_ERROR = 2000
MOST_FIGURES = 100
LONGEST_FIGURE_NAME = 100
LARGEST_FIGURE = 1e100


@dataclass(frozen=True)
class Advance:
    """Updates that are done, of how many, in this stage of a run."""

    stage: str
    done: int
    total: int


@dataclass(frozen=True)
class Epoch:
    """A finished epoch and the figures of its validation; empty where nothing was held out."""

    epoch: int
    validation: Mapping[str, float]


class MemberOutput:
    """Cuts what a run prints into lines: those for the sweep as messages, others as they are."""

    def __init__(self) -> None:
        self._rest = b""
        self.last = ""
        """The last line of other words: what a failed process said."""

    def add(self, piece: bytes) -> list[Advance | Epoch]:
        """The messages in what came."""
        *lines, self._rest = (self._rest + piece).split(b"\n")
        self._rest = self._rest[-LONGEST_LINE:]
        messages = []
        for line in lines:
            message = message_of(line[:LONGEST_LINE])
            if message is not None:
                messages.append(message)
            elif text := line[:LONGEST_LINE].decode(errors="replace").strip():
                self.last = text
        return messages

    def close(self) -> None:
        """The process has ended: what is left is a line too."""
        if text := self._rest.decode(errors="replace").strip():
            self.last = text
        self._rest = b""


def message_of(line: bytes) -> Advance | Epoch | None:
    """The message in one line; None for any other text."""
    if WORD.encode() not in line:
        return None
    try:
        content: Any = parsed_json(line)[WORD]
        if "epoch" in content:
            validation = figures_of_node(content["validation"])
            figures = {key: float(value) for key, value in validation.items() if value is not None}
            return Epoch(_count(content["epoch"]), figures)
        return Advance(
            str(content["stage"])[:80], _count(content["done"]), _count(content["total"])
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def figures_of_node(figures: Any) -> dict[str, float | None]:
    """Return a node's figures of a run: printable names, numbers that JSON has a word for.

    Others are left out: the sweep's files and pages could not hold them.
    """
    if not isinstance(figures, dict):
        return {}
    plain = (
        (name, value)
        for name, value in figures.items()
        if str(name).isprintable()
        and len(name) <= LONGEST_FIGURE_NAME
        and (value is None or (type(value) in (int, float) and abs(value) <= LARGEST_FIGURE))
    )
    return dict(islice(plain, MOST_FIGURES))


def _count(value: object) -> int:
    if type(value) is not int or not 0 <= value <= LARGEST:
        raise ValueError("expected a count")
    return value


def seconds_left(
    runs: Sequence[RunRecord],
    nodes: int,
    elapsed: Mapping[str, tuple[float, Advance | None]],
    to_come: int = 0,
) -> float | None:
    """Return the time until all runs are over, at the speed so far; None while nothing is known.

    `elapsed` has the seconds of each running run since it got its node, and how far it is.
    `to_come` runs are not drawn yet. A run that waits takes the mean of the finished ones, or of
    what the running ones will have taken.
    """
    finished = [run.seconds for run in runs if run.state == "finished"]
    whole = {}
    for name, (seconds, progress) in elapsed.items():
        if progress is not None and progress.done and progress.total:
            whole[name] = seconds * progress.total / progress.done
    if finished:
        usual = statistics.fmean(finished)
    elif whole:
        usual = statistics.fmean(whole.values())
    else:
        usual = None
    if usual is None:
        if any(run.state not in OVER for run in runs) or to_come:
            return None
        return 0.0
    waiting = sum(run.state == "waiting" for run in runs) + to_come
    remaining_seconds = [
        max(0.0, whole.get(name, usual) - seconds) for name, (seconds, _) in elapsed.items()
    ]
    work = waiting * usual + sum(remaining_seconds)
    return max([work / max(1, nodes), *remaining_seconds])
