"""Noise for what reads posts of Sensor Logger and messages of MQTT, without sockets: readings, or one reason."""

import json
import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from cluster.exported import Description, open_model
from recognise.service.limits import StreamLimits
from recognise.service.live import messages, sensor_logger
from recognise.service.live.devices import PLATFORMS, READINGS, SENSOR_LOGGER, Published, topic_of
from recognise.service.live.merging import Merging
from recognise.service.refusals import RefusedError
from recognise.stream import Settings
from recognise.stream.stream import MOST_READINGS
from tests.recognise.exports import export

_leaf = st.one_of(
    st.none(), st.booleans(), st.floats(), st.integers(-(2**70), 2**70), st.text(max_size=6),
    st.sampled_from(["accelerometer", "totalacceleration", "gravity", "Gyroscope", "", 1e308, 17 * 10**17]),
)  # fmt: skip
_any = st.recursive(
    _leaf,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner)),
    max_leaves=6,
)
_number = st.one_of(st.floats(-20, 20), st.none(), st.just(math.nan), st.just(1e308), _leaf)
_vector = st.one_of(st.fixed_dictionaries({}, optional=dict.fromkeys("xyz", _number)), _any)
_sensor = st.sampled_from(sensor_logger.SENSORS)
_floats = st.lists(st.floats(-4, 4), min_size=3, max_size=3)
_right = st.builds(
    lambda name, step, row: {"name": name, "time": 20_000_000 * step, "values": dict(zip("xyz", row, strict=True))},
    _sensor, st.integers(0, 500), _floats,
)  # fmt: skip
_entry = st.fixed_dictionaries(
    {"name": st.one_of(_sensor, _leaf), "time": st.one_of(st.integers(0, 2**64), _leaf)},
    optional={"values": _vector, "x": _number, "y": _number, "z": _number, "accuracy": _leaf},
)
_posts = st.one_of(
    st.fixed_dictionaries({"sessionId": st.just("f3a1"), "payload": st.lists(_right, max_size=12)}),
    st.fixed_dictionaries(
        {"sessionId": st.one_of(st.just("f3a1"), _leaf), "payload": st.lists(st.one_of(_right, _entry), max_size=6)}
    ),
    st.fixed_dictionaries({}, optional={"sessionId": _any, "payload": _any, "messageId": _leaf}),
    _any,
)
_three = st.one_of(st.lists(_number, max_size=4), _floats, _any)


def _message(three: st.SearchStrategy[Any], value: st.SearchStrategy[Any], **more: st.SearchStrategy[Any]) -> Any:
    def of(count: int) -> Any:
        rows = st.lists(three, min_size=count, max_size=count)
        times = st.lists(value, min_size=count, max_size=count)
        return st.fixed_dictionaries({"times": times, "acceleration": rows, "rotation": rows}, optional=more)

    return st.integers(1, 3).flatmap(of)


_readings = st.one_of(
    _message(_floats, st.floats(0, 9), hop=st.integers(1, 64), acceleration_unit=st.sampled_from(["g", "m/s2", "x"])),
    _message(_three, _number, acceleration_unit=_leaf, hop=_leaf, votes=_leaf, of=_leaf, schema=_leaf, token=_leaf),
    st.dictionaries(st.sampled_from(["times", "acceleration", "rotation", "hop"]), _any),
    _any,
)


def _written(value: Any) -> bytes:
    return json.dumps(value).encode()


def _bytes_of(values: st.SearchStrategy[Any]) -> st.SearchStrategy[bytes]:
    """These values as JSON, some of it damaged; and bytes that are none."""
    damaged = st.builds(
        lambda value, at, piece: (text := _written(value))[: at % len(text)] + piece + text[at % len(text) + 2 :],
        values, st.integers(0, 300), st.sampled_from([b"", b"NaN", b"\xff", b"[" * 300, b"1e999", b"\\ud800", b"}"]),
    )  # fmt: skip
    return st.one_of(values.map(_written), values.map(_written), damaged, st.binary(max_size=40))


many = settings(max_examples=3000, deadline=None, database=None, suppress_health_check=list(HealthCheck))


