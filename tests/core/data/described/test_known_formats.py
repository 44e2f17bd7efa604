"""Every format that we know: a made-up sample in its layout, and its figures."""

import io
import json
import random
from pathlib import Path
from typing import Any

import cbor2
import numpy as np
import pytest
from scipy.io import savemat

from core.data import prepare
from core.data.described.known_formats import FOLDER, described, names
from core.data.source import find_source
from core.ground.errors import DataError
from tests.core.data.described.excel import book
from tests.core.data.described.movement import zipped
from tests.tables import table

ROWS: list[dict[str, Any]] = table("core/data/described/formats")
BY_NAME = {row["format"]: row for row in ROWS}
VECTORS: dict[str, tuple[list[float], float]] = table("core/data/tables", "vectors")
"""What a sample is filled with: three numbers, and their factor."""
SECONDS = 4
DAMAGE = (b"", b",", b";", b"\n", b'"', b"\0", b"nan", b"1e999", b"\xff", b"{", b"-", b"9" * 30)
STEPS = 20
PAGE = Path(__file__).parents[4] / "docs" / "recordings.md"


def values(row: dict[str, Any], step: int) -> dict[str, Any]:
    """What a line of the sample is filled with."""
    time = step / row["hertz"]
    between = str(row.get("between", ","))
    vectors = {
        name: between.join(repr(value * factor) for value in vector)
        for name, (vector, factor) in VECTORS.items()
    }
    return {
        **vectors,
        "row": step,
        "s": f"{time:.4f}",
        "ms": round(time * 1e3),
        "ns": 1_700_000_000_000_000_000 + round(time * 1e9),
        "opportunity_1": " ".join(["NaN"] * 36),
        "opportunity_2": " ".join(["7"] * 203),
    }


def filled(line: str, row: dict[str, Any], who: str, what: str, place: int) -> str:
    """A file of one label: `line` for each reading; labels follow each other in time."""
    count = SECONDS * row["hertz"]
    steps = range(place * count, (place + 1) * count)
    return "".join(f"{line.format(who=who, what=what, **values(row, at))}\n" for at in steps)


def objects(row: dict[str, Any], place: int) -> bytes:
    """A list of objects, those of each sensor behind each other, all values as text."""
    found = []
    for one in row["objects"]:
        for line in filled(f"{one['time']},{one['values']}", row, "", "", place).splitlines():
            time, *vector = line.split(",")
            found.append(
                {"sensor": one["sensor"], "time": time, **dict(zip("xyz", vector, strict=True))}
            )
    return json.dumps(found).encode()


def payload(row: dict[str, Any], place: int) -> bytes:
    """A document with the values beside their names."""
    lines = filled("{ms2}", row, "", "", place).splitlines()
    said = {
        "interval_ms": 1000 / row["hertz"],
        "sensors": [{"name": name, "units": "m/s2"} for name in row["payload"]],
        "values": [[float(cell) for cell in line.split(",")] for line in lines],
    }
    return json.dumps({"protected": {"ver": "v1"}, "payload": said}).encode()


def packed(row: dict[str, Any], place: int) -> bytes:
    """The document of `payload` in CBOR."""
    return cbor2.dumps(json.loads(payload(row, place)))


def sheets(row: dict[str, Any], place: int) -> bytes:
    """A file of Excel."""
    found: dict[str, list[list[str | float]]] = {}
    for name, (head, line) in row["sheets"].items():
        lines = filled(line, row, "", "", place).splitlines()
        numbers: list[list[str | float]] = [
            [float(cell) for cell in one.split(",")] for one in lines
        ]
        found[name] = [head, *numbers]
    return book(found)


def array(row: dict[str, Any], place: int) -> bytes:
    """A MATLAB file."""
    lines = filled("{g},{deg}", row, "", "", place).splitlines()
    rows = [[float(cell) for cell in line.split(",")] for line in lines]
    stream = io.BytesIO()
    savemat(stream, {"title": "made up", row["array"]: np.array(rows)})
    return stream.getvalue()


MAKERS = {
    "sheets": sheets,
    "cbor": packed,
    "objects": objects,
    "payload": payload,
    "array": array,
}


