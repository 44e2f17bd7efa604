"""examples/notebook.ipynb runs from its first cell to its last, and shows what it promises."""

from ast import literal_eval
from collections import defaultdict
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from deploy.common.project import ROOT, environment_for_any_folder
from tests.hang import HANG_SECONDS

NOTEBOOK = ROOT / "examples" / "notebook.ipynb"


def executed(folder: Path) -> list[dict[str, str]]:
    """What each of its code cells shows, by type of content or name of stream."""
    notebook = nbformat.read(NOTEBOOK, as_version=4)  # type: ignore[no-untyped-call]
    NotebookClient(
        notebook, timeout=int(HANG_SECONDS), resources={"metadata": {"path": str(folder)}}
    ).execute()
    return [_shown(cell.outputs) for cell in notebook.cells if cell.cell_type == "code"]


def _shown(outputs: list[Any]) -> dict[str, str]:
    shown = defaultdict[str, str](str)
    for output in outputs:
        if output.output_type == "stream":
            parts = {output.name: output.text}
        else:
            parts = output.data
        for kind, text in parts.items():
            shown[kind] += text
    return shown


@pytest.mark.long
def test_trains_and_shows_the_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "JUPYTER_RUNTIME_DIR",
        "JUPYTER_CONFIG_DIR",
        "JUPYTER_DATA_DIR",
        "IPYTHONDIR",
        "XDG_CACHE_HOME",
    ):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    for name, value in environment_for_any_folder().items():
        monkeypatch.setenv(name, value)
    work = tmp_path / "work"
    work.mkdir()
    _, sizes, _, trained, figures, again, report = executed(work)
    assert sizes["text/plain"] == "((1437, 8, 8, 1), (360, 8, 8, 1))"
    (folder,) = (work / "runs").iterdir()
    assert trained["text/plain"] == f"Run('runs/{folder.name}')"
    assert "epoch  20/20" in trained["stderr"]
    accuracy, losses = literal_eval(figures["text/plain"])
    assert len(losses) == 20
    assert losses[-1] < losses[0] / 2
    assert accuracy > 0.85
    assert float(again["text/plain"]) == pytest.approx(accuracy, abs=1e-9)
    assert "<iframe srcdoc=" in report["text/html"]
