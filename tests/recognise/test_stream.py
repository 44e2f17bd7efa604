"""The stream core: the same bits from chunks of any length, the causal filters' windows, and a fault for bad input."""

import gc
import math
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.data.filters import CausalFilters, causal_channels, nine_channels
from cluster.errors import UsageError
from recognise.stream import Fault, Settings, Stream, Window
from recognise.stream.events import FAULTS
from recognise.stream.stream import MOST_READINGS
from tests.recognise.readings import Readings, heard, kinds, same, walk

SMALL = Settings(window_steps=16, hop=5)
SIZES = st.lists(st.integers(1, 70), min_size=1, max_size=6)


@st.composite
def troubled(draw: st.DrawFn) -> Readings:
    """A walk at any rate with jitter, pauses, jumps back, doubled, late and absurd readings."""
    count = draw(st.integers(1, 300))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    readings = walk(count, hz=draw(st.sampled_from([21.0, 49.7, 50.0, 100.0, 173.0])), begin=draw(st.floats(-1e9, 2e9)))
    times, values = readings.times.copy(), readings.acceleration.copy()
    times += random.uniform(0, draw(st.sampled_from([0.0, 0.004, 0.03])), count)
    for _ in range(draw(st.integers(0, 6))):
        row = draw(st.integers(0, count - 1))
        trouble = draw(st.sampled_from(["pause", "back", "doubled", "late", "nan", "huge", "time", "quiet"]))
        match trouble:
            case "pause":
                times[row:] += draw(st.floats(0.0, 5.0))
            case "back":
                times[row:] -= draw(st.floats(0.0, 5.0))
            case "doubled":
                times[row] = times[row - 1]
            case "late":
                times[row] -= 0.1
            case "nan":
                values[row, 1] = math.nan
            case "huge":
                values[row, 2] = draw(st.sampled_from([1e308, -math.inf, 2e4]))
            case "time":
                times[row] = draw(st.sampled_from([math.nan, math.inf, -math.inf, 1e300, 0.0]))
            case "quiet":
                values[row:] = 0.0
    return Readings(times, values, readings.rotation)


@settings(max_examples=150, deadline=None)
@given(troubled(), SIZES, st.sampled_from([None, 100.0, 173.0]))
def test_chunks_of_any_length_give_the_same_bits(readings: Readings, sizes: list[int], source_hz: float | None) -> None:
    asked = Settings(window_steps=16, hop=5, source_hz=source_hz)
    assert same(heard(asked, readings, sizes), heard(asked, readings, [len(readings)]))


@settings(max_examples=100, deadline=None)
@given(troubled())
def test_every_window_is_finite_and_every_fault_is_of_a_known_kind(readings: Readings) -> None:
    for item in heard(SMALL, readings, [50]):
        if isinstance(item, Fault):
            assert item.kind in FAULTS
            assert "\n" not in item.detail
        else:
            assert item.channels.shape == (16, 9)
            assert np.isfinite(item.channels).all()


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 400), st.integers(0, 2**32 - 1), SIZES, st.sampled_from([0.0, 1.7e9]))
def test_a_stream_equals_the_causal_filters_over_the_whole_recording(
    count: int, seed: int, sizes: list[int], begin: float
) -> None:
    readings = walk(count, seed=seed, begin=begin)
    whole = causal_channels(readings.acceleration, readings.rotation)
    windows = heard(SMALL, readings, sizes)
    assert kinds(windows) == ["window"] * len(range(0, count - 15, 5))
    for number, window in enumerate(windows):
        assert isinstance(window, Window)
        np.testing.assert_array_equal(window.channels, whole[number * 5 : number * 5 + 16])
        assert window.at == pytest.approx(readings.times[number * 5 + 15], abs=1e-6)
        assert window.begins == (number == 0)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 300), SIZES)
