"""What a manifest says of signals is refused where no preparation wrote it, or a model lacks it."""

from typing import Any

import pytest

from core.data.filters import input_mapping, signals_of_device
from core.data.signals import ACCELERATION, Sensor, Signals
from core.ground.errors import UsageError
from tests.tables import table

AXES = ["acc_x", "acc_y", "acc_z"]
FACTS: dict[str, Any] = {"channels": AXES, "units": ["g"] * 3, "sensors": {"acc": ACCELERATION}}


@pytest.mark.parametrize(("facts", "problem"), table("core/data/tables", "wrong facts"))
def test_facts_that_no_preparation_writes(facts: dict[str, Any], problem: str) -> None:
    assert Signals.of(FACTS, 3).sensors == (Sensor("acc", ACCELERATION),)
    with pytest.raises(ValueError, match=problem):
        Signals.of(FACTS | facts, 3)


MODEL = Signals.of(FACTS, 3)
OTHER_UNIT = Signals.of(FACTS | {"units": ["uT"] * 3, "sensors": {}}, 3)


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        (Signals.of({"channels": ["acc_x"], "units": ["g"]}, 1), "which is not among acc_x"),
        (OTHER_UNIT, "acc_x: the model takes g, got uT; convert it first"),
        (
            Signals.of(FACTS | {"sensors": {"acc": "magnetic field"}, "units": ["uT"] * 3}, 3),
            "the model takes acceleration as acc, got magnetic field; give that under this name",
        ),
    ],
)
def test_a_source_that_lacks_what_the_model_takes(source: Signals, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        input_mapping(source, MODEL)


def test_a_device_without_names_of_which_the_model_has_two_sensors() -> None:
    channels = [f"{name}_{axis}" for name in ("left", "right") for axis in "xyz"]
    sensors = {"left": ACCELERATION, "right": ACCELERATION}
    model = Signals.of({"channels": channels, "units": ["g"] * 6, "sensors": sensors}, 6)
    with pytest.raises(UsageError, match="takes acceleration of left, right, and a device without"):
        signals_of_device(model, [ACCELERATION], ["g"])
