"""KTH's charts: a bar for what was reached, none for the rest, one place and colour for a setup in
all panels."""

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from experiments.tables import measured
from experiments.tables.kth_charts import CHARTS, SETUPS, alt, chart

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def kth(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(measured, "FOLDERS", (tmp_path,))
    return tmp_path / "kth.json"


def row(mode: str, rate: float, split: str, at: dict[str, Any]) -> dict[str, Any]:
    points = {}
    for mark, point in at.items():
        points[mark] = point and {"seconds": point[0], "accuracy": point[1]}
    return {"split": split, "mode": mode, "learning_rate": rate, "at": points}


def bars(name: str) -> list[ElementTree.Element]:
    found = ElementTree.fromstring(chart(name)).iter(f"{SVG}rect")
    return [one for one in found if one.get("class") == "bar"]


@pytest.mark.parametrize("name", CHARTS)
def test_without_a_file_the_chart_has_theirs_alone(kth: Path, name: str) -> None:
    assert len(bars(name)) == 6
    assert alt(name).endswith("nothing yet.")


def test_a_mark_that_no_training_has_reached_has_no_bar(kth: Path) -> None:
    rows = [
        row(
            "single",
            0.0025,
            "random",
            {"2000": (180.0, 0.64), "5000": (400.0, None), "10000": None},
        ),
        row("sync", 0.0025, "people", {"2000": (240.0, 0.5)}),
        row("async", 0.7, "people", {"2000": (1.0, 0.9)}),
    ]
    kth.write_text(json.dumps({"rows": rows}))
    titles = {name: [one.findtext(f"{SVG}title", "") for one in bars(name)][6:] for name in CHARTS}
    assert titles["kth-accuracy"] == [
        "one process, rate 0.0025, 2,000 updates: 0.64 accuracy",
        "sync, rate 0.0025, 2,000 updates: 0.50 accuracy",
    ]
    assert titles["kth-time"] == [
        "one process, rate 0.0025, 2,000 updates: 3.0 minutes",
        "one process, rate 0.0025, 5,000 updates: 6.7 minutes",
        "sync, rate 0.0025, 2,000 updates: 4.0 minutes",
    ]
    words = "Ours at random, accuracy: one process, rate 0.0025: 0.64 after 2,000 updates."
    assert words in alt("kth-accuracy")


def test_a_setup_has_one_place_and_one_colour_and_its_height_is_its_value(kth: Path) -> None:
    kth.write_text(json.dumps({"rows": [row("single", 0.0025, "random", {"2000": (60.0, 0.465)})]}))
    theirs, *_, ours = (one.attrib for one in bars("kth-accuracy"))
    assert (theirs["x"], theirs["fill"]) == (ours["x"], ours["fill"])
    assert float(theirs["height"]) == pytest.approx(2 * float(ours["height"]), abs=0.2)


def test_every_bar_stays_within_the_picture_and_setups_have_colours_of_their_own(kth: Path) -> None:
    assert len({setup.colour for setup in SETUPS}) == len(SETUPS)
    at = {"2000": (9e4, 1.0), "5000": (8e4, 0.5), "10000": (1e5, 0.0)}
    rows = [
        row(setup.mode or "", setup.learning_rate or 0.0, split, at)
        for setup in SETUPS
        for split in ("random", "people")
    ]
    kth.write_text(json.dumps({"rows": rows}))
    for name in CHARTS:
        picture = ElementTree.fromstring(chart(name)).attrib
        assert len(bars(name)) == 6 + 5 * 2 * 3
        for bar in bars(name):
            x, y, wide, tall = (float(bar.attrib[key]) for key in ("x", "y", "width", "height"))
            assert 0 <= x <= float(picture["width"]) - wide
            assert 0 <= y <= float(picture["height"]) - tall
