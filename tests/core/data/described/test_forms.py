"""The same movement in many forms of files gives the same windows."""

import io
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
from pyarrow.parquet import write_table

from tests.core.data.described.movement import (
    AXES,
    DESCRIBED_SO,
    EVERYONE,
    HERTZ,
    LABELS,
    NAMES,
    PEOPLE,
    STEPS,
    Form,
    objects,
    packed,
    put,
    rows_of,
    windows_of,
    zipped,
)
from tests.tables import table

Files = Mapping[str, bytes]
Made = tuple[Files, Mapping[str, Any]]

ACC = DESCRIBED_SO["channels"][0]
GYRO = DESCRIBED_SO["channels"][1]


def text(form: Form, **description: Any) -> Made:
    return {"r.csv": form.bytes_of(EVERYONE)}, {"files": "r.csv", **description}


def of_time(write: Sequence[Any], **said: Any) -> Made:
    form = Form(names=("date", *NAMES), of={"time": write, "date": ("is", "28.05.2026")})
    return text(form, time={"column": "time", "hertz": HERTZ, **said})


def in_lines(columns: Mapping[str, Sequence[str]], **said: Any) -> Made:
    """A line for each sensor: its axes in these columns, and nothing in others."""
    names = tuple(dict.fromkeys(name for each in columns.values() for name in each))
    rows = [
        {**row, **dict.fromkeys(names, ""), **dict(zip(own, values, strict=True)), "part": part}
        for row in EVERYONE
        for part, own, axes in zip(columns, columns.values(), (AXES[:3], AXES[3:]), strict=True)
        for values in [[row[axis] for axis in axes]]
    ]
    form = Form(names=("time", "part", *names, "label", "person"))
    channels = [
        {**each, "columns": list(own), "sensor": part}
        for each, (part, own) in zip((ACC, GYRO), columns.items(), strict=True)
    ]
    return {"r.csv": form.bytes_of(rows)}, {"files": "r.csv", "channels": channels, "text": said}


def of_axes(axes: str, times: float, **said: Any) -> Made:
    form = Form(of={f"{axes}{axis}": ("times", times) for axis in "xyz"})
    channels = [{**each, **said} if axes in each["columns"][0] else each for each in (ACC, GYRO)]
    return text(form, channels=channels)


def by_path(name: str, form: Form, content: Callable[[bytes], bytes] = bytes, **more: Any) -> Made:
    """A file for each person and label, whose path says both."""
    files = {
        name.format(person=person, label=label): content(
            form.bytes_of([row for row in rows_of(person) if row["label"] == label])
        )
        for person in PEOPLE
        for label in LABELS
    }
    return files, {"files": name, "label": {}, "person": {}, **more}


def sensors(late: float = 0.0) -> Made:
    """A file a sensor; bert's gyroscope has a clock of its own where it is `late`."""
    parts = {"Acc": ("time", "label", "az", "ay", "ax"), "Gyro": ("time", "gx", "gy", "gz")}
    files = {
        f"{person}/{sensor}.csv": Form(names=names).bytes_of(rows_of(person))
        for person in PEOPLE
        for sensor, names in parts.items()
    }
    own = Form(names=parts["Gyro"], of={"time": ("plus", late)})
    files["bert/Gyro.csv"] = own.bytes_of(rows_of("bert"))
    channels = [{**ACC, "sensor": "Acc"}, {**GYRO, "sensor": "Gyro"}]
    files["anna/Magnetometer.csv"] = b"another sensor\n"
    return files, {"files": "{person}/{sensor}.csv", "person": {}, "channels": channels}


def parquet() -> bytes:
    stream = io.BytesIO()
    write_table(pyarrow.Table.from_pylist(EVERYONE), stream, row_group_size=100)
    return stream.getvalue()


def moments() -> Made:
    """Moments in nanoseconds, as pandas writes them, and words as bytes."""
    table = pyarrow.Table.from_pylist([{**row, "label": row["label"].encode()} for row in EVERYONE])
    times = [round((1.78e9 + row["time"]) * 1e6) * 1000 + 7 for row in EVERYONE]
    table = table.set_column(0, "time", pyarrow.array(times, pyarrow.timestamp("ns")))
    stream = io.BytesIO()
    write_table(table, stream)
    time = {"column": "time", "unit": "iso", "hertz": HERTZ}
    return {"r.parquet": stream.getvalue()}, {"files": "r.parquet", "time": time}


def json_lists() -> Made:
    files = {}
    for person in PEOPLE:
        for label in LABELS:
            own = [row for row in rows_of(person) if row["label"] == label]
            payload = {
                "interval_ms": 1000 / HERTZ,
                "sensors": [{"name": axis} for axis in AXES],
                "values": [[row[axis] for axis in AXES] for row in own],
            }
            files[f"{label}.{person}.json"] = json.dumps({"payload": payload}).encode()
    where = {"rows": "payload.values", "names": "payload.sensors"}
    return files, {
        "files": "{label}.{person}.json",
        "json": {**where, "interval_ms": "payload.interval_ms"},
        "time": {"hertz": HERTZ},
        "label": {},
        "person": {},
    }