def test_the_causal_filters_keep_their_state(count: int, sizes: list[int]) -> None:
    readings = walk(count)
    filters, start, found = CausalFilters(), 0, [np.empty((0, 9), np.float32)]
    turn = 0
    while start < count:
        chunk = readings.rows(slice(start, start + sizes[turn % len(sizes)]))
        found.append(filters.push(chunk.acceleration, chunk.rotation))
        start, turn = start + len(chunk), turn + 1
    np.testing.assert_array_equal(np.concatenate(found), causal_channels(readings.acceleration, readings.rotation))


def test_a_causal_channel_is_that_of_two_way_filters_but_for_the_lag() -> None:
    readings = walk(3000)
    causal = causal_channels(readings.acceleration, readings.rotation)[200:-200]
    two_way = nine_channels(readings.acceleration, readings.rotation)[200:-200]
    assert not np.array_equal(causal, two_way)
    # Total acceleration lags by a step of the median and about one of the low-pass.
    lags = [float(np.corrcoef(causal[lag : lag + 2000, 6], two_way[:2000, 6])[0, 1]) for lag in range(5)]
    assert int(np.argmax(lags)) in (1, 2)
    assert max(lags) > 0.98


@pytest.mark.parametrize("hz", [47.0, 100.0, 200.0])
def test_readings_of_another_rate_become_the_models_rate(hz: float) -> None:
    def smooth(times: np.ndarray) -> np.ndarray:
        return np.stack([0.3 * np.sin(2 * np.pi * 1.5 * times), 0 * times, 1 + 0 * times], axis=1)

    times = np.arange(int(hz * 10)) / hz
    found = heard(SMALL, Readings(times, smooth(times), smooth(times)), [64])
    grid = np.arange(500) / 50.0
    expected = heard(SMALL, Readings(grid, smooth(grid), smooth(grid)), [64])
    assert abs(len(found) - len(expected)) <= 1
    for left, right in zip(found, expected, strict=False):
        assert isinstance(left, Window)
        assert isinstance(right, Window)
        assert left.at == pytest.approx(right.at)
        np.testing.assert_allclose(left.channels, right.channels, atol=0.01)


def test_noise_beyond_the_models_rate_does_not_fold_into_the_signal() -> None:
    times = np.arange(2000) / 200.0
    # 60 Hz at 200 Hz looks like 10 Hz at 50 Hz.
    hum = np.stack([0.5 * np.sin(2 * np.pi * 60.0 * times), 0 * times, 1 + 0 * times], axis=1)
    readings = Readings(times, hum, np.zeros_like(hum))

    def heard_hum(asked: Settings) -> float:
        window = heard(asked, readings, [100])[-1]
        assert isinstance(window, Window)
        return float(window.channels[:, 6].std())

    assert heard_hum(Settings(source_hz=200.0)) < 0.25 * heard_hum(Settings())


@pytest.mark.parametrize(
    ("row", "time", "kind"),
    [
        (40, 40 / 50 + 0.4, "gap"),
        (40, 39 / 50, "doubled"),
        (40, 38.5 / 50, "late"),
        (40, 39 / 50 - 0.3, "clock_jump"),
        (40, math.nan, "bad_value"),
        (40, math.inf, "bad_value"),
        (40, 1.7e12, "bad_value"),
    ],
)
def test_a_bad_time_gives_one_fault_of_its_kind_at_its_place(row: int, time: float, kind: str) -> None:
    readings = walk(80)
    times = readings.times.copy()
    # A pause or a jump stays; one wrong reading does not.
    times[row:] = times[row:] + (time - times[row]) if kind in ("gap", "clock_jump") else times[row:]
    times[row] = time
    found = heard(SMALL, Readings(times, readings.acceleration, readings.rotation), [80])
    faults = [item for item in found if isinstance(item, Fault)]
    assert [fault.kind for fault in faults] == [kind]
    anew = [item.begins for item in found if isinstance(item, Window)]
    assert sum(anew) == (2 if kind in ("gap", "clock_jump") else 1)
    if kind in ("gap", "clock_jump"):
        place = found.index(faults[0])
        after = found[place + 1]
        assert isinstance(after, Window)
        assert after.begins
        assert after.at >= times[row] + 15 / 50 - 1e-9, "no window spans the break"


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e5, -1e308])
@pytest.mark.parametrize("column", [0, 5])
def test_a_bad_value_is_dropped_with_a_fault(value: float, column: int) -> None:
    readings = walk(80)
    both = np.concatenate([readings.acceleration, readings.rotation], axis=1)
    both[40, column] = value
    found = heard(SMALL, Readings(readings.times, both[:, :3], both[:, 3:]), [80])
    assert [kind for kind in kinds(found) if kind != "window"] == ["bad_value"]
    assert kinds(found).count("window") == 13, "the reading between its neighbours is interpolated"


