"""KTH's charts: a bar for what was reached, none for the rest, one place and colour for a setup in all panels."""

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tools import measured
from tools.kth_charts import CHARTS, SETUPS, alt, chart

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def kth(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(measured, "RESULTS", tmp_path)
    return tmp_path / "kth.json"


def row(mode: str, rate: float, split: str, **at: tuple[float, float | None] | None) -> dict[str, Any]:
    points = {
        key.removeprefix("m"): None if point is None else {"seconds": point[0], "accuracy": point[1]}
        for key, point in at.items()
    }
    return {"split": split, "mode": mode, "learning_rate": rate, "at": points}


def bars(name: str) -> list[ElementTree.Element]:
    return [one for one in ElementTree.fromstring(chart(name)).iter(f"{SVG}rect") if one.get("class") == "bar"]


def words(name: str) -> list[str]:
    return [one.findtext(f"{SVG}title", "") for one in bars(name)]


@pytest.mark.parametrize("name", CHARTS)
def test_without_a_file_the_chart_has_theirs_alone(kth: Path, name: str) -> None:
    assert len(bars(name)) == 6
    assert alt(name).endswith("nothing yet.")


def test_a_mark_that_no_training_has_reached_has_no_bar(kth: Path) -> None:
    rows = [
        row("single", 0.0025, "random", m2000=(180.0, 0.64), m5000=(400.0, None), m10000=None),
        row("sync", 0.0025, "people", m2000=(240.0, 0.5)),
        row("async", 0.7, "people", m2000=(1.0, 0.9)),
    ]
    kth.write_text(json.dumps({"rows": rows}))
    assert words("kth-accuracy")[6:] == [
        "one process, rate 0.0025, 2,000 updates: 0.64 accuracy", "sync, rate 0.0025, 2,000 updates: 0.50 accuracy"
    ]  # fmt: skip
    assert words("kth-time")[6:] == [
        "one process, rate 0.0025, 2,000 updates: 3.0 minutes",
        "one process, rate 0.0025, 5,000 updates: 6.7 minutes",
        "sync, rate 0.0025, 2,000 updates: 4.0 minutes",
    ]
    assert "Ours at random, accuracy: one process, rate 0.0025: 0.64 after 2,000 updates." in alt("kth-accuracy")


def test_a_setup_has_one_place_and_one_colour_and_its_height_is_its_value(kth: Path) -> None:
    kth.write_text(json.dumps({"rows": [row("single", 0.0025, "random", m2000=(60.0, 0.465))]}))
    theirs, *_, ours = bars("kth-accuracy")
    assert (theirs.get("x"), theirs.get("fill")) == (ours.get("x"), ours.get("fill"))
    assert float(theirs.get("height", 0)) == pytest.approx(2 * float(ours.get("height", 0)), abs=0.2)


def test_every_bar_stays_within_the_picture_and_setups_have_colours_of_their_own(kth: Path) -> None:
    assert len({setup.colour for setup in SETUPS}) == len(SETUPS)
    rows = [
        row(setup.mode or "", setup.learning_rate or 0.0, split, m2000=(9e4, 1.0), m5000=(8e4, 0.5), m10000=(1e5, 0.0))
        for setup in SETUPS
        for split in ("random", "people")
    ]
    kth.write_text(json.dumps({"rows": rows}))
    for name in CHARTS:
        picture = ElementTree.fromstring(chart(name))
        assert len(bars(name)) == 6 + 5 * 2 * 3
        for bar in bars(name):
            x, y, wide, tall = (float(bar.get(key, "nan")) for key in ("x", "y", "width", "height"))
            assert x >= 0
            assert y >= 0
            assert x + wide <= float(picture.get("width", 0))
            assert y + tall <= float(picture.get("height", 0))