def troubled() -> Made:
    """Doubled and late readings, which a stream drops, and a line that was cut short."""
    lines = Form().bytes_of(EVERYONE).splitlines(keepends=True)
    damaged = [*lines[:40], lines[39], lines[32], *lines[40:90], lines[90][:12] + b"\n"]
    return {"r.csv": b"".join([*damaged, *lines[90:]])}, {"files": "r.csv", "bad_lines": 0.01}


def intervals(unit: str, ends: bool) -> Made:
    """The labels in a file of their own: by time, by the number of the reading, or by begins."""
    files = {f"{person}/r.csv": PLAIN.bytes_of(rows_of(person)) for person in PEOPLE}
    steps = [(place * STEPS, (place + 1) * STEPS - 1) for place in range(len(LABELS))]
    factor = 1 if unit == "rows" else 1 / HERTZ
    shift = 1 if unit == "rows" else 0
    for person in PEOPLE:
        rows = [
            [(begin + shift) * factor, (end + shift) * factor, label]
            for (begin, end), label in zip(steps, LABELS, strict=True)
        ]
        head = "from,until,what\n"
        files[f"{person}/labels.csv"] = (
            head + "".join(f"{','.join(map(str, row))}\n" for row in rows)
        ).encode()
    said = {"file": "{person}/labels.csv", "begin": "from", "label": "what", "unit": unit}
    if ends:
        said["end"] = "until"
    made = {"files": "{person}/r.csv", "person": {}, "label": {"intervals": said}}
    return files, {**made, "time": {"hertz": HERTZ}} if unit == "rows" else made


PLAIN = Form()
ROWS = table("core/data/described/forms")
FORMS: dict[str, Made] = {
    **{
        name: text(Form(**row.get("form", {})), **row.get("says", {}))
        for name, row in ROWS["texts"].items()
    },
    **{name: of_time(**row) for name, row in ROWS["times"].items()},
    **{name: of_axes(**row) for name, row in ROWS["axes"].items()},
    "a line a sensor": in_lines({"ACC": "xyz", "GYR": "xyz"}, sensor="part"),
    "sensors in turn": in_lines({"a": AXES[:3], "g": AXES[3:]}, in_turn=True),
    "capitals": ({"R.CSV": PLAIN.bytes_of(EVERYONE)}, {"files": "r.csv"}),
    "gzip": ({"r.csv.gz": packed(PLAIN.bytes_of(EVERYONE))}, {"files": "r.csv"}),
    "a zip": ({"x.zip": zipped({"d/r.csv": PLAIN.bytes_of(EVERYONE)})}, {"files": "r.csv"}),
    "a zip in a zip": (
        {"x.zip": zipped({"y.zip": zipped({"r.csv": PLAIN.bytes_of(EVERYONE)})})},
        {"files": "y.zip/*.csv"},
    ),
    "person and label in the path": by_path("{label}/{person}.csv", PLAIN),
    "zips by label": by_path("{label}/{person}.zip/r.csv", PLAIN),
    "a file a sensor": sensors(),
    "objects in JSON": ({"r.json": objects(EVERYONE)}, {"files": "r.json", "json": {}}),
    "lists in JSON": json_lists(),
    "lines of JSON": (
        {"r.jsonl": b"".join(objects([row])[1:-1] + b"\n" for row in EVERYONE)},
        {"files": "r.jsonl", "json": {"lines": True}},
    ),
    "moments of Parquet": moments(),
    "Parquet": ({"r.parquet": parquet()}, {"files": "r.parquet"}),
    "doubled, late and cut": troubled(),
    "intervals of time": intervals("s", ends=True),
    "intervals of readings": intervals("rows", ends=True),
    "begins of intervals": intervals("s", ends=False),
}


LAST_PLACE = 2e-7
"""Of a number near 1 in float32: what a unit's factor may change."""
CHANGED = ("m/s2", "mg", "deg/s")
"""Forms whose numbers are multiplied; all others give the same bits."""


@pytest.mark.parametrize("name", FORMS)
def test_the_same_movement_gives_the_same_windows(name: str, tmp_path: Path) -> None:
    plain = windows_of(put(tmp_path / "plain", *described(text(PLAIN))))
    other = windows_of(put(tmp_path / "other", *described(FORMS[name])))
    assert plain.labels == other.labels == LABELS
    assert plain.held_out.groups == other.held_out.groups == PEOPLE
    assert np.array_equal(plain.classes(), other.classes())
    assert np.array_equal(plain.subjects(), other.subjects())
    if name in CHANGED:
        difference = float(np.abs(plain.windows() - other.windows()).max())
        assert difference < 5 * LAST_PLACE
    else:
        assert plain.windows().tobytes() == other.windows().tobytes()


def test_the_plain_form_has_every_reading(tmp_path: Path) -> None:
    found = windows_of(put(tmp_path / "plain", *described(text(PLAIN))))
    names = ("acc_x", "acc_y", "acc_z", "gyro_x", "gyro_y", "gyro_z")
    assert (found.signals.channels, found.signals.sampling_hz, found.signals.filters) == (
        names,
        HERTZ,
        "none",
    )
    first = [[row[axis] for axis in AXES] for row in rows_of("anna")[:32]]
    assert np.array_equal(found.windows()[0], np.array(first, np.float32))
    assert found.rows == len(PEOPLE) * len(LABELS) * 4


def described(made: Made) -> Made:
    """The files, and what is said of them over what all forms have in common."""
    files, description = made
    return files, {**DESCRIBED_SO, **description}
