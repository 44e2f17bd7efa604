"""What is kept of long runs: samples, estimates, epochs, spans and lines of the event log."""

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from core.status.events import EpochEnded, Noted, Stamped
from core.status.thinning import (
    AGAIN_SECONDS,
    FIRST_LINES,
    LATEST_LINES,
    MOST_EPOCHS,
    MOST_SAMPLES,
    MOST_SPANS,
    Estimates,
    Samples,
    Spans,
    StampedEpoch,
    halved,
    with_epoch,
    with_line,
)
from core.status.view import PiPoint, SampleView


def sample(seconds: float, rate: float = 10.0, loss: float | None = 1.0) -> SampleView:
    return SampleView(seconds, loss, rate, None, {"worker:0": rate}, 1)


def epoch(number: int, stage: str = "train", loss: float = 1.0) -> StampedEpoch:
    return float(number), EpochEnded(stage, number, loss, 0.5, 0.1, 100.0, 0.0, None)


@settings(deadline=None)
@given(st.integers(1, 4000))
def test_samples_of_a_run_of_any_length_fit_and_do_not_lie(count: int) -> None:
    samples = Samples()
    second = 0.0
    for _ in range(count):
        samples = samples.with_one(sample(second, rate=10.0 + second % 2))
        second += samples.interval_seconds
    assert len(samples.series) <= MOST_SAMPLES
    times = [found.seconds for found in samples.series]
    assert times == sorted(times)
    assert second - times[-1] <= samples.interval_seconds
    assert all(10.0 <= found.windows_per_second <= 11.0 for found in samples.series)
    assert samples.interval_seconds <= max(1.0, second / (MOST_SAMPLES // 2))


def test_neighbours_become_one_with_their_means() -> None:
    old = sample(1.0)
    first = sample(2.0, 10.0, None)
    second = sample(3.0, 30.0, 2.0)
    kept = halved([old, first, second])
    assert kept == (old, SampleView(3.0, 2.0, 20.0, None, {"worker:0": 20.0}, 1))


def test_estimates_are_kept_so_that_a_logarithmic_axis_shows_them() -> None:
    estimates = Estimates()
    for chunk in range(1, 100_001):
        estimates = estimates.with_one(PiPoint(chunk * 1000, float(chunk), 3.1, 0.1))
    points = estimates.points()
    assert len(points) < 700
    assert points[0].samples == 1000
    assert points[-1].samples == 100_000_000
    samples = [point.samples for point in points]
    assert samples == sorted(set(samples))
    assert sum(count < 1_000_000 for count in samples) > 100
    assert sum(count > 10_000_000 for count in samples) > 100


def test_epochs_that_are_trained_again_replace_those_that_were_lost() -> None:
    found: tuple[StampedEpoch, ...] = ()
    for number in (1, 2, 3):
        found = with_epoch(found, epoch(number))
    found = with_epoch(found, epoch(2, loss=0.5))
    assert found == (epoch(1), epoch(2, loss=0.5))
    for number in (1, 2):
        found = with_epoch(found, epoch(number, "refit"))
    assert found == (epoch(1), epoch(2, loss=0.5), epoch(1, "refit"), epoch(2, "refit"))


def test_many_epochs_are_thinned_and_the_newest_stays() -> None:
    epochs: tuple[StampedEpoch, ...] = ()
    for number in range(1, 3 * MOST_EPOCHS):
        epochs = with_epoch(epochs, epoch(number))
        assert epochs[-1][1].epoch == number
        assert len(epochs) <= MOST_EPOCHS


@given(
    st.lists(
        st.tuples(st.sampled_from(["working", "away", "suspected"]), st.floats(0, 10)), max_size=300
    )
)
def test_spans_follow_one_another_without_gap_and_are_bounded(
    steps: list[tuple[str, float]],
) -> None:
    spans = Spans()
    now = 0.0
    for state, length in steps:
        spans = spans.entered("worker:0", state, now)
        now += length
    found = spans.all()
    assert len(found) <= MOST_SPANS + 1
    if found:
        assert found[0].begin_seconds == 0.0
        assert found[-1].end_seconds is None
        assert all(before.end_seconds == after.begin_seconds for before, after in pairwise(found))
    assert all(span.end_seconds is not None for span in spans.ended(now).all())


def test_the_same_state_again_is_one_span() -> None:
    spans = Spans()
    for state, seconds in (("working", 0.0), ("working", 5.0), ("away", 7.0)):
        spans = spans.entered("worker:0", state, seconds)
    assert [(span.state, span.begin_seconds, span.end_seconds) for span in spans.all()] == [
        ("working", 0.0, 7.0),
        ("away", 7.0, None),
    ]


def lines_of(found: list[tuple[float, str]]) -> tuple[Stamped, ...]:
    lines: tuple[Stamped, ...] = ()
    for seconds, text in found:
        lines = with_line(lines, (seconds, Noted("worker", text)))
    return lines


def test_the_event_log_keeps_its_beginning_and_its_end() -> None:
    lines = lines_of([(float(number), f"line {number}") for number in range(2000)])
    kept = [event.text for _, event in lines if isinstance(event, Noted)]
    first = [f"line {number}" for number in range(FIRST_LINES)]
    assert kept == first + [f"line {number}" for number in range(2000 - LATEST_LINES, 2000)]


def test_a_line_that_is_repeated_is_kept_once_in_a_while() -> None:
    assert len(lines_of([(float(second), "hot") for second in range(30)])) == 30 // AGAIN_SECONDS
    assert len(lines_of([(1.0, "hot"), (2.0, "cold"), (3.0, "hot")])) == 2
