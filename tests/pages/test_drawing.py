"""The live page as text: what is on it in every state of a run, and that nothing of a run becomes markup."""

import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from cluster.pages import words
from cluster.pages.class_tables import confusion_of, row_of
from cluster.pages.drawing import STATIC, Drawing
from cluster.pages.panels import picture_of
from cluster.pages.run_charts import charts_of
from cluster.pages.words import WORDS
from cluster.status.classes import counts_of
from cluster.status.view import ConfusionView, RunView
from tests.pages.example import HOSTILE, begun, estimating, failed, hostile, training
from tests.status.played_run import whole

EXAMPLES = [training(), training(2), estimating(), estimating(state="done"), begun(), failed(), hostile()]
NAMES = ["training", "two workers", "pi", "pi done", "begun", "failed", "hostile"]


def test_who_left_does_not_look_like_who_joined() -> None:
    assert {"joined", "suspected", "left", "drained", "failed"} <= WORDS.event_tones.keys()
    assert WORDS.event_tones["left"] == WORDS.event_tones["failed"] == "bad"
    assert WORDS.event_tones["joined"] == WORDS.event_tones["done"] == "well"
    text = Drawing().fragments(training())["log"]
    assert '<span class="kind bad"><span class="sign bad" aria-hidden="true"></span>left</span>' in text
    assert '<span class="kind well"><span class="sign well" aria-hidden="true"></span>joined</span>' in text
    assert not [event.kind for event in whole().view(60.0).events if event.kind not in WORDS.event_tones]


class Elements(HTMLParser):
    """Tags with their attributes, and that each is closed."""

    VOID = frozenset({"meta", "link", "img", "rect", "br"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


@pytest.mark.parametrize("view", EXAMPLES, ids=NAMES)
def test_the_page_is_well_formed_and_fits_a_strict_content_security_policy(view: RunView) -> None:
    elements = Elements(Drawing().page(view))
    for tag, attributes in elements.found:
        assert tag not in ("style", "iframe", "object", "img")
        assert "style" not in attributes
        assert not [name for name in attributes if name.startswith("on")], (tag, attributes)
        if tag == "script":
            assert "src" in attributes or attributes["type"] == "application/json"
        for name in ("src", "href"):
            address = attributes.get(name)
            assert address is None or re.fullmatch(r"static/[a-z./-]+|api/status", address), address
    identifiers = [attributes["id"] for _, attributes in elements.found if "id" in attributes]
    assert len(identifiers) == len(set(identifiers))


@pytest.mark.parametrize("view", EXAMPLES, ids=NAMES)
def test_the_parts_that_change_have_their_places_on_the_page(view: RunView) -> None:
    drawing = Drawing()
    page, fragments = Elements(drawing.page(view)), drawing.fragments(view)
    places = {attributes["sse-swap"] for _, attributes in page.found if "sse-swap" in attributes}
    assert places == set(fragments)
    for name, text in fragments.items():
        if name.startswith("chart-"):
            assert "\n" not in text
            assert not set("<>&") & set(text)
            assert json.loads(text)["id"] == name.removeprefix("chart-")
        else:
            Elements(text)


def test_nothing_of_a_run_becomes_markup() -> None:
    drawing = Drawing()
    for text in (drawing.page(hostile()), *drawing.fragments(hostile()).values()):
        assert "<img" not in text
        assert "<script>alert" not in text
    page = Elements(drawing.page(hostile()))
    assert sum(HOSTILE in word for word in page.words) > 10, "shown, as what it is"


def test_every_static_file_that_the_page_asks_for_is_there() -> None:
    for address in re.findall(r'(?:src|href)="static/([^"]+)"', Drawing().page(training())):
        assert (STATIC / address).is_file(), address


def test_no_chart_is_blank_before_there_is_anything_to_draw() -> None:
    for chart in charts_of(begun()):
        assert chart.is_empty
        assert chart.empty.startswith(("comes ", "was "))
        assert chart.empty in chart.summary
    page = Drawing().page(begun())
    assert page.count("<canvas") == page.count('class="canvas" hidden') + page.count('rows-0" hidden')
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
    assert [card.node.name for card in found.servers] == ["pi-head"]
    tones = {card.node.name: card.tone for card in found.workers}
    assert (tones["pi-00"], tones["pi-03"], tones["pi-11"], tones["pi-14"]) == ("well", "warning", "bad", "waiting")
    assert (found.live, found.configured) == (15, 16)
    assert found.pull_bytes_per_second == 9.8e6
    text = Drawing().fragments(training())["picture"]
    assert text.count('class="node ') == 17
    assert "was away once" in text


def test_a_state_that_is_not_known_is_shown_as_it_is() -> None:
    view = training(1)
    node = view.nodes[1]
    strange = replace(node, roles=(replace(node.roles[0], state="levitating"),))
    assert "levitating" in Drawing().fragments(replace(view, nodes=(strange,)))["picture"]


def test_the_words_of_the_page_are_explained() -> None:
    page = Drawing().page(training())
    for word in ("pull", "push", "staleness", "parameter server (ps)", "epoch", "window"):
        assert word in WORDS.glossary
        assert f"<dt>{word}</dt>" in page
    assert set(WORDS.role_states) >= {
        "absent",
        "joining",
        "idle",
        "busy",
        "suspect",
        "slow",
        "fenced",
        "drained",
        "up",
        "lost",
    }


def test_the_figures_of_the_classes() -> None:
    found = ConfusionView("test", ("a", "b", "never"), ((8, 2, 0), (1, 9, 0), (0, 0, 0)))
    first, second, never = map(row_of, counts_of(found.labels, found.rows))
    assert (first.precision, first.recall, first.windows) == (8 / 9, 0.8, 10)
    assert second.f1 == pytest.approx(2 * (9 / 11) * 0.9 / (9 / 11 + 0.9))
    assert (never.precision, never.recall, never.f1, never.windows) == (0.0, 0.0, 0.0, 0)
    cells = confusion_of(found)
    assert [cell.heat for cell in cells[0]] == [6, 2, 0]
    assert [cell.right for cell in cells[1]] == [False, True, False]
    assert cells[2][0].share == 0.0


def test_what_is_sent_stays_small() -> None:
    sent = sum(len(text) for text in Drawing().fragments(training(64)).values())
    assert sent < 120_000


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(None, words.NOTHING), (0.0, "0 ms"), (0.85, "850 ms"), (9.96, "10.0 s"), (12.5, "12 s"), (59.97, "1 min 0 s"),
     (200.0, "3 min 20 s"), (7500.0, "2 h 5 min"), (200_000.0, "2 d 7 h"), (float("nan"), words.NOTHING)],
)  # fmt: skip
def test_durations(seconds: float | None, shown: str) -> None:
    assert words.duration(seconds) == shown


def test_numbers() -> None:
    assert words.short(1_411.0) == "1.41 k"
    assert words.short(999_600.0) == "1000 k"
    assert words.short(80.0) == "80"
    assert words.amount(111_240.0) == "111 kB"
    assert words.amount(12.0) == "12 B"
    assert words.percent(0.9156, 2) == "91.56 %"
    assert words.label("WALKING_UPSTAIRS") == "Walking upstairs"
    assert words.label("Walking fast") == "Walking fast"
    assert words.significant(float("inf")) is None
