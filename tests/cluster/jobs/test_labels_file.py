"""`labels.csv` and the band of labels."""

from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.jobs.band import MOST_STRETCHES, Band
from cluster.jobs.labels_file import LabelsFile, best_of
from recognise.batches import ResultRow

LABELS = ("SITTING", "=WALKING()")


def logits(*rows: tuple[float, float]) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    return np.array(rows, np.float32).reshape(-1, 2)


def test_rows_stand_in_the_order_of_time_whatever_the_order_of_the_answers(tmp_path: Path) -> None:
    path = tmp_path / "labels.csv"
    with LabelsFile(path, LABELS, 1.28) as file:
        file.add(2, [ResultRow(9.0, "gap: 3 s")], logits())
        file.add(1, [ResultRow(3.0), ResultRow(4.0)], logits((0, np.log(3)), (np.nan, 0)))
        assert file.windows == 0
        file.add(
            0,
            [ResultRow(1.25), ResultRow(2.0, "sparse: so"), ResultRow(2.5)],
            logits((1, 1), (9, 0)),
        )
        assert not path.exists()
    assert path.read_text().splitlines() == [
        "time,label,confidence,note",
        "1.250,SITTING,0.5000,",
        "2.000,,,sparse: so",
        "2.500,SITTING,0.9999,",
        "3.000,'=WALKING(),0.7500,",
        "4.000,,,the answer is not finite",
        "9.000,,,gap: 3 s",
    ]
    assert (file.windows, file.unlabelled) == (4, 1)
    assert [total.windows for total in file.totals] == [2, 1]
    (span,) = file.band.spans()
    assert (span.label, span.begin, span.end) == (0, 0.0, 10.0)


def test_an_error_leaves_no_file(tmp_path: Path) -> None:
    with suppress(RuntimeError), LabelsFile(tmp_path / "labels.csv", LABELS, 1.0) as file:
        file.add(0, [ResultRow(1.0)], logits((0, 1)))
        raise RuntimeError("an answer did not come")
    assert list(tmp_path.iterdir()) == []


def test_the_softmax_of_large_logits_is_finite() -> None:
    labels, confidences = best_of(logits((1e30, -1e30), (0, 0)))
    assert labels.tolist() == [0, 0]
    assert confidences.tolist() == [1.0, 0.5]


@given(st.lists(st.tuples(st.floats(-1e11, 1e11), st.integers(0, 2)), max_size=60))
def test_spans_follow_one_another_and_none_is_empty(windows: list[tuple[float, int]]) -> None:
    band = Band(3, 1.28)
    for time, label in windows:
        band.add(time, label)
    spans = band.spans()
    assert bool(spans) == bool(windows)
    assert all(span.begin < span.end for span in spans)
    for before, after in pairwise(spans):
        assert before.end <= after.begin
        assert before.end < after.begin or before.label != after.label


def test_a_long_band_gets_coarser_and_keeps_its_length() -> None:
    band = Band(2, 1.28)
    days = 40
    for minute in range(days * 24 * 60):
        band.add(minute * 60.0, minute // 720 % 2)
    spans = band.spans()
    assert len(spans) == 2 * days <= MOST_STRETCHES
    assert spans[0].begin == 0
    assert spans[-1].end == pytest.approx(days * 86400, rel=0.01)
