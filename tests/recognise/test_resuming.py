"""A stream that goes on from its state: the events of one that nothing cut, and no state of anybody is believed."""

import base64
import itertools
import json
import struct
import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.errors import UsageError
from recognise.stream import Event, Fault, Resumed, Settings, Window, as_json, begun, resumed, text_of
from recognise.stream.parts import MOST_BYTES
from recognise.stream.resuming import MOST_TEXT
from tests.recognise.readings import Readings, walk
from tests.recognise.test_stream import troubled

LABELS = ("STILL", "MOVING", "FALLING")
ASKED = Settings(window_steps=16, hop=5, votes=2, of=3)


def logits(window: Window) -> np.ndarray:
    """Invented, other ones for each window."""
    return np.asarray(40.0 * window.channels[:, :3].mean(axis=0), np.float32)


def answered(of: Resumed, items: Sequence[Window | Fault]) -> list[Event]:
    found: list[Event] = []
    for item in items:
        found += [item] if isinstance(item, Fault) else of.smoothing.take(item, logits(item))
    return found


def pushed(of: Resumed, readings: Readings) -> Sequence[Window | Fault]:
    return of.stream.push(readings.times, readings.acceleration, readings.rotation)


def again(of: Resumed, asked: Settings = ASKED) -> Resumed:
    text = text_of(of, "har", LABELS)
    assert text is not None
    return resumed(text, asked, "har", LABELS)


def shown(events: Sequence[Event]) -> list[str]:
    return [json.dumps(as_json(one)) for one in events]


def cut(asked: Settings, readings: Readings, cuts: Sequence[int], unanswered: int) -> list[Event]:
    """The events of a stream that becomes a text at each cut, with so many items that have no answer yet."""
    of = begun(asked, LABELS)
    found: list[Event] = []
    bounds = [0, *sorted(cuts), len(readings)]
    for start, end in itertools.pairwise(bounds):
        items = [*of.waiting, *pushed(of, readings.rows(slice(start, end)))]
        kept = max(0, len(items) - unanswered)
        found += answered(of, items[:kept])
        of = again(replace(of, waiting=items[kept:]), asked)
    return found + answered(of, of.waiting)


@settings(max_examples=150, deadline=None)
@given(
    troubled(),
    st.lists(st.integers(0, 300), max_size=4),
    st.integers(0, 3),
    st.sampled_from([None, 100.0, 173.0]),
    st.sampled_from([(16, 5), (16, 16), (7, 40)]),
)
def test_a_stream_cut_anywhere_says_what_an_uncut_one_says(
    readings: Readings, cuts: list[int], unanswered: int, source_hz: float | None, shape: tuple[int, int]
) -> None:
    asked = replace(ASKED, source_hz=source_hz, window_steps=shape[0], hop=shape[1])
    whole = begun(asked, LABELS)
    wanted = answered(whole, pushed(whole, readings))
    found = cut(asked, readings, [min(at, len(readings)) for at in cuts], unanswered)
    assert shown(found) == shown(wanted)


def test_a_cut_stream_has_no_gap_and_loses_no_window() -> None:
    readings = walk(1000)
    found = cut(ASKED, readings, [333, 334, 700], 2)
    assert [one for one in found if isinstance(one, Fault)] == []
    assert len([one for one in found if as_json(one)["event"] == "label"]) == len(range(0, 1000 - 15, 5))


def test_readings_of_the_largest_size_keep_a_state() -> None:
    readings = walk(500)
    steep = Readings(readings.times, np.where(readings.acceleration > 0, 1e4, -1e4), 1e4 * np.sign(readings.rotation))
    of = begun(ASKED, LABELS)
    for start in range(0, 500, 7):
        pushed(of, steep.rows(slice(start, start + 7)))
        of = again(of)


def test_a_state_of_the_usual_windows_is_small() -> None:
    of = begun(Settings(), LABELS)
    pushed(of, walk(1000))
    text = text_of(of, "har", LABELS)
    assert text is not None
    assert len(text) < 10_000


def test_a_state_of_the_longest_windows_still_fits_and_with_windows_that_wait_it_is_none() -> None:
    asked = Settings(window_steps=4096, hop=4096)
    of = begun(asked, LABELS)
    pushed(of, walk(4095))
    text = text_of(of, "har", LABELS)
    assert text is not None
    assert len(text) <= MOST_TEXT
    (window,) = pushed(of, walk(1, begin=4095 / 50))
    assert text_of(replace(of, waiting=[window] * 2), "har", LABELS) is None
    assert text_of(replace(of, waiting=[window] * 65), "har", LABELS) is None


