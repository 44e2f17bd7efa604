"""tritonclient and KServe's client, unmodified, in an environment of their own."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.core.exported import small
from tests.habits import needs
from tests.ran import ran
from tests.recognise.service.exports import logits
from tests.recognise.service.running import served

TRITON = "tritonclient[http]==2.73.0"
KSERVE = "kserve==0.21.0"
SCRIPT = Path(__file__).with_name("ask_with_clients.py")
WINDOWS = np.random.default_rng(0).normal(size=(5, small.STEPS, small.CHANNELS)).astype(np.float32)
"""What the script sends."""


@pytest.mark.long
@pytest.mark.timeout(600)
def test_every_call_of_the_protocol_through_both_clients(tmp_path: Path) -> None:
    python = needs.packages(tmp_path / "clients", TRITON, KSERVE)
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    with served(tmp_path) as running:
        words = (python, SCRIPT, running.address, running.token, "1")
        asked = ran(*words, folder=tmp_path, environment=clean)
        found = json.loads(asked.stdout)
    of_triton(found["triton"])
    of_kserve(found["kserve"])


def of_triton(found: dict[str, Any]) -> None:
    calls = ("live", "ready", "model_ready", "version_ready", "other_ready")
    assert [found[call] for call in calls] == [True, True, True, True, False]
    assert (found["server"], found["model"]) == ("pscluster", "har")
    assert found["heads"] == [{"model_name": "har", "model_version": "1", "id": "one"}] * 4
    right(found["tensors"])
    assert "Authorization: Bearer TOKEN" in found["refused"]


def of_kserve(found: dict[str, Any]) -> None:
    assert [found[call] for call in ("live", "ready", "model_ready")] == [True, True, True]
    right(found["tensors"])
    assert "400 Bad Request" in found["refused"]


def right(answers: list[dict[str, Any]]) -> None:
    """The answers of the small export to the windows of the script, as JSON and as bytes."""
    expected = logits(WINDOWS)
    assert len(answers) == 4
    for tensors in answers:
        np.testing.assert_allclose(tensors["logits"], expected, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(np.sum(tensors["probabilities"], axis=1), 1, rtol=1e-5)
        assert tensors["labels"] == [("WALKING", "SITTING")[row] for row in expected.argmax(1)]
