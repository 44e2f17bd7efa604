"""A stream that goes on from its state: the same events, and no state is believed."""

import base64
import itertools
import json
import re
import struct
import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.ground.errors import UsageError
from recognise.stream import (
    Event,
    InputFault,
    Settings,
    StreamState,
    Window,
    as_json,
    begun,
    resumed,
    text_of,
)
from recognise.stream.parts import MOST_BYTES
from recognise.stream.resuming import MOST_TEXT
from tests.recognise.readings import Found, Readings, walk, windows_of
from tests.recognise.test_stream import troubled
from tests.tables import table

LABELS = ("STILL", "MOVING", "FALLING")
ASKED = Settings(window_steps=16, hop=5, votes=2, of=3)


def logits(window: Window) -> np.ndarray:
    """Invented, other ones for each window."""
    return np.asarray(40.0 * window.channels[:, :3].mean(axis=0), np.float32)


def answered(of: StreamState, items: Found) -> list[Event]:
    found: list[Event] = []
    for item in items:
        found += [item] if isinstance(item, InputFault) else of.smoothing.take(item, logits(item))
    return found


def pushed(of: StreamState, readings: Readings) -> Found:
    return [*of.stream.push_values(readings.times, readings.values)]


def text_for(of: StreamState) -> str:
    text = text_of(of, "har", LABELS)
    assert text is not None
    return text


def cut(asked: Settings, readings: Readings, cuts: Sequence[int], unanswered: int) -> list[Event]:
    """Return the events of a stream cut into texts, with items that have no answer yet."""
    of = begun(asked, LABELS)
    found: list[Event] = []
    bounds = [0, *sorted(min(at, len(readings)) for at in cuts), len(readings)]
    for start, end in itertools.pairwise(bounds):
        items = [*of.waiting, *pushed(of, readings.rows(slice(start, end)))]
        kept = max(0, len(items) - unanswered)
        found += answered(of, items[:kept])
        of = resumed(text_for(replace(of, waiting=items[kept:])), asked, "har", LABELS)
    return found + answered(of, [*of.waiting])


@settings(max_examples=150, deadline=None)
@given(
    troubled(),
    st.lists(st.integers(0, 300), max_size=4),
    st.integers(0, 3),
    st.sampled_from([None, 100.0, 173.0]),
    st.sampled_from([(16, 5), (16, 16), (7, 40)]),
)
def test_a_stream_cut_anywhere_says_what_an_uncut_one_says(
    readings: Readings,
    cuts: list[int],
    unanswered: int,
    source_hz: float | None,
    shape: tuple[int, int],
) -> None:
    asked = replace(ASKED, source_hz=source_hz, window_steps=shape[0], hop=shape[1])
    whole = begun(asked, LABELS)
    wanted = answered(whole, pushed(whole, readings))
    found = cut(asked, readings, cuts, unanswered)
    assert [json.dumps(as_json(one)) for one in found] == [
        json.dumps(as_json(one)) for one in wanted
    ]


def test_readings_of_the_largest_size_keep_a_state() -> None:
    readings = walk(500)
    readings.acceleration[:] = np.where(readings.acceleration > 0, 1e4, -1e4)
    readings.rotation[:] = 1e4 * np.sign(readings.rotation)
    of = begun(ASKED, LABELS)
    for start in range(0, 500, 7):
        pushed(of, readings.rows(slice(start, start + 7)))
        of = resumed(text_for(of), ASKED, "har", LABELS)


def test_a_state_is_small_and_that_of_the_longest_windows_fits_where_none_waits() -> None:
    usual = begun(Settings(), LABELS)
    pushed(usual, walk(1000))
    assert len(text_for(usual)) < 10_000
    of = begun(Settings(window_steps=4096, hop=4096), LABELS)
    pushed(of, walk(4095))
    assert len(text_for(of)) <= MOST_TEXT
    (window,) = pushed(of, walk(1, begin=4095 / 50))
    for waiting in (2, 65):
        assert text_of(replace(of, waiting=[window] * waiting), "har", LABELS) is None


@pytest.mark.parametrize(("named", "other"), table("recognise/refused_states", "asked"))
def test_a_state_of_something_else_is_refused_with_the_reason(
    named: str, other: dict[str, Any]
) -> None:
    model = other.pop("model", "har")
    labels = other.pop("labels", LABELS)
    line = re.escape(f"resume: expected {named}: begin a new session without it")
    with pytest.raises(UsageError, match=f"^{line}$"):
        resumed(text_for(begun(ASKED, LABELS)), replace(ASKED, **other), model, tuple(labels))


def state() -> bytes:
    """A state in which windows and a fault wait."""
    of = begun(ASKED, LABELS)
    items = pushed(of, walk(200))
    assert answered(of, items[:-2])
    waiting = [*items[-2:], InputFault("late", 1.0, "so")]
    return base64.b64decode(text_for(replace(of, waiting=waiting)))