@pytest.mark.parametrize(
    ("asked", "model", "labels", "named"),
    [
        (replace(ASKED, hop=6), "har", LABELS, "a state with hop 6, got 5"),
        (replace(ASKED, window_steps=17), "har", LABELS, "a state with window_steps 17, got 16"),
        (replace(ASKED, of=2), "har", LABELS, "a state with of 2, got 3"),
        (replace(ASKED, acceleration_unit="m/s2"), "har", LABELS, "a state with acceleration_unit m/s2, got 'g'"),
        (replace(ASKED, source_hz=100.0), "har", LABELS, "a state with source_hz 100.0, got None"),
        (ASKED, "gait", LABELS, "a state with model gait, got 'har'"),
        (ASKED, "har", LABELS[:2], r"a state with labels \['STILL', 'MOVING'\], got \['STILL', 'MOVING', 'FALLING'\]"),
    ],
)
def test_a_state_of_something_else_is_refused_with_the_reason(
    asked: Settings, model: str, labels: tuple[str, ...], named: str
) -> None:
    text = text_of(begun(ASKED, LABELS), "har", LABELS)
    assert text is not None
    with pytest.raises(UsageError, match=rf"^resume: expected {named}: begin a new session without it$"):
        resumed(text, asked, model, labels)


def state(count: int = 200) -> bytes:
    of = begun(ASKED, LABELS)
    items = pushed(of, walk(count))
    events = answered(of, items[:-2])
    assert events
    text = text_of(replace(of, waiting=[*items[-2:], Fault("late", 1.0, "so")]), "har", LABELS)
    assert text is not None
    return base64.b64decode(text)


STATE = state()
"""Windows and a fault wait in it."""


def written(content: bytes) -> str:
    """The content with a checksum that fits."""
    return base64.b64encode(content[:8] + struct.pack("<I", zlib.crc32(content[12:])) + content[12:]).decode()


def changed(change: Callable[[dict[str, Any]], object]) -> str:
    """The state with another head."""
    (length,) = struct.unpack_from("<I", STATE, 4)
    head = json.loads(STATE[12 : 12 + length])
    change(head)
    text = json.dumps(head).encode()
    return written(STATE[:4] + struct.pack("<I", len(text)) + bytes(4) + text + STATE[12 + length :])


