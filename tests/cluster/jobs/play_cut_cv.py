"""The coordinator of `Cluster.job`, which cuts its prepared files off where the test set begins.

Beside the inventory it leaves `cut.json`: how long they are when the job is over, over how long
they were.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

from cluster.__main__ import main
from core.data import Dataset
from core.engine.environment import loading_quietly

with loading_quietly():
    from cluster.jobs import cv

from tests.cluster.jobs.test_cv_here import without_its_test_rows

whole = vars(cv)["load_dataset"]
lengths: dict[Path, int] = {}


def cut(*words: Any) -> Dataset:
    """The data set as it is opened, its files cut."""
    dataset: Dataset = whole(*words)
    files = [dataset.folder / array.file for array in dataset.arrays]
    lengths.update({path: path.stat().st_size for path in files})
    return without_its_test_rows(dataset)


vars(cv)["load_dataset"] = cut
code = main()
left = {str(path): path.stat().st_size / length for path, length in lengths.items()}
(Path(sys.argv[sys.argv.index("--inventory") + 1]).parent / "cut.json").write_text(json.dumps(left))
sys.stdout.flush()
sys.stderr.flush()
os._exit(code)
