"""Votes of the last windows: when a label is said, when a change is, and how late it is."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recognise.stream import Changed, Label, Settings, Smoothing, Window, as_json

LABELS = ("WALKING", "SITTING", "LAYING")
CHANNELS = np.zeros((128, 9), np.float32)


def window(number: int, *, begins: bool = False) -> Window:
    at = 2.54 + number * 1.28
    return Window(at, at - 1.28, CHANNELS, begins or number == 0)


def logits(label: int | None) -> np.ndarray:
    return np.full(3, np.nan, np.float32) if label is None else 4.0 * np.eye(3, dtype=np.float32)[label]


def said(given_votes: list[int | None], anew: tuple[int, ...] = (), **asked: float) -> list[Label | Changed]:
    smoothing = Smoothing(Settings(**asked), LABELS)  # type: ignore[arg-type]
    found: list[Label | Changed] = []
    for number, vote in enumerate(given_votes):
        found += smoothing.take(window(number, begins=number in anew), logits(vote))
    return found


def test_a_label_needs_its_votes_and_a_single_other_window_changes_nothing() -> None:
    found = said([0, 0, 1, 0, 1, 1, 1])
    labels = [event.label for event in found if isinstance(event, Label)]
    assert labels == [None, "WALKING", "WALKING", "WALKING", "SITTING", "SITTING", "SITTING"]
    changes = [event for event in found if isinstance(event, Changed)]
    assert [(event.before, event.after) for event in changes] == [(None, "WALKING"), ("WALKING", "SITTING")]
    assert changes[0].at == pytest.approx(window(0).centre)
    assert changes[1].at == pytest.approx(window(2).centre), "the first window that voted for it"


def test_latency_is_from_the_centre_of_the_oldest_window_that_decides() -> None:
    steady = [event for event in said([0] * 6) if isinstance(event, Label)]
    assert [event.latency_samples for event in steady] == [64, 128, 128, 128, 128, 128]
    single = [event for event in said([0, 1, 2], votes=1, of=1) if isinstance(event, Label)]
    assert [event.latency_samples for event in single] == [64, 64, 64]


def test_nothing_is_decided_while_the_windows_disagree_or_are_unsure() -> None:
    assert [event.label for event in said([0, 1, 2, 0, 1, 2]) if isinstance(event, Label)] == [None] * 6
    unsure = said([0, 0, 0], least_confidence=0.99)
    assert all(isinstance(event, Label) and event.label is None for event in unsure)


def test_logits_that_are_not_finite_vote_for_nothing() -> None:
    found = said([None, None, None])
    assert all(isinstance(event, Label) and event.label is None and event.confidence == 0 for event in found)
    assert [event.label for event in said([0, None, 0]) if isinstance(event, Label)] == [None, None, "WALKING"]


def test_no_vote_from_before_a_break_counts() -> None:
    found = said([0, 0, 1, 1], anew=(3,))
    labels = [event.label for event in found if isinstance(event, Label)]
    assert labels == [None, "WALKING", "WALKING", None]
    again = [event for event in said([0, 0, 0, 0], anew=(2,)) if isinstance(event, Changed)]
    assert [(event.before, event.after) for event in again] == [(None, "WALKING")] * 2


@given(st.lists(st.sampled_from([None, 0, 1, 2]), max_size=40), st.sampled_from([(1, 1), (2, 3), (3, 5), (5, 5)]))
def test_a_label_always_has_its_votes_and_every_change_is_said(votes: list[int | None], rule: tuple[int, int]) -> None:
    needed, of = rule
    found = said(votes, votes=needed, of=of)
    labels = [event for event in found if isinstance(event, Label)]
    assert len(labels) == len(votes)
    current: str | None = None
    for event in found:
        if isinstance(event, Changed):
            assert event.before == current
            current = event.after
        elif event.label is not None:
            assert event.label == current
    for number, label in enumerate(labels):
        recent = votes[max(0, number + 1 - of) : number + 1]
        enough = [name for index, name in enumerate(LABELS) if recent.count(index) >= needed]
        assert label.label == (enough[0] if enough else None)


def test_events_as_json() -> None:
    changed, label = said([1], votes=1, of=1)
    assert as_json(changed) == {"event": "changed", "from": None, "to": "SITTING", "at": pytest.approx(1.26)}
    found = as_json(label)
    assert (found["event"], found["label"], found["latency_samples"]) == ("label", "SITTING", 64)
    assert found["confidence"] == pytest.approx(np.exp(4) / (np.exp(4) + 2))
