"""A run on disk: what comes back is what was there, whatever happened to the file."""

import json
import os
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.ground.errors import ClusterError
from core.status import events, history
from core.status.apply import replay
from core.status.events import (
    Ended,
    FiguresComputed,
    Resumed,
    Stamped,
)
from core.status.history import (
    KEPT,
    NAME,
    HistoryFile,
    condensed_events,
    event_of,
    events_in,
    finite,
    line_of,
    read_events,
    sums_of_state,
)
from core.status.parts import ClassCount, Figures, MixUp
from core.status.past_run import read_run
from core.status.view import RunView
from tests.core.status.history_files import kept, taken
from tests.core.status.pictures import picture
from tests.core.status.played_run import (
    AVERAGES,
    FIGURES,
    RUN,
    STARTED,
    begun,
    fresh,
    pi,
    whole,
)
from tests.core.status.stories import STORIES, read_back, told
from tests.tables import table

LIVE = ["state", "work", "windows_per_second", "sent_bytes_per_second"]
LIVE += ["received_bytes_per_second"]


def same(first: RunView, second: RunView) -> None:
    """But for what is only known of a run that goes on."""
    one, two = picture(first), picture(second)
    for found in (one, two):
        for key in ("remaining_seconds", "windows_per_second"):
            del found[key]
        for role in found["roles"].values():
            for live in LIVE:
                del role[live]
    assert one == two


@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES)
def test_everything_comes_back(story: dict[str, Any]) -> None:
    *_, (played, at, _) = told(story)
    same(read_back(played, at).view(at), played.view(at))
    assert max(seconds for seconds, _ in condensed_events(played.state, at)) == at


def test_what_was_appended_one_by_one_comes_back_too(tmp_path: Path) -> None:
    file = kept(fresh(), tmp_path, 0.5)
    everything = whole()
    file.write([*everything.kept[1:], (60.0, sums_of_state(everything.state))])
    first = json.loads((tmp_path / NAME).read_text().splitlines()[0])
    began = {"event": "began", "schema": 1, "started": "2026-01-01T00:00:00.000+00:00"}
    assert {key: first[key] for key in began} == began
    same(replay(read_events(tmp_path)).view(60.0), everything.view(60.0))


PAST = table("core/status/past_runs")
REGRESSION = Figures(loss=2.5, others={"r2": 0.5, "mae": 1.25})
COUNTS = (ClassCount("rain", 5, 1, 2),)
MIX_UPS = (MixUp("rain", "snow", 2),)
ONE_OF_EACH: list[Stamped] = [
    *((at, getattr(events, name)(*given)) for at, name, *given in PAST["one of each"]),
    (11.0, FiguresComputed("test", REGRESSION, counts=COUNTS, mix_ups=MIX_UPS)),
]


def test_every_event_of_the_file_comes_back_as_it_was() -> None:
    runs = [whole(), pi()]
    found = [
        stamped
        for played in runs
        for stamped in (*played.kept, *condensed_events(played.state, 60.0))
    ] + ONE_OF_EACH
    found += [(70.0, Ended("failed", "x")), (71.0, Resumed(70.0)), (72.0, KEPT["cut"](4))]  # type: ignore[call-arg, arg-type]
    assert {type(event) for _, event in found} == set(KEPT.values())
    for at, event in found:
        line = line_of(event, at, STARTED)
        assert event_of(line) == (at, event)
        written = json.loads(line)
        assert written.keys() == {
            "event",
            "time",
            "seconds",
            *(field.name for field in fields(event)),
        }
        assert KEPT[written["event"]] is type(event)


def test_an_epoch_is_a_line_with_what_a_script_wants(tmp_path: Path) -> None:
    kept(whole(), tmp_path, 60.0)
    lines = [json.loads(line) for line in (tmp_path / NAME).read_text().splitlines()]
    (found,) = [line for line in lines if line["event"] == "epoch"]
    averages = dict.fromkeys(AVERAGES, 0.7)
    assert found == {
        "event": "epoch",
        "time": "2026-01-01T00:01:00.000+00:00",
        "seconds": 60.0,
        "stage": "train",
        "epoch": 1,
        "loss": 0.5,
        "accuracy": 0.8,
        "rate": 0.01,
        "windows_per_second": 20.0,
        "seconds_left": 12.0,
        "validation": {"loss": 0.6, "accuracy": 0.75, **averages, "others": {}},
    }