def counted(found: Counter[str], read: Callable[[], object]) -> None:
    """Count whether it was taken or refused; the refusal has a reason of one line."""
    refusal = None
    try:
        read()
    except RefusedError as problem:
        refusal = problem
    found["taken" if refusal is None else "refused"] += 1
    if refusal is not None:
        assert refusal.status in (400, 413)
        assert refusal.words.strip()
        assert "\n" not in refusal.words


def _post_of(rotation: str, acceleration: str, later: int = 0) -> bytes:
    """A post whose rotation and acceleration have this number of JSON's; the rotation is `later` nanoseconds later."""
    rows = [("gyroscope", later, rotation), ("accelerometer", 0, acceleration), ("gravity", 0, acceleration)]
    entry = '{{"name": "{}", "time": {}, "values": {{"x": 0.0, "y": {}, "z": 0.0}}}}'
    return f'{{"sessionId": "f3a1", "payload": [{", ".join(entry.format(*row) for row in rows)}]}}'.encode()


@pytest.mark.parametrize(("rotation", "acceleration"), [("1e999", "0"), ("0", "1e308"), ("-1e999", "1e999")])
def test_numbers_of_no_sensor_are_no_numbers(rotation: str, acceleration: str) -> None:
    merging = Merging(1.0, Settings().longest_gap_seconds)
    post = sensor_logger.post(_post_of(rotation, acceleration))
    found, turned, _ = merging.add(sensor_logger.by_sensor(post))
    assert np.isnan(found[:, 2]).tolist() == [acceleration != "0"]
    assert np.isnan(turned[:, 2]).tolist() == [rotation != "0"]


@pytest.mark.long
def test_a_post_of_sensor_logger_is_readings_or_a_reason() -> None:
    found: Counter[str] = Counter()

    @many
    @example([_post_of("1e999", "0", later=20_000_000)], 1.0)  # an infinite neighbour of a reading
    @example([_post_of("0", "1e308")], 1.0)  # an acceleration and gravity whose sum is infinite
    @given(st.lists(_bytes_of(_posts), min_size=1, max_size=2), st.sampled_from([1.0, -1.0]))
    def noise(bodies: list[bytes], sign: float) -> None:
        merging = Merging(sign, Settings().longest_gap_seconds)

        def read() -> None:
            for body in bodies:
                acceleration, rotation, faults = merging.add(sensor_logger.by_sensor(sensor_logger.post(body)))
                assert acceleration.shape == rotation.shape == (len(acceleration), 4)
                np.testing.assert_array_equal(acceleration[:, 0], rotation[:, 0])
                assert all(fault.kind == "late" for fault in faults)

        counted(found, read)

    noise()
    assert min(found["taken"], found["refused"]) > 100, found


@pytest.fixture(scope="module")
def description(tmp_path_factory: pytest.TempPathFactory) -> Description:
    return open_model(export(tmp_path_factory.mktemp("noise") / "export")).description


@pytest.mark.long
def test_a_message_of_a_device_is_readings_or_a_reason(description: Description) -> None:
    found: Counter[str] = Counter()

    @many
    @given(_bytes_of(_readings))
    def noise(payload: bytes) -> None:
        def read() -> None:
            published = Published.of_message(payload)
            published.hello().settings(description, StreamLimits())
            assert 0 < len(published.times) == len(published.acceleration) <= MOST_READINGS

        counted(found, read)
        counted(Counter(), lambda: messages.readings(payload.decode("latin-1")))
        counted(Counter(), lambda: messages.hello(payload.decode("latin-1")))

    noise()
    assert min(found["taken"], found["refused"]) > 100, found


@many
@given(st.one_of(
    st.text(max_size=200),
    st.builds("house/{}/{}/{}".format, st.text(max_size=150), st.sampled_from([READINGS, SENSOR_LOGGER]),
              st.one_of(st.sampled_from(PLATFORMS), st.text(max_size=9))),
))  # fmt: skip
def test_a_topic_is_a_device_or_a_reason(name: str) -> None:
    def read() -> None:
        topic = topic_of("house", name)
        assert topic.device.isprintable()
        assert topic.kind != SENSOR_LOGGER or topic.platform in PLATFORMS

    counted(Counter(), read)