def values(**more: Any) -> str:
    return changed(lambda head: head["values"].update(more))


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "at most 262144 bytes, got 0"),
        ("?", "base64, got '\\?'"),
        ("ä", "base64, got 'ä'"),
        (base64.b64encode(bytes(MOST_BYTES + 1)).decode(), "at most 262144 bytes, got 262145"),
        (base64.b64encode(b"PSS2" + STATE[4:]).decode(), "a state of this version of the service, got another text"),
        (base64.b64encode(STATE[:-2] + b"?!").decode(), "a state as the service gave it, got a damaged one"),
        (base64.b64encode(STATE[:-1]).decode(), "a state as the service gave it, got a damaged one"),
        (written(STATE[:4] + b"\xff\xff\0\0" + STATE[8:]), "a state as the service gave it, got a damaged one"),
        (written(STATE[:-4]), "windows: as many bytes as its shape needs"),
        (written(STATE + b"more"), "nothing behind the arrays, got 4 bytes"),
        (written(STATE[:4] + b"\2\0\0\0" + bytes(4) + b"[]"), "a head of JSON with values and arrays"),
        (changed(lambda head: head.pop("values")), "a head of JSON with values and arrays"),
        (changed(lambda head: head["arrays"].append(["x", "<f8", [2**70]])), "x: as many bytes as its shape needs"),
        (changed(lambda head: head["arrays"].append(["x", "<f8", [-1]])), "arrays of a name, a type and a shape"),
        (changed(lambda head: head["arrays"].append(["x", "|O", [0]])), "arrays of a name, a type and a shape"),
        (changed(lambda head: head["arrays"].append(["x", "<f8", [0] * 40])), "x: as many bytes as its shape needs"),
        (changed(lambda head: head["values"].pop("steps")), "the part steps, got none"),
        (values(steps=-1), "steps from 0 to"),
        (values(steps=1.5), "steps from 0 to"),
        (values(steps=10**30), "steps from 0 to"),
        (values(steps=0), "the grid's next step beside the last reading"),
        (values(grid_begin=-1e11), "the grid's next step beside the last reading"),
        (values(grid_begin=1e308), "grid_begin: a number up to 1e\\+11"),
        (values(grid_begin=float("inf")), "a head of JSON with values and arrays"),
        (values(begin=0), "rows of less than a window, from its begin on"),
        (values(first=196, begin=196), "a row for each of 200 samples"),
        (values(begins=1), "begins: true or false, got 1"),
        (values(said="RUNNING"), "said: a label of the model, got 'RUNNING'"),
        (values(said=["STILL"]), "said: a label of the model"),
        (values(voted=[0] * 4), "at most 3 votes"),
        (values(voted=[0, 1, 3]), "votes for one of 3 labels, got 3"),
        (values(voted=[0, 1, True]), "votes for one of 3 labels, got True"),
        (values(voted=[0]), r"probabilities: float64 \(1,\), got float64 \(3,\)"),
        (values(waiting=None), "at most 64 windows and faults"),
        (values(waiting=[[]]), "windows and faults of three parts"),
        (values(waiting=[["late", 1.0, "so"]] * 65), "at most 64 windows and faults"),
        (values(waiting=[["other", 1.0, "so"]]), "a fault of a known kind"),
        (values(waiting=[["late", 1.0, "a\nb"]]), "a fault of a known kind"),
        (values(waiting=[["late", None, "so"]]), "a fault's time: a number up to"),
        (values(waiting=[[1.0, 1.0, True]]), r"windows: float32 \(1, 16, 9\), got float32 \(2, 16, 9\)"),
        (values(waiting=[[1.0, 1.0, 0]] * 2), "a window that says whether it begins"),
        (values(waiting=[[1.0, "1", True]] * 2), "a window's time: a number up to"),
        (values(labels=None), "a state with labels"),
        (values(schema={"a": {}}, window_steps="16"), "a state with window_steps 16, got '16'"),
    ],
)  # fmt: skip
def test_a_state_that_nobody_gave_is_refused_in_one_line(text: str, named: str) -> None:
    with pytest.raises(UsageError, match=f"^resume: expected .*{named}") as refused:
        resumed(text, ASKED, "har", LABELS)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("name", ["rows", "reading", "filter_before", "filter_noise", "filter_gravity", "windows"])
@pytest.mark.parametrize("number", [np.nan, np.inf, 1e7])
def test_a_number_that_no_sensor_gives_is_refused(name: str, number: float) -> None:
    (length,) = struct.unpack_from("<I", STATE, 4)
    at = 12 + length
    for one, kind, shape in json.loads(STATE[12:at])["arrays"]:
        if one == name:
            content = STATE[:at] + np.array(number, kind).tobytes() + STATE[at + np.dtype(kind).itemsize :]
            break
        at += np.dtype(kind).itemsize * int(np.prod(shape))
    else:
        pytest.fail(f"no array {name}")
    with pytest.raises(UsageError, match=f"resume: expected {name}: finite numbers up to 1e.06"):
        resumed(written(content), ASKED, "har", LABELS)


@settings(max_examples=400, deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(STATE) - 1), st.integers(0, 255)), min_size=1, max_size=8), st.booleans())
def test_damage_is_refused_or_harmless(changes: list[tuple[int, int]], fits: bool) -> None:
    """Other bytes, with and without a checksum that fits: what is taken gives finite windows."""
    content = bytearray(STATE)
    for at, byte in changes:
        content[at] = byte
    text = written(bytes(content)) if fits else base64.b64encode(bytes(content)).decode()
    try:
        of = resumed(text, ASKED, "har", LABELS)
    except UsageError:
        return
    assert fits or bytes(content) == STATE
    last = of.stream.last
    assert last is not None
    items = pushed(of, walk(60, begin=last + 0.02))
    assert all(np.isfinite(item.channels).all() for item in items if isinstance(item, Window))
    assert len(items) <= 61


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=60) | st.binary(max_size=200).map(lambda raw: written(b"PSS1" + raw[:4].ljust(8, b"\0") + raw)))
def test_any_text_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(UsageError, match=r"^resume: expected .* begin a new session without it$"):
        resumed(text, ASKED, "har", LABELS)
