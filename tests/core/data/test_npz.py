"""Somebody's own windows in an `.npz`."""

from typing import Any

import numpy as np
import pytest

from core.data.show import portrait_of, window_sections
from core.data.signals import Signals
from core.web.sections import terminal_lines
from tests.core.data.desk import Desk, has, wrong
from tests.core.data.npz_files import Arrays, changed, sample


def test_any_window_length_channels_and_classes_are_taken_as_they_are(desk: Desk) -> None:
    content = sample()
    dataset = desk.read("rowing.npz", content)
    has(
        dataset,
        name="rowing",
        input_shape=(64, 6),
        train_windows=12,
        test_windows=8,
        labels=("rest", "row", "skip", "jump"),
        classes=[*content["y_train"], *content["y_test"]],
        subjects=[1] * 6 + [2] * 6 + [3] * 8,
    )
    given = np.concatenate([content["x_train"], content["x_test"]])
    np.testing.assert_array_equal(dataset.windows(), given.astype(np.float32))


@pytest.mark.parametrize("name", ["Übung 7: rudern", "x" * 240])
def test_the_files_name_is_the_sets_name_whatever_it_is(desk: Desk, name: str) -> None:
    dataset = desk.read(f"{name}.npz", sample())
    assert dataset.name == name
    assert dataset.folder.name.isascii()


NAMES = ("rest", "row", "skip", "jump")


@pytest.mark.parametrize(
    ("spoken", "given", "labels", "classes"),
    [
        ([5, 15, 25, 35], {}, ("5", "15", "25", "35"), [0, 1, 2, 3]),
        (NAMES, {"labels": NAMES}, NAMES, [0, 1, 2, 3]),
        (NAMES, {}, ("jump", "rest", "row", "skip"), [1, 2, 3, 0]),
    ],
)
def test_classes_may_be_any_numbers_or_text_and_subjects_and_labels_left_out(
    desk: Desk, spoken: Any, given: Arrays, labels: tuple[str, ...], classes: list[int]
) -> None:
    content = {name: value for name, value in sample().items() if name[0] == "x"}
    content |= {"y_train": np.tile(spoken, 3), "y_test": np.tile(spoken, 2), **given}
    dataset = desk.read("own.npz", content)
    has(dataset, labels=labels, classes=classes * 5, subjects=[-1] * 20)


CHANNELS = ("ax", "ay", "az", "gx", "gy", "gz")


@pytest.mark.parametrize("width", [3, 6, 9])
def test_nothing_is_known_of_channels_that_a_file_does_not_name(desk: Desk, width: int) -> None:
    x = np.random.default_rng(3).normal(size=(20, 64, width))
    dataset = desk.read("plain.npz", sample() | {"x_train": x[:12], "x_test": x[12:]})
    assert dataset.signals == Signals()
    portrait = portrait_of(dataset)
    assert [row["name"] for row in portrait["channels"]] == [str(place) for place in range(width)]
    assert "channels: not stated: names, units, rate, filters" in list(
        terminal_lines(window_sections(portrait))
    )


@pytest.mark.parametrize("shape", [(), (1,)])
@pytest.mark.parametrize("beside", [{}, {"task": "classification", "standardized": True}])
def test_a_file_may_say_its_channels_units_rate_and_filters(
    desk: Desk, shape: tuple[int, ...], beside: Arrays
) -> None:
    said = {"units": "g", "sampling_hz": np.float32(50.0), "filters": "causal"}
    content = sample() | beside | {"channels": CHANNELS}
    content |= {name: np.full(shape, value) for name, value in said.items()}
    for _ in range(2):  # prepared, then taken from the cache
        dataset = desk.read("said.npz", content)
        assert dataset.signals == Signals(CHANNELS, ("g",) * 6, 50.0, "causal")
    portrait = portrait_of(dataset)
    assert [row["name"] for row in portrait["channels"]] == list(CHANNELS)
    assert portrait["signals"] == "50 Hz, causal filters, in g"


@wrong("npz")
def test_what_cannot_be_used_is_one_error_that_names_array_and_remedy(
    desk: Desk, row: Arrays
) -> None:
    desk.refuses(row["says"], "own.npz", changed(sample(), row))


def test_a_window_length_that_was_asked_for_must_be_the_files_own(desk: Desk) -> None:
    assert desk.read("own.npz", sample(), window_steps=64).window_steps == 64
    desk.refuses("its windows have 64 steps, got 100", "own.npz", window_steps=100)
