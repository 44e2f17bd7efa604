"""Noise for the readers of posts and messages: readings, or one reason."""

import json
import math
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from recognise.service.limits import RequestError
from recognise.service.live import sensor_logger
from recognise.service.live.recordings import Merging
from recognise.stream import Settings
from tests.recognise.service.noise import Strategy, anything, damaged, fields, leaf

SPECIAL = ("accelerometer", "totalacceleration", "gravity", "Gyroscope", "", 1e308, 17 * 10**17)
_leaf = leaf(*SPECIAL)
_any = anything(*SPECIAL)
_number = st.one_of(st.floats(-20, 20), st.none(), st.just(math.nan), st.just(1e308), _leaf)
_vector = st.one_of(st.fixed_dictionaries({}, optional=dict.fromkeys("xyz", _number)), _any)
_sensor = st.sampled_from(sensor_logger.SENSORS)
_right = st.fixed_dictionaries(
    {
        "name": _sensor,
        "time": st.integers(0, 500).map(lambda step: 20_000_000 * step),
        "values": st.fixed_dictionaries(dict.fromkeys("xyz", st.floats(-4, 4))),
    }
)
_entry = st.fixed_dictionaries(
    {"name": st.one_of(_sensor, _leaf), "time": st.one_of(st.integers(0, 2**64), _leaf)},
    optional={"values": _vector, "accuracy": _leaf, **dict.fromkeys("xyz", _number)},
)
_session = st.just("f3a1")
_posts = st.one_of(
    st.fixed_dictionaries({"sessionId": _session, "payload": st.lists(_right, max_size=12)}),
    st.fixed_dictionaries(
        {
            "sessionId": st.one_of(_session, _leaf),
            "payload": st.lists(st.one_of(_right, _entry), max_size=6),
        }
    ),
    fields(("sessionId", "payload", "messageId"), _any),
    _any,
)


def _bytes_of(values: Strategy) -> st.SearchStrategy[bytes]:
    """JSON of these values, some of it damaged, and bytes that are no JSON."""
    written = values.map(lambda value: json.dumps(value).encode())
    return st.one_of(written, written, damaged(written), st.binary(max_size=40))


many = settings(
    max_examples=3000, deadline=None, database=None, suppress_health_check=list(HealthCheck)
)


def is_taken(read: Callable[[], object]) -> bool:
    """Whether it was taken or refused; the refusal has a reason of one line."""
    refusal = None
    try:
        read()
    except RequestError as problem:
        refusal = problem
    if refusal is not None:
        assert refusal.status in (400, 413)
        assert refusal.message.strip()
        assert "\n" not in refusal.message
    return refusal is None


def _post_of(rotation: str, acceleration: str, later: int = 0) -> bytes:
    """A post with these numbers of JSON's; the rotation is `later` nanoseconds later."""
    rows = [
        ("gyroscope", later, rotation),
        ("accelerometer", 0, acceleration),
        ("gravity", 0, acceleration),
    ]
    entry = '{{"name": "{}", "time": {}, "values": {{"x": 0.0, "y": {}, "z": 0.0}}}}'
    entries = ", ".join(entry.format(*row) for row in rows)
    return f'{{"sessionId": "f3a1", "payload": [{entries}]}}'.encode()


def merged(*bodies: bytes, sign: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """The acceleration and the rotation of these posts; whatever is a fault of theirs is late."""
    merging = Merging(sign, Settings().longest_gap_seconds)
    parts = [merging.add(sensor_logger.by_sensor(sensor_logger.post(body))) for body in bodies]
    assert all(fault.kind == "late" for _, faults in parts for fault in faults)
    readings = np.concatenate([part[0] for part in parts])
    assert readings.shape == (len(readings), 7)
    return readings[:, :4], readings[:, [0, 4, 5, 6]]


@pytest.mark.parametrize(
    ("rotation", "acceleration"), [("1e999", "0"), ("0", "1e308"), ("-1e999", "1e999")]
)
def test_numbers_of_no_sensor_are_no_numbers(rotation: str, acceleration: str) -> None:
    found, turned = merged(_post_of(rotation, acceleration))
    assert np.isnan(found[:, 2]).tolist() == [acceleration != "0"]
    assert np.isnan(turned[:, 2]).tolist() == [rotation != "0"]


@pytest.mark.long
def test_a_post_of_sensor_logger_is_readings_or_a_reason() -> None:
    found: Counter[bool] = Counter()

    @many
    @example([_post_of("1e999", "0", later=20_000_000)], 1.0)  # an infinite neighbour of a reading
    @example([_post_of("0", "1e308")], 1.0)  # an acceleration and gravity whose sum is infinite
    @given(st.lists(_bytes_of(_posts), min_size=1, max_size=2), st.sampled_from([1.0, -1.0]))
    def noise(bodies: list[bytes], sign: float) -> None:
        found[is_taken(lambda: merged(*bodies, sign=sign))] += 1

    noise()
    assert min(found[True], found[False]) > 100, found
