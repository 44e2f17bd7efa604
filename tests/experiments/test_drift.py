"""`experiments.drift`: each row is a change of windows, with the figures that a service would
export."""

from pathlib import Path

import numpy as np
import pytest

from core.data.filters import CHANNELS
from core.exported import open_model
from experiments.drift import BATCHES, CHANGES, costs, greatest, halved, main, row_of, scaled
from recognise.service.drift import LEAST_WINDOWS
from tests.recognise.exports import STEPS, export

WINDOWS = (
    np.random.default_rng(0)
    .normal(size=(LEAST_WINDOWS // 2, STEPS, len(CHANNELS)))
    .astype(np.float32)
)
CLASSES = np.ones(len(WINDOWS), np.int32)


def test_every_change_keeps_the_shape_and_leaves_the_windows_as_they_were() -> None:
    before = WINDOWS.copy()
    for name, change in CHANGES.items():
        assert change(WINDOWS).shape == WINDOWS.shape, name
    np.testing.assert_array_equal(WINDOWS, before)
    np.testing.assert_array_equal(halved(WINDOWS)[:, 2:4], np.stack([WINDOWS[:, 1]] * 2, axis=1))


def test_few_windows_count_several_times_and_a_scale_is_a_distance(tmp_path: Path) -> None:
    model = open_model(export(tmp_path / "export"))
    near = row_of("near", model, WINDOWS, CLASSES)
    far = row_of("far", model, scaled((4,), 4.0)(WINDOWS), CLASSES)
    assert near["distance"] < 0.1
    assert (far["channel"], far["distance"]) == (CHANNELS[4], pytest.approx(3, abs=0.1))
    assert near["accuracy"] == 1
    assert greatest("both", [near, far]) == {
        "name": "both",
        "low_confidence": near["low_confidence"],
        "distance": far["distance"],
    }
    found = costs(model, WINDOWS, 2)
    assert list(found) == [str(count) for count in BATCHES]
    assert all(one["milliseconds"] > 0 and one["share_of_model"] > 0 for one in found.values())


def test_what_is_no_export_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["drift", str(tmp_path)])
        assert main() == 2
    assert "export.json" in capsys.readouterr().err
