"""The stream core: the same bits from any chunks, the causal filters' windows, faults."""

import gc
import math
import tracemalloc
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.data.filters import NINE_CHANNELS, causal_channels, nine_channels
from core.ground.errors import UsageError
from recognise.stream import Settings, Stream
from recognise.stream.settings import FAULTS
from recognise.stream.stream import MOST_READINGS
from tests.recognise.readings import Readings, faults_of, heard, kinds, same, walk, windows_of
from tests.tables import table

SMALL = Settings(window_steps=16, hop=5)
SIZES = st.lists(st.integers(1, 70), min_size=1, max_size=6)
TROUBLES = ("pause", "back", "doubled", "late", "nan", "huge", "time", "quiet")
HUGE = (1e308, -math.inf, 2e4)
TIMES = (math.nan, math.inf, -math.inf, 1e300, 0.0)


@st.composite
def troubled(draw: st.DrawFn) -> Readings:
    """A walk at any rate with jitter, pauses, jumps back, doubled, late and absurd readings."""
    count = draw(st.integers(1, 300))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    hz = draw(st.sampled_from([21.0, 49.7, 50.0, 100.0, 173.0]))
    readings = walk(count, hz=hz, begin=draw(st.floats(-1e9, 2e9)))
    times = readings.times
    times += random.uniform(0, draw(st.sampled_from([0.0, 0.004, 0.03])), count)
    for _ in range(draw(st.integers(0, 6))):
        row = draw(st.integers(0, count - 1))
        match draw(st.sampled_from(TROUBLES)):
            case "pause":
                times[row:] += draw(st.floats(0.0, 5.0))
            case "back":
                times[row:] -= draw(st.floats(0.0, 5.0))
            case "doubled":
                times[row] = times[row - 1]
            case "late":
                times[row] -= 0.1
            case "nan":
                readings.acceleration[row, 1] = math.nan
            case "huge":
                readings.acceleration[row, 2] = draw(st.sampled_from(HUGE))
            case "time":
                times[row] = draw(st.sampled_from(TIMES))
            case "quiet":
                readings.acceleration[row:] = 0.0
    return readings


@settings(max_examples=150, deadline=None)
@given(troubled(), SIZES, st.sampled_from([None, 100.0, 173.0]))
def test_chunks_of_any_length_give_the_same_bits_which_are_finite_or_a_known_fault(
    readings: Readings, sizes: list[int], source_hz: float | None
) -> None:
    asked = replace(SMALL, source_hz=source_hz)
    found = heard(asked, readings, sizes)
    assert same(found, heard(asked, readings, [len(readings)]))
    for window in windows_of(found):
        assert window.channels.shape == (16, 9)
        assert np.isfinite(window.channels).all()
    for fault in faults_of(found):
        assert fault.kind in FAULTS
        assert "\n" not in fault.detail


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 400), st.integers(0, 2**32 - 1), SIZES, st.sampled_from([0.0, 1.7e9]))
def test_a_stream_equals_the_causal_filters_over_the_whole_recording(
    count: int, seed: int, sizes: list[int], begin: float
) -> None:
    readings = walk(count, seed=seed, begin=begin)
    whole = causal_channels(readings.acceleration, readings.rotation)
    found = heard(SMALL, readings, sizes)
    starts = range(0, count - 15, 5)
    assert kinds(found) == ["window"] * len(starts)
    for start, window in zip(starts, windows_of(found), strict=True):
        np.testing.assert_array_equal(window.channels, whole[start : start + 16])
        assert window.at == pytest.approx(readings.times[start + 15], abs=1e-6)
        assert window.begins == (start == 0)


def test_a_causal_channel_is_that_of_two_way_filters_but_for_the_lag() -> None:
    readings = walk(3000)
    causal = causal_channels(readings.acceleration, readings.rotation)[200:-200, 6]
    two_way = nine_channels(readings.acceleration, readings.rotation)[200:2200, 6]
    # Total acceleration lags by a step of the median and about one of the low-pass.
    likeness = [float(np.corrcoef(causal[lag:][:2000], two_way)[0, 1]) for lag in range(5)]
    assert int(np.argmax(likeness)) in (1, 2)
    assert max(likeness) > 0.98


def wave(hz: float, seconds: float, size: float, rate: float) -> Readings:
    """Gravity, and a pure sine of this size and rate along x."""
    times = np.arange(int(hz * seconds)) / hz
    values = np.tile([0.0, 0.0, 1.0], (len(times), 1))
    values[:, 0] = size * np.sin(2 * np.pi * rate * times)
    return Readings(times, values, values)


@pytest.mark.parametrize("hz", [47.0, 100.0, 200.0])
def test_readings_of_another_rate_become_the_models_rate(hz: float) -> None:
    found, expected = (
        windows_of(heard(SMALL, wave(rate, 10.0, 0.3, 1.5), [64])) for rate in (hz, 50.0)
    )
    assert abs(len(found) - len(expected)) <= 1
    for left, right in zip(found, expected, strict=False):
        assert left.at == pytest.approx(right.at)
        np.testing.assert_allclose(left.channels, right.channels, atol=0.01)


def test_noise_beyond_the_models_rate_does_not_fold_into_the_signal() -> None:
    hum = wave(200.0, 10.0, 0.5, 60.0)  # at 50 Hz it looks like 10 Hz
    asked, plain = (
        windows_of(heard(each, hum, [100]))[-1].channels[:, 6].std()
        for each in (Settings(source_hz=200.0), Settings())
    )
    assert asked < 0.25 * plain