STATE = state()
HEAD_END = 12 + struct.unpack_from("<I", STATE, 4)[0]


def encoded(content: bytes) -> str:
    return base64.b64encode(content).decode()


def written(content: bytes) -> str:
    """The content with a checksum that fits."""
    return encoded(content[:8] + struct.pack("<I", zlib.crc32(content[12:])) + content[12:])


def headed(text: bytes) -> str:
    """The state with another head."""
    return written(STATE[:4] + struct.pack("<I", len(text)) + bytes(4) + text + STATE[HEAD_END:])


def changed(change: Callable[[dict[str, Any]], object]) -> str:
    head = json.loads(STATE[12:HEAD_END])
    change(head)
    return headed(json.dumps(head).encode())


DAMAGED = "a state as the service gave it, got a damaged one"
NO_HEAD = "a head of JSON with values and arrays"


@pytest.mark.parametrize(
    ("named", "text"),
    [
        ("at most 262144 bytes, got 0", ""),
        ("base64, got '?'", "?"),
        ("base64, got 'ä'", "ä"),
        ("at most 262144 bytes, got 262145", encoded(bytes(MOST_BYTES + 1))),
        (
            "a state of this version of the service, got another text",
            encoded(b"PSS2" + STATE[4:]),
        ),
        (DAMAGED, encoded(STATE[:-2] + b"?!")),
        (DAMAGED, encoded(STATE[:-1])),
        (DAMAGED, written(STATE[:4] + b"\xff\xff\0\0" + STATE[8:])),
        ("arrays of a name, a type, a shape and its bytes", written(STATE[:-4])),
        ("nothing behind the arrays, got 4 bytes", written(STATE + b"more")),
        (NO_HEAD, headed(b"[]")),
        (NO_HEAD, changed(lambda head: head.pop("values"))),
        ("the part steps, got none", changed(lambda head: head["values"].pop("steps"))),
        (
            "at most 64 windows and faults",
            changed(lambda head: head["values"].update(waiting=[["late", 1.0, "so"]] * 65)),
        ),
        *(
            (named, changed(lambda head, values=values: head["values"].update(values)))  # type: ignore[misc]
            for named, values in table("recognise/refused_states", "values")
        ),
        *(
            (named, changed(lambda head, array=array: head["arrays"].append(array)))  # type: ignore[misc]
            for named, array in table("recognise/refused_states", "array")
        ),
    ],
)
def test_a_state_that_nobody_gave_is_refused_in_one_line(text: str, named: str) -> None:
    with pytest.raises(UsageError, match=f"^resume: expected .*{re.escape(named)}") as refused:
        resumed(text, ASKED, "har", LABELS)
    assert "\n" not in str(refused.value)


def begins(name: str) -> tuple[int, str]:
    """Where the numbers of an array begin in the state, and their type."""
    at = HEAD_END
    for one, kind, shape in json.loads(STATE[12:HEAD_END])["arrays"]:
        if one == name:
            return at, kind
        at += np.dtype(kind).itemsize * int(np.prod(shape))
    raise AssertionError(f"no array {name}")


@pytest.mark.parametrize(
    "name", ["rows", "reading", "filter_before", "filter_noise", "filter_gravity", "windows"]
)
@pytest.mark.parametrize("number", [np.nan, np.inf, 1e7])
def test_a_number_that_no_sensor_gives_is_refused(name: str, number: float) -> None:
    at, kind = begins(name)
    other = np.array(number, kind).tobytes()
    content = STATE[:at] + other + STATE[at + len(other) :]
    with pytest.raises(UsageError, match=f"resume: expected {name}: finite numbers up to 1e.06"):
        resumed(written(content), ASKED, "har", LABELS)


@settings(max_examples=400, deadline=None)
@given(
    st.dictionaries(st.integers(0, len(STATE) - 1), st.integers(0, 255), min_size=1, max_size=8),
    st.sampled_from([written, encoded]),
)
def test_damage_is_refused_or_harmless(
    changes: dict[int, int], text_from: Callable[[bytes], str]
) -> None:
    """Other bytes, with and without a checksum that fits: what is taken gives finite windows."""
    content = bytearray(STATE)
    for at, byte in changes.items():
        content[at] = byte
    try:
        of = resumed(text_from(bytes(content)), ASKED, "har", LABELS)
    except UsageError:
        return
    assert text_from is written or content == STATE
    last = of.stream.last
    assert last is not None
    items = pushed(of, walk(60, begin=last + 0.02))
    assert all(np.isfinite(window.channels).all() for window in windows_of(items))
    assert len(items) <= 61
