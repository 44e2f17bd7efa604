"""The page on own data: its worked example runs as printed, and its error lines are what the readers say."""

import subprocess
import sys
from pathlib import Path

from cluster.data import find_source, prepare, split_validation

PAGE = Path(__file__).resolve().parents[2] / "docs" / "data.md"


def test_the_worked_example_runs_as_printed_and_is_accepted(tmp_path: Path) -> None:
    (example,) = (block.partition("```")[0] for block in PAGE.read_text(encoding="utf-8").split("```python\n")[1:])
    subprocess.run([sys.executable, "-c", example], cwd=tmp_path, check=True)
    source = find_source(str(tmp_path / "exercises.npz"), {}, tmp_path, tmp_path)
    dataset = prepare(source, cache=tmp_path / "cache")
    assert (dataset.name, dataset.window_steps, dataset.channels) == ("exercises", 64, 6)
    assert dataset.labels == ("rest", "row", "skip", "jump")
    assert dataset.train_windows == 8 * 4 * 45
    assert dataset.test_windows == 3 * 4 * 45
    training, validation = split_validation(dataset.subjects()[: dataset.train_windows], 2, 0)
    assert (len(training), len(validation)) == (6 * 4 * 45, 2 * 4 * 45)
