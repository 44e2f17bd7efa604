"""ONNX Runtime reports nothing to anybody.

It makes no identifier of the machine, and asks no name of the network.
"""

import os
from pathlib import Path

import pytest

from core.exported.runtimes import no_telemetry
from tests.ran import PROJECT, python
from tests.recognise.exports import export

OPENS = """
import os, sys, time
from pathlib import Path
from core.exported import open_model
import numpy as np
model = open_model(Path(sys.argv[1]))
model.logits(np.zeros((1, *model.description.input.shape), np.float32))
time.sleep(1)
print(sorted(path.name for path in Path(os.environ["HOME"]).rglob("*") if path.is_file()))
"""


def test_an_opened_export_makes_no_identifier_of_the_machine(tmp_path: Path) -> None:
    """ONNX Runtime alone leaves one in the account's home."""
    home = tmp_path / "home"
    home.mkdir()
    left_out = ("ORT_DISABLE_TELEMETRY", "XDG_CACHE_HOME", "CI", "GITHUB_ACTIONS", "TF_BUILD")
    kept = {name: value for name, value in os.environ.items() if name not in left_out}
    environment = {**kept, "HOME": str(home), "PYTHONPATH": str(PROJECT)}
    environment["PYTHONDONTWRITEBYTECODE"] = "1"
    exported = export(tmp_path / "export")
    assert python("-c", OPENS, exported, environment=environment).splitlines()[-1] == "[]"


@pytest.mark.parametrize(("before", "after"), [(None, "1"), ("0", "0"), ("true", "true")])
def test_what_a_person_has_set_stays(
    monkeypatch: pytest.MonkeyPatch, before: str | None, after: str
) -> None:
    monkeypatch.delenv("ORT_DISABLE_TELEMETRY", raising=False)
    if before is not None:
        monkeypatch.setenv("ORT_DISABLE_TELEMETRY", before)
    no_telemetry()
    assert os.environ["ORT_DISABLE_TELEMETRY"] == after