def test_a_wrong_unit_gets_no_window() -> None:
    readings = walk(200)
    wrong = Readings(readings.times, readings.acceleration * 9.80665, readings.rotation)
    found = heard(SMALL, wrong, [200])
    assert set(kinds(found)) == {"implausible"}
    right = heard(Settings(window_steps=16, hop=5, acceleration_unit="m/s2"), wrong, [200])
    assert set(kinds(right)) == {"window"}
    assert set(kinds(heard(Settings(acceleration_unit="m/s2"), walk(200), [200]))) == {"implausible"}


def test_units_are_converted() -> None:
    readings = walk(200)
    degrees = Readings(readings.times, readings.acceleration * 9.80665, np.degrees(readings.rotation))
    asked = Settings(acceleration_unit="m/s2", rotation_unit="deg/s")
    for left, right in zip(heard(asked, degrees, [33]), heard(Settings(), readings, [33]), strict=True):
        assert isinstance(left, Window)
        assert isinstance(right, Window)
        np.testing.assert_allclose(left.channels, right.channels, atol=1e-6)


def test_too_few_readings_get_no_window() -> None:
    assert set(kinds(heard(SMALL, walk(200, hz=12.0), [200]))) == {"sparse"}
    assert set(kinds(heard(SMALL, walk(200, hz=25.0), [200]))) == {"window"}


def test_memory_stays_that_of_one_window() -> None:
    stream, readings = Stream(Settings(hop=128)), walk(1000)

    def push(turn: int) -> None:
        stream.push(readings.times + turn * 20.0, readings.acceleration, readings.rotation)

    for turn in range(10):
        push(turn)
    tracemalloc.start()
    try:
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        for turn in range(10, 60):
            push(turn)
        gc.collect()  # SciPy leaves cycles, which Python removes when it has many
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    pushed = 50 * sum(each.nbytes for each in (readings.times, readings.acceleration, readings.rotation))
    assert grown < pushed / 25, f"{grown} bytes more after {pushed} bytes of readings"


def test_more_readings_than_a_call_may_bring_are_refused() -> None:
    readings = walk(MOST_READINGS + 1)
    with pytest.raises(UsageError, match="times: expected up to 4096 numbers"):
        Stream(Settings()).push(readings.times, readings.acceleration, readings.rotation)


@pytest.mark.parametrize("shape", [(3,), (2, 2), (1, 3), (3, 2)])
def test_readings_of_another_shape_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(UsageError, match=r"acceleration: expected \(2, 3\) numbers"):
        Stream(Settings()).push([0.0, 0.02], np.zeros(shape), np.zeros((2, 3)))


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"window_steps": 0}, "window_steps"),
        ({"hop": 5000}, "hop"),
        ({"votes": 4}, "votes"),
        ({"votes": 2, "of": 4}, "votes"),
        ({"of": 0}, "of"),
        ({"acceleration_unit": "mph"}, "acceleration_unit"),
        ({"rotation_unit": "g"}, "rotation_unit"),
        ({"least_confidence": 1.0}, "least_confidence"),
        ({"longest_gap_seconds": math.nan}, "longest_gap_seconds"),
        ({"source_hz": 0.0}, "source_hz"),
        ({"sampling_hz": 20.0}, "sampling_hz"),
    ],
)
def test_a_wrong_setting_is_named(wrong: dict[str, float], named: str) -> None:
    with pytest.raises(UsageError, match=f"^{named}: "):
        Settings(**wrong)  # type: ignore[arg-type]
