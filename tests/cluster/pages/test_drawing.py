"""The live page as text: every state of a run, and nothing of a run becomes markup."""

import json
import re
from dataclasses import replace
from typing import Any

import pytest

from cluster.pages import words
from cluster.pages.drawing import (
    MOST_CARDS,
    STATIC,
    Drawing,
    heat,
    picture_of,
    scores_of,
    worst_tone,
)
from cluster.pages.rows import charts_of
from cluster.pages.words import WORDS
from core import web
from core.status.parts import counts_of
from core.status.view import ConfusionView, RunView
from tests.cluster.pages.elements import Elements
from tests.cluster.pages.example import HOSTILE, begun, estimating, failed, hostile, training
from tests.core.status.played_run import whole
from tests.tables import table

EXAMPLES = [
    training(),
    training(2),
    estimating(),
    estimating(state="done"),
    begun(),
    failed(),
    hostile(),
]
NAMES = ["training", "two workers", "pi", "pi done", "begun", "failed", "hostile"]


def test_who_left_does_not_look_like_who_joined() -> None:
    tones = WORDS["event_tones"]
    assert {"joined", "suspected", "left", "drained", "failed"} <= tones.keys()
    assert tones["left"] == tones["failed"] == "bad"
    assert tones["joined"] == tones["done"] == "well"
    text = Drawing().fragments(training())["log"]
    for kind in ("left", "joined"):
        tone = tones[kind]
        sign = f'<span class="sign {tone}" aria-hidden="true"></span>'
        assert f'<span class="kind {tone}">{sign}{kind}</span>' in text
    assert {event.kind for event in whole().view(60.0).events} <= tones.keys()


@pytest.mark.parametrize("view", EXAMPLES, ids=NAMES)
def test_the_page_is_well_formed_and_fits_a_strict_content_security_policy(view: RunView) -> None:
    page = Elements(Drawing().page(view))
    page.runs_no_foreign_code()
    assert page.all("style") == []
    for tag, attributes in page.found:
        assert tag not in ("style", "iframe", "object", "img")
        if tag == "script":
            assert "src" in attributes or attributes["type"] == "application/json"
    for address in page.all("src") + page.all("href"):
        assert address is None or re.fullmatch(r"static/[a-z./-]+|api/status", address), address


@pytest.mark.parametrize("view", EXAMPLES, ids=NAMES)
def test_the_parts_that_change_have_their_places_on_the_page(view: RunView) -> None:
    drawing = Drawing()
    fragments = drawing.fragments(view)
    assert set(Elements(drawing.page(view)).all("sse-swap")) == set(fragments)
    for name, text in fragments.items():
        if name.startswith("chart-"):
            assert not set("\n<>&") & set(text)
            assert json.loads(text)["id"] == name.removeprefix("chart-")
        else:
            Elements(text).runs_no_foreign_code()


def test_nothing_of_a_run_becomes_markup() -> None:
    page = Elements(Drawing().page(hostile()))
    assert sum(HOSTILE in word for word in page.words) > 10, "shown, as what it is"


def test_every_static_file_that_the_page_asks_for_is_there() -> None:
    for address in re.findall(r'(?:src|href)="static/([^"]+)"', Drawing().page(training())):
        assert any((folder / address).is_file() for folder in (STATIC, web.STATIC)), address


def test_no_chart_is_blank_before_there_is_anything_to_draw() -> None:
    for chart in charts_of(begun()):
        assert chart.is_empty
        assert chart.empty.startswith(("comes ", "was "))
        assert chart.empty in chart.summary
    page = Drawing().page(begun())
    assert page.count("<canvas") == page.count('class="canvas" hidden') + page.count(
        'rows-0" hidden'
    )
    assert "Comes after the first epoch" in page


@pytest.mark.parametrize("view", [training(), estimating()], ids=["training", "pi"])
def test_every_chart_is_there_in_words_and_numbers_too(view: RunView) -> None:
    for chart in charts_of(view):
        heads, rows = chart.table()
        assert rows, chart.id
        assert all(len(row) == len(heads) for row in rows), chart.id
        assert len(chart.summary) > len(chart.title) + 5
        assert chart.hint.endswith(".")


def test_the_picture_says_how_each_node_is() -> None:
    found = picture_of(training())
    assert [node.name for node in found["servers"]] == ["pi-head"]
    tones = {node.name: worst_tone(node.roles) for node in found["workers"]}
    expected = {"pi-00": "well", "pi-03": "warning", "pi-11": "bad", "pi-14": "waiting"}
    assert expected.items() <= tones.items()
    assert "15 of 16" in Drawing().fragments(training())["tiles"]
    assert found["pull"] == 9.8e6
    text = Drawing().fragments(training())["picture"]
    assert text.count('class="node ') == 17
    assert "was away once" in text


def test_a_crowd_shows_the_workers_that_stand_out() -> None:
    view = training(1)
    (like,) = (node for node in view.nodes if node.name == "pi-00")
    names = [f"worker:{number}" for number in range(128)]
    crowd = [replace(like.roles[0], task=name, windows_per_second=9.0) for name in names]
    crowd[70] = replace(crowd[70], state="absent")
    crowd[90] = replace(crowd[90], windows_per_second=8.0)
    picture = picture_of(replace(view, nodes=(replace(like, roles=tuple(crowd)),)))
    (node,) = picture["workers"]
    assert len(node.roles) == MOST_CARDS
    assert {crowd[70], crowd[90]} <= {*node.roles}
    assert (picture["folded"], picture["slowest"]) == (128 - MOST_CARDS, 9.0)
    text = Drawing().fragments(replace(view, nodes=(replace(like, roles=tuple(crowd)),)))["picture"]
    assert "104 more workers, at 9 windows/s" in text


def test_a_state_that_is_not_known_is_shown_as_it_is() -> None:
    view = training(1)
    node = view.nodes[1]
    strange = replace(node, roles=(replace(node.roles[0], state="levitating"),))
    assert "levitating" in Drawing().fragments(replace(view, nodes=(strange,)))["picture"]


def test_the_figures_of_the_classes() -> None:
    rows = ((8, 2, 0), (1, 9, 0), (0, 0, 0))
    first, second, never = map(scores_of, counts_of(("a", "b", "never"), rows))
    assert (first["precision"], first["recall"], first["windows"]) == (8 / 9, 0.8, 10)
    assert second["f1"] == pytest.approx(2 * (9 / 11) * 0.9 / (9 / 11 + 0.9))
    assert [*never.values()] == ["never", 0.0, 0.0, 0.0, 0]
    assert [heat(share) for share in (0.8, 0.2, 0.001, 0.0)] == [6, 2, 1, 0]
    view = replace(training(), confusion=ConfusionView("test", ("a", "b", "never"), rows))
    text = Drawing().fragments(view)["confusion"]
    assert (
        '<td class="heat-6 right">8<span class="share">80 %</span></td><td class="heat-2">2' in text
    )
    assert '<td class="heat-0 right">0<span class="share">0 %</span></td>' in text


def test_what_is_sent_stays_small() -> None:
    sent = sum(len(text) for text in Drawing().fragments(training(64)).values())
    assert sent < 120_000


@pytest.mark.parametrize(
    ("seconds", "shown"),
    table("cluster/pages/rows", "durations"),
)
def test_durations(seconds: float | None, shown: str) -> None:
    assert words.duration(seconds) == shown


@pytest.mark.parametrize(("function", "values", "expected"), table("cluster/pages/rows", "numbers"))
def test_numbers(function: str, values: list[Any], expected: str | None) -> None:
    assert getattr(words, function)(*values) == expected