@pytest.mark.parametrize(
    ("time", "kind"),
    [
        (39 / 50, "doubled"),
        (38.5 / 50, "late"),
        (math.nan, "bad_value"),
        (math.inf, "bad_value"),
        (1.7e12, "bad_value"),
    ],
)
def test_one_bad_time_is_one_fault_and_no_break(time: float, kind: str) -> None:
    readings = walk(80)
    readings.times[40] = time
    found = heard(SMALL, readings, [80])
    assert [fault.kind for fault in faults_of(found)] == [kind]
    assert sum(window.begins for window in windows_of(found)) == 1


@pytest.mark.parametrize(("seconds", "kind"), [(0.4, "gap"), (-0.3, "clock_jump")])
def test_a_pause_or_a_jump_back_is_one_fault_and_no_window_spans_it(
    seconds: float, kind: str
) -> None:
    readings = walk(80)
    readings.times[40:] += seconds
    found = heard(SMALL, readings, [80])
    (place,) = (at for at, each in enumerate(kinds(found)) if each != "window")
    assert kinds(found)[place] == kind
    first, after = windows_of(found[:place])[0], windows_of(found[place:])[0]
    assert [each for each in windows_of(found) if each.begins] == [first, after]
    assert after.at >= readings.times[40] + 15 / 50 - 1e-9


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e5, -1e308])
@pytest.mark.parametrize("part", ["acceleration", "rotation"])
def test_a_bad_value_is_dropped_with_a_fault(value: float, part: str) -> None:
    readings = walk(80)
    getattr(readings, part)[40, 2] = value
    found = heard(SMALL, readings, [80])
    assert [fault.kind for fault in faults_of(found)] == ["bad_value"]
    assert len(windows_of(found)) == 13, "the reading between its neighbours is interpolated"


def test_a_window_that_no_person_makes_gets_no_label() -> None:
    found = heard(Settings(acceleration_unit="m/s2"), walk(400), [50])
    assert set(kinds(found)) == {"implausible"}
    assert all("the readings came as m/s2 and rad/s" in fault.detail for fault in faults_of(found))


def test_a_window_without_gravity_gets_no_label() -> None:
    readings = walk(400)
    readings.acceleration[:, 2] -= 1.0
    # As much as gravity, but in no direction.
    found = heard(Settings(), readings.scaled("acceleration", 2.0), [50])
    assert set(kinds(found)) == {"implausible"}
    assert all("acceleration without gravity" in fault.detail for fault in faults_of(found))


def test_a_gyroscope_that_falls_silent_is_told_though_the_filters_ring() -> None:
    readings = walk(600)
    readings.rotation[200:] = 0.0
    found = kinds(heard(Settings(), readings, [50]))
    assert (found[0], found[-1]) == ("window", "implausible")


def test_one_pause_is_no_question_of_the_unit() -> None:
    readings = walk(200).rows(np.r_[0:50, 100:200])
    (gap,) = faults_of(heard(SMALL, readings, [9]))
    assert gap.detail == "no reading for 1.020 s; the windows restart"


def test_units_are_converted() -> None:
    readings = walk(200)
    other = readings.scaled("acceleration", 9.80665).scaled("rotation", 180.0 / math.pi)
    asked = Settings(acceleration_unit="m/s2", rotation_unit="deg/s")
    found = heard(asked, other, [33])
    expected = heard(Settings(), readings, [33])
    assert kinds(found) == ["window"] * len(expected)
    for left, right in zip(windows_of(found), windows_of(expected), strict=True):
        np.testing.assert_allclose(left.channels, right.channels, atol=1e-6)


@pytest.mark.parametrize(("hz", "kind"), [(12.0, "sparse"), (25.0, "window")])
def test_too_few_readings_get_no_window(hz: float, kind: str) -> None:
    assert set(kinds(heard(SMALL, walk(200, hz=hz), [200]))) == {kind}


def test_memory_stays_that_of_one_window() -> None:
    stream = Stream(Settings(hop=128))
    readings = walk(1000)

    def held_after(turns: range) -> int:
        """Traced bytes after so many pushes."""
        for turn in turns:
            times = readings.times + turn * 20.0
            stream.push_values(times, readings.values)
        gc.collect()  # SciPy leaves cycles, which Python removes when it has many
        return tracemalloc.get_traced_memory()[0]

    held_after(range(10))
    tracemalloc.start()
    try:
        grown = -held_after(range(0)) + held_after(range(10, 60))
    finally:
        tracemalloc.stop()
    pushed = 50 * sum(part.nbytes for part in vars(readings).values())
    assert grown < pushed / 25, f"{grown} bytes more after {pushed} bytes of readings"


@pytest.mark.parametrize(
    ("count", "shape", "said"),
    [
        (2, (2, 3), "values: expected 6 for each time"),
        (MOST_READINGS + 1, (MOST_READINGS + 1, 6), "times: expected up to 4096 numbers"),
    ],
)
def test_readings_of_another_shape_or_too_many_are_refused(
    count: int, shape: tuple[int, ...], said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        Stream(Settings()).push_values(np.arange(count) / 50, np.zeros(shape))


@pytest.mark.parametrize(
    "wrong",
    [*table("recognise/settings"), {"signals": replace(NINE_CHANNELS, sampling_hz=20.0)}],
)
def test_a_wrong_setting_is_named(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=f"^{next(iter(wrong))}: "):
        Settings(**wrong)
