"""Votes of the last windows: when a label is said, when a change is, and how late it is."""

from dataclasses import astuple
from itertools import groupby

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recognise.stream import Changed, Label, Settings, Smoothing, Window, as_json

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


def test_a_label_needs_its_votes_and_a_change_is_at_the_first_window_that_voted_for_it() -> None:
    labels, changes = said([0, 0, 1, 0, 1, 1, 1])
    assert [event.label for event in labels] == [None] + ["WALKING"] * 3 + ["SITTING"] * 3
    assert [astuple(change) for change in changes] == [
        (None, "WALKING", pytest.approx(1.26)),
        ("WALKING", "SITTING", pytest.approx(1.26 + 2 * 1.28)),
    ]


@pytest.mark.parametrize(
    ("votes", "asked", "latencies"),
    [
        ([0] * 6, USUAL, [64, 128, 128, 128, 128, 128]),
        ([0, 1, 2], SINGLE, [64, 64, 64]),
    ],
)
def test_latency_is_from_the_centre_of_the_oldest_window_that_decides(
    votes: list[int | None], asked: Settings, latencies: list[int]
) -> None:
    assert [event.latency_samples for event in said(votes, asked)[0]] == latencies


def test_unsure_windows_and_logits_that_are_not_finite_decide_nothing() -> None:
    unsure, _ = said([0, 0, 0], Settings(least_confidence=0.99))
    assert [event.label for event in unsure] == [None] * 3
    broken, _ = said([None, None, None])
    assert [(event.label, event.confidence) for event in broken] == [(None, 0)] * 3


def test_no_vote_from_before_a_break_counts() -> None:
    labels, _ = said([0, 0, 1, 1], anew=3)
    assert [event.label for event in labels] == [None, "WALKING", "WALKING", None]
    _, changes = said([0, 0, 0, 0], anew=2)
    assert [(event.before, event.after) for event in changes] == [(None, "WALKING")] * 2


@given(
    st.lists(st.sampled_from([None, 0, 1, 2]), max_size=40),
    st.sampled_from([(1, 1), (2, 3), (3, 5), (5, 5)]),
)
def test_a_label_always_has_its_votes_and_every_change_is_said(
    votes: list[int | None], rule: tuple[int, int]
) -> None:
    needed, of = rule
    labels, changes = said(votes, Settings(votes=needed, of=of))
    expected: list[str | None] = []
    for number in range(len(votes)):
        recent = votes[max(0, number + 1 - of) : number + 1]
        enough = [name for index, name in enumerate(LABELS) if recent.count(index) >= needed]
        expected.append(enough[0] if enough else None)
    assert [event.label for event in labels] == expected
    # The labels that were said, each once, are what the changes lead through.
    through = [name for name, _ in groupby(filter(None, expected))]
    assert [event.after for event in changes] == through
    assert [event.before for event in changes] == [None, *through][: len(through)]


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
