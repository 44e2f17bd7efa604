"""The page on own data: its worked example runs as printed, and its error lines are what the readers say."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml

from cluster.data import find_source, prepare, split_validation
from cluster.data.examples import Data, batches_of, write_examples
from cluster.errors import DataError
from cluster.inventory import load

PROJECT = Path(__file__).resolve().parents[2]
PAGE, FORMATS = PROJECT / "docs" / "data.md", PROJECT / "docs" / "data-formats.md"


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


def test_the_columns_on_the_page_read_a_table(tmp_path: Path) -> None:
    (block,) = (block.partition("```")[0] for block in FORMATS.read_text(encoding="utf-8").split("```yaml\n")[1:])
    given = yaml.safe_load(block)["jobs"]["train"]["data"]
    settings = [f"jobs.train.data.{key}={json.dumps(value)}" for key, value in given.items()]
    data = load(PROJECT / "inventories" / "local.yaml", settings).jobs.train.data
    lines = [
        f"{row},{row % 4},{'Bonn' if row % 3 else 'Ulm'},s{row % 5},{row % 5 == 0:d},{row * 1.5}" for row in range(30)
    ]
    (tmp_path / given["source"]).write_text("\n".join(["area,rooms,city,street,sold_last_year,price", *lines]))
    source = find_source(str(tmp_path / given["source"]), {}, tmp_path, tmp_path)
    dataset = prepare(source, cache=tmp_path / "cache", options=data.options())
    assert (dataset.task, dataset.input_shape, dataset.test_windows) == ("regression", (1 + 4 + 2,), 6)


def test_the_lines_of_the_page_are_what_is_said(tmp_path: Path) -> None:
    x = np.zeros((20, 3, 2, 1), np.float32)
    x[17, 2, 1, 0] = np.nan
    wrong = Data(x * 0, [*range(10), *range(7), 12, 0, 1], x * 0, [0] * 20, labels=list("abcdefghij"))
    page = FORMATS.read_text(encoding="utf-8")

    def written(given: Data) -> None:
        batches, labels = batches_of(given)
        write_examples(batches, tmp_path, name="x", source="data()", labels=labels)

    for given in (wrong, Data(x, [0] * 20, x, [0] * 20)):
        with pytest.raises(DataError) as caught:
            written(given)
        assert f"\n{caught.value}\n" in page