A_RUN = whole()


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.binary(max_size=40))
def test_a_damaged_file_gives_what_is_whole(cut: int, noise: bytes) -> None:
    written = condensed_events(A_RUN.state, 60.0)
    content = b"".join(line_of(event, at, STARTED) for at, event in written)
    place = cut % len(content)
    damaged = content[:place].count(b"\n")
    found = list(events_in((content[:place] + noise + content[place:]).splitlines()))
    after = len(written) - damaged - 1
    assert len(written) - 1 <= len(found) <= len(written)
    assert found[:damaged] == written[:damaged]
    assert found[len(found) - after :] == written[damaged + 1 :]
    assert replay(found).view(60.0).samples


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.just("worker:0"),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from(["worker:0", "x"]), inner, max_size=2),
    max_leaves=5,
)


TRUE_LINES = [*A_RUN.kept, *condensed_events(A_RUN.state, 60.0), *ONE_OF_EACH]


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_a_foreign_line_is_an_event_of_its_types_or_none(data: st.DataObject) -> None:
    """Every field of a true line is replaced by something else: it is refused, or harmless."""
    at, event = data.draw(st.sampled_from(TRUE_LINES))
    line = json.loads(line_of(event, at, STARTED))
    line[data.draw(st.sampled_from([key for key in line if key != "event"]))] = data.draw(VALUES)
    found = [stamped for stamped in [event_of(json.dumps(line).encode())] if stamped is not None]
    state = replay(found, A_RUN.state)
    json.dumps(finite(state.view(60.0).__dict__), default=lambda part: part.__dict__)


NOTED = {"event": "noted", "time": "2026-01-01T00:00:00Z", "seconds": 1.0, "kind": "x"}
FOREIGN = {
    **PAST["foreign"],
    "deep": "[" * 100_000,
    "a long text": json.dumps({**NOTED, "text": "x" * 10**6}),
}


@pytest.mark.parametrize("line", FOREIGN.values(), ids=FOREIGN)
def test_a_line_that_cannot_be_understood_is_left_out(tmp_path: Path, line: str) -> None:
    played = whole()
    kept(played, tmp_path, 60.0)
    with (tmp_path / NAME).open("a") as stream:
        stream.write(line)
    assert read_run(tmp_path).samples == played.view(60.0).samples
    assert not any(event.kind == "x" for event in read_run(tmp_path).events)


def test_a_matrix_that_is_none_is_left_out() -> None:
    line = json.loads(line_of(whole().kept[-1][1], 1.0, STARTED))
    assert line["event"] == "figures"
    assert event_of(json.dumps({**line, "rows": [[1, 2]]}).encode()) is None
    with pytest.raises(ValueError, match="expected 2 rows and columns"):
        FiguresComputed("test", FIGURES, ("a", "b"), ((1, 2),))


def test_a_history_that_is_no_file_is_none(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / NAME)
    assert list(read_events(tmp_path)) == []
    (tmp_path / NAME).unlink()
    (tmp_path / NAME).mkdir()
    assert list(read_events(tmp_path)) == []


def test_the_file_stays_small(tmp_path: Path) -> None:
    played = begun()
    file = HistoryFile(
        tmp_path, STARTED, lambda: condensed_events(played.state, 0.0), largest=20_000
    )
    for at in range(0, 1000, 10):
        played.work(at, at + 10)
        assert file.write(taken(played))
        state = [line_of(event, at, STARTED) for at, event in condensed_events(played.state, 0.0)]
        assert (tmp_path / NAME).stat().st_size < 2 * sum(map(len, state)) + 20_000
    assert replay(read_events(tmp_path)).samples.series == played.state.samples.series


def test_a_disk_that_takes_nothing_for_a_while_costs_nothing_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    played = begun()
    file = kept(played, tmp_path, 1.0)

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    def refused(*_: Any) -> None:
        raise ClusterError("full")

    with monkeypatch.context() as broken:
        broken.setattr(os, "write", full)
        broken.setattr(history, "atomic_write", refused)
        for second in range(5):
            played.work(second + 1, second + 2)
            assert not file.write(taken(played))
    assert file.write([])
    assert replay(read_events(tmp_path)).samples.series == played.state.samples.series


def test_half_a_write_is_made_good(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    played = begun()
    file = kept(played, tmp_path, 1.0)
    played.work(1, 4)
    write = os.write
    with monkeypatch.context() as broken:
        broken.setattr(
            os, "write", lambda descriptor, content: write(descriptor, content[: len(content) // 2])
        )
        assert not file.write(taken(played))
    assert read_run(tmp_path).run == RUN
    assert file.write([])
    assert read_run(tmp_path).samples == played.view(4.0).samples
