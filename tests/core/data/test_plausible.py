"""Units that readings can be in, at every way in."""

from typing import Any

import numpy as np
import pytest

from core.data.filters import CHANNELS, NINE_UNITS
from core.data.signals import SIZE_PROBLEMS
from tests.core.data.desk import Desk
from tests.core.data.makers import Files, hapt_files, table
from tests.tables import table as rows


@pytest.mark.parametrize(("kind", "magnitude", "said"), rows("core/data/tables", "plausible"))
def test_about_one_g_and_turns_of_some_radians_are_plausible(
    kind: str, magnitude: float, said: str | None
) -> None:
    found = SIZE_PROBLEMS[kind](magnitude)
    assert found is None if said is None else said in str(found)


def npz(acceleration: float, rotation: float, **beside: Any) -> dict[str, Any]:
    """Windows of the nine channels, one person of two in other units."""
    windows = np.random.default_rng(4).normal(size=(40, 16, 9))
    windows[..., -1] += 1.0
    windows[20:30] *= np.repeat([acceleration, rotation, acceleration], 3)
    arrays = {"x": windows, "y": np.arange(40) % 2, "subject": np.repeat([1, 2, 3], [20, 10, 10])}
    train = {f"{name}_train": array[:30] for name, array in arrays.items()}
    test = {f"{name}_test": array[30:] for name, array in arrays.items()}
    return {**train, **test, "channels": CHANNELS, **beside}


def hapt(acceleration: float, rotation: float) -> Files:
    files = hapt_files()
    for sensor, factor in (("acc", acceleration), ("gyro", rotation)):
        name = f"RawData/{sensor}_exp02_user02.txt"
        files[name] = table(factor * np.loadtxt(files[name].decode().splitlines()))
    return files


@pytest.mark.parametrize(("factors", "said"), rows("core/data/tables", "other units"))
@pytest.mark.parametrize(
    ("way", "name", "whose"),
    [
        (hapt, "set", "02 02: "),
        (npz, "my.npz", "subject 2: "),
    ],
)
def test_one_person_in_other_units_is_refused_by_every_reader(
    desk: Desk, way: Any, name: str, whose: str, factors: list[float], said: str
) -> None:
    desk.refuses(f"{whose} ... {said}", name, way(*factors))


def test_acceleration_without_gravity_is_refused_wherever_its_channels_stand(desk: Desk) -> None:
    content = npz(1.0, 1.0)
    assert desk.read("mine.npz", content).signals.channels == CHANNELS
    for name in ("x_train", "x_test"):
        content[name] = (content[name] - content[name].mean(axis=1, keepdims=True))[..., ::-1]
    said = "subject 1: total_acc: the mean acceleration has no direction; ... Give total_acc_x"
    desk.refuses(said, "mine.npz", content | {"channels": CHANNELS[::-1]})


@pytest.mark.parametrize(("unit", "factor"), [("m/s2", 9.80665), ("g", 1.0)])
def test_windows_in_units_that_their_file_states_are_taken_as_they_are(
    desk: Desk, unit: str, factor: float
) -> None:
    units = tuple(stated.replace("g", unit) for stated in NINE_UNITS)
    assert desk.read("mine.npz", npz(factor, 1.0, units=units)).signals.units == units


@pytest.mark.parametrize(("steps", "factor"), [(16, 9.80665), (64, 0.1)])
def test_a_part_of_the_windows_in_another_unit_is_refused(
    desk: Desk, steps: int, factor: float
) -> None:
    windows = np.random.default_rng(4).normal(size=(40, steps, 9), scale=0.1)
    windows[..., -1] += 1.0
    content = {"x_train": windows[:30], "x_test": windows[30:], "channels": CHANNELS}
    content |= {"y_train": np.arange(30) % 2, "y_test": np.arange(10) % 2}
    desk.read("mine.npz", content)
    windows[4:8, :, -3:] *= factor
    desk.refuses("4 of 40 windows: total_acc: mean acceleration", "mine.npz", content)
