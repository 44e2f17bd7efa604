"""One label from the last windows: `votes` of `of` must agree."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from core.data.intake import LARGEST_TIME_SECONDS
from core.exported.runtimes import softmax
from recognise.stream.parts import Part, UnpackedState, refuse
from recognise.stream.settings import Changed, Label, Settings
from recognise.stream.stream import Window


@dataclass(frozen=True)
class _Vote:
    label: int | None
    probability: float
    centre: float
    number: int


class Smoothing:
    """The last `of` votes, and the label that was given last."""

    def __init__(self, settings: Settings, labels: Sequence[str]) -> None:
        self._settings, self._labels = settings, tuple(labels)
        self._votes: deque[_Vote] = deque(maxlen=settings.of)
        self._label: str | None = None
        self._number = 0

    def state(self) -> dict[str, Part]:
        """Return what `resume` needs. The probability of a vote is that of its own label."""
        return {
            "said": self._label,
            "voted": [vote.label for vote in self._votes],
            "probabilities": np.array([vote.probability for vote in self._votes], np.float64),
            "centres": np.array([vote.centre for vote in self._votes], np.float64),
        }

    def resume(self, state: UnpackedState) -> None:
        """Continue where another one of the same settings and labels had this state.

        Raises UsageError.
        """
        label = state.value("said")
        votes = state.value("voted")
        if label is not None and label not in self._labels:
            raise refuse("said: a label of the model", label)
        if not isinstance(votes, list) or len(votes) > self._settings.of:
            raise refuse(f"at most {self._settings.of} votes", votes)
        for vote in votes:
            if vote is not None and (type(vote) is not int or not 0 <= vote < len(self._labels)):
                raise refuse(f"votes for one of {len(self._labels)} labels", vote)
        probabilities = state.array("probabilities", np.float64, (len(votes),), 1.0)
        centres = state.array("centres", np.float64, (len(votes),), LARGEST_TIME_SECONDS)
        of_each = zip(votes, probabilities.tolist(), centres.tolist(), strict=True)
        self._label, self._number = label, len(votes)  # of the numbers, the distances alone count
        self._votes.extend(_Vote(*vote, number) for number, vote in enumerate(of_each))

    def take(self, window: Window, logits: NDArray[np.float32]) -> tuple[Label | Changed, ...]:
        """Return the label after this window, and the change before it where there is one.

        logits: (classes,), of this window. A window whose logits are not finite votes for no label.
        """
        if window.begins:
            self._votes.clear()
            self._label = None
        settings = self._settings
        chances = probabilities(logits)
        best = int(np.argmax(chances))
        sure = bool(np.isfinite(logits).all()) and chances[best] >= settings.least_confidence
        self._votes.append(
            _Vote(best if sure else None, float(chances[best]), window.centre, self._number)
        )
        self._number += 1
        half = settings.window_steps // 2
        agreeing = self._agreeing()
        if not agreeing:
            return (Label(window.at, None, float(chances[best]), half),)
        decided = self._labels[agreeing[0].label or 0]
        first = agreeing[0]
        confidence = float(np.mean([vote.probability for vote in agreeing]))
        latency = (self._number - 1 - first.number) * settings.hop + half
        label = Label(window.at, decided, confidence, latency)
        if decided == self._label:
            return (label,)
        changed = Changed(self._label, decided, first.centre)
        self._label = decided
        return (changed, label)

    def _agreeing(self) -> list[_Vote]:
        """Return the newest votes for the label that has enough, oldest first; none without one."""
        for label in {vote.label for vote in self._votes} - {None}:
            voting = [vote for vote in self._votes if vote.label == label]
            if len(voting) >= self._settings.votes:
                return voting[-self._settings.votes :]
        return []


def probabilities(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the softmax of (classes,), float64; zeros where a logit is not finite."""
    wide = logits.astype(np.float64)
    if not np.isfinite(wide).all():
        return np.zeros(len(wide))
    return softmax(wide)
