"""One label from the last windows: `votes` of `of` must agree."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from recognise.softmax import softmax
from recognise.stream.events import Changed, Label
from recognise.stream.settings import Settings
from recognise.stream.stream import Window


@dataclass(frozen=True)
class _Vote:
    label: int | None
    probabilities: NDArray[np.float64]
    centre: float
    number: int


class Smoothing:
    """State: the last `of` votes, and the label that was said last."""

    def __init__(self, settings: Settings, labels: Sequence[str]) -> None:
        self._settings, self._labels = settings, tuple(labels)
        self._votes: deque[_Vote] = deque(maxlen=settings.of)
        self._said: str | None = None
        self._number = 0

    def take(self, window: Window, logits: NDArray[np.float32]) -> tuple[Label | Changed, ...]:
        """The label after this window, and the change before it where there is one.

        logits: (classes,), of this window. A window whose logits are not finite votes for no label.
        """
        if window.begins:
            self._votes.clear()
            self._said = None
        settings = self._settings
        chances = probabilities(logits)
        best = int(np.argmax(chances))
        sure = bool(np.isfinite(logits).all()) and chances[best] >= settings.least_confidence
        self._votes.append(_Vote(best if sure else None, chances, window.centre, self._number))
        self._number += 1
        half = settings.window_steps // 2
        agreeing = self._agreeing()
        if not agreeing:
            return (Label(window.at, None, float(chances[best]), half),)
        decided, first = self._labels[agreeing[0].label or 0], agreeing[0]
        confidence = float(np.mean([vote.probabilities[first.label] for vote in agreeing]))
        latency = (self._number - 1 - first.number) * settings.hop + half
        label = Label(window.at, decided, confidence, latency)
        if decided == self._said:
            return (label,)
        changed = Changed(self._said, decided, first.centre)
        self._said = decided
        return (changed, label)

    def _agreeing(self) -> list[_Vote]:
        """The newest votes for the label that has enough, as many as are needed, oldest first; empty without one."""
        for label in {vote.label for vote in self._votes} - {None}:
            voting = [vote for vote in self._votes if vote.label == label]
            if len(voting) >= self._settings.votes:
                return voting[-self._settings.votes :]
        return []


def probabilities(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    """Softmax of (classes,), float64; zeros where a logit is not finite."""
    wide = logits.astype(np.float64)
    if not np.isfinite(wide).all():
        return np.zeros(len(wide))
    return softmax(wide)
