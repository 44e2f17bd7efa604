"""Votes of the last windows: when a label is said, when a change is, and how late it is."""

import numpy as np
import pytest

from recognise.stream import Changed, Label, Settings, Smoothing, Window, as_json
from tests.tables import table

LABELS = ("WALKING", "SITTING", "LAYING")
USUAL = Settings()
SINGLE = Settings(votes=1, of=1)
CHANNELS = np.zeros((128, 9), np.float32)


def logits(label: int | None) -> np.ndarray:
    if label is None:
        return np.full(3, np.nan, np.float32)
    chosen: np.ndarray = 4.0 * np.eye(3, dtype=np.float32)[label]
    return chosen


def said(
    given_votes: list[int | None], asked: Settings = USUAL, anew: int = 0
) -> tuple[list[Label], list[Changed]]:
    """Labels and changes; the windows restart with number `anew`."""
    smoothing = Smoothing(asked, LABELS)
    found: list[Label | Changed] = []
    for number, vote in enumerate(given_votes):
        at = 2.54 + number * 1.28
        window = Window(at, at - 1.28, CHANNELS, number in (0, anew))
        found += smoothing.take(window, logits(vote))
    labels = [event for event in found if isinstance(event, Label)]
    return labels, [event for event in found if isinstance(event, Changed)]


CASES = table("recognise/smoothing")


@pytest.mark.parametrize("name", CASES)
def test_what_is_said(name: str) -> None:
    case = CASES[name]
    labels, changes = said(case["votes"], Settings(**case.get("asked", {})), case.get("anew", 0))
    found = {
        "labels": [event.label for event in labels],
        "latencies": [event.latency_samples for event in labels],
        "confidences": [event.confidence for event in labels],
        "changes": [[event.before, event.after, round(event.at, 6)] for event in changes],
    }
    expected = {key: case[key] for key in found if key in case}
    assert {key: found[key] for key in expected} == expected


def test_events_as_json() -> None:
    (label,), (changed,) = said([1], SINGLE)
    at = pytest.approx(1.26)
    assert as_json(changed) == {"event": "changed", "from": None, "to": "SITTING", "at": at}
    assert as_json(label) == {
        "event": "label",
        "label": "SITTING",
        "at": pytest.approx(2.54),
        "latency_samples": 64,
        "confidence": pytest.approx(np.exp(4) / (np.exp(4) + 2)),
    }