def inner(row: dict[str, Any], names: str | list[str], which: int, place: int) -> bytes:
    """A zip of one recording, with a file a sensor."""
    whole = {}
    for number, name in enumerate([names] if isinstance(names, str) else names, which):
        head = row["heads"][number] if "heads" in row else row["head"]
        whole[name] = f"{head}\n{filled(row['lines'][number], row, '', '', place)}".encode()
    return zipped(whole)


def files_of(row: dict[str, Any], who: str, what: str, place: int) -> dict[str, bytes]:
    """The files of one label of one person, by path; those of one path follow each other."""
    said = {"who": who, "what": what, "place": place}
    if "zips" in row:
        found = {}
        for number, (path, names) in enumerate(row["zips"].items()):
            own = names.format(**said) if isinstance(names, str) else names
            found[path.format(**said)] = inner(row, own, number, place)
        return found
    for kind, make in MAKERS.items():
        if kind in row:
            return {row["path"].format(**said): make(row, place)}
    paths = row.get("paths") or {row["path"]: row["line"]}
    return {
        path.format(**said): filled(line, row, who, what, place).encode()
        for path, line in paths.items()
    }


def sample(row: dict[str, Any], folder: Path) -> Path:
    """Write some seconds of each label of each person."""
    whole: dict[str, bytes] = {}
    head = f"{row['head']}\n".encode() if "head" in row and "zips" not in row else b""
    for who in row["people"]:
        for place, what in enumerate(row["labels"]):
            for path, content in files_of(row, who, what, place).items():
                whole[path] = whole.get(path, head) + content
    whole |= {path: content.encode() for path, content in row.get("extra", {}).items()}
    for path, content in whole.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    return folder


@pytest.mark.parametrize("row", [pytest.param(row, id=row["format"]) for row in ROWS])
def test_a_sample_of_the_format_is_read(row: dict[str, Any], tmp_path: Path) -> None:
    folder = sample(row, tmp_path / "set")
    source = find_source(str(folder), {}, tmp_path, tmp_path, row["format"])
    found = prepare(
        source,
        window_steps=STEPS,
        window_stride=STEPS,
        cache=tmp_path / "cache",
        options={"format": row["format"], **row.get("asked", {})},
    )
    kept = [label for label in row["labels"].values() if label is not None]
    assert sorted(found.labels) == sorted(kept)
    assert found.held_out.groups == tuple(sorted(row["people"]))
    assert (found.signals.sampling_hz, found.channels) == (
        row.get("rate", row["hertz"]),
        row["channels"],
    )
    each = row["hertz"] * SECONDS // STEPS
    assert found.rows == each * len(row["people"]) * len(kept)
    for name, (vector, _) in (("acc", VECTORS["g"]), ("gyro", VECTORS["rad"])):
        places = [
            place
            for place, channel in enumerate(found.signals.channels)
            if channel.rpartition("_")[0].endswith(name)
        ]
        means = found.windows().mean(axis=(0, 1))[places]
        assert means == pytest.approx(vector * (len(places) // 3), abs=1e-5)


def test_each_format_has_a_sample_an_origin_a_licence_and_a_line_of_the_page() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert set(names()) == {row["format"] for row in ROWS}
    for name in names():
        form = described(name, FOLDER)
        assert form.origin is not None
        assert form.licence is not None
        assert f"`{name}`" in page
        assert form.origin in page


@pytest.mark.parametrize("seed", range(40))
def test_any_damage_is_one_line_or_none(seed: int, tmp_path: Path) -> None:
    """A traceback would fail this; what a draw leaves readable may still be read."""
    draw = random.Random(seed)
    row = ROWS[seed % len(ROWS)]
    folder = sample(row, tmp_path / "set")
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    for path in draw.sample(files, min(2, len(files))):
        content = bytearray(path.read_bytes())
        for _ in range(draw.choice([1, 3, 20])):
            place = draw.randrange(len(content))
            content[place : place + draw.choice([0, 1, 40])] = draw.choice(DAMAGE)
        path.write_bytes(content[: draw.choice([len(content), len(content), place])])
    source = find_source(str(folder), {}, tmp_path, tmp_path, row["format"])
    asked = {"format": row["format"], **row.get("asked", {})}
    said = str(folder)
    try:
        prepare(source, window_steps=STEPS, cache=tmp_path / "cache", options=asked)
    except DataError as problem:
        said = str(problem)
    assert str(folder) in said
    assert "\n" not in said
