"""The formats take turns, and a run that is there is not trained again."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments import export


def test_all_take_turns_and_are_compared_within_their_round() -> None:
    said: list[str] = []

    def answer(name: str) -> Any:
        def answered(window: Any) -> Any:
            said.append(name)
            return window

        return answered

    found = export.interleaved(
        {"tensorflow": answer("a"), "onnx": answer("b")}, np.zeros((4, 2, 1), np.float32), 2
    )
    assert said == (["a"] * export.CALLS + ["b"] * export.CALLS) * 3  # the first turn warms up
    assert found["tensorflow"]["tensorflow_over_it"] == 1.0
    assert (
        found["onnx"]["lower_quartile"]
        <= found["onnx"]["tensorflow_over_it"]
        <= found["onnx"]["upper_quartile"]
    )


def test_a_run_that_is_there_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tmp_path / "kth" / "20260101T000000Z-train"
    run.mkdir(parents=True)
    (run / "result.json").write_text(json.dumps({"status": "done"}))
    monkeypatch.setattr(export, "subprocess", None)
    assert export.trained("kth", tmp_path) == run


def test_an_app_is_exported_in_float32_alone_and_to_keras_where_it_is_of_keras() -> None:
    assert export.formats_of("kth") == export.FORMATS
    names = [to for to, quantized in export.formats_of("examples/digits") if not quantized]
    assert names == ["onnx", "litert", "savedmodel", "keras"]
    assert [to for to, _ in export.formats_of("examples/bare")] == names[:3]
    assert all((export.PROJECT / app).exists() for app in export.APPS)
