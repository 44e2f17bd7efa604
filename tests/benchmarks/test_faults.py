"""Lost and doubled updates are seen, each by itself; and a training on a cluster that a supervisor
keeps."""

from typing import Any

import numpy as np

from benchmarks.coordinators.faults import judge
from benchmarks.faults import row_of
from tests.tables import table


def test_a_lost_update_does_not_hide_behind_a_doubled_one() -> None:
    applied = np.ones((2, 8), np.int64)
    applied[:, 6:] = 0
    assert judge(applied, 6) == {"lost": 0, "doubled": 0, "never_scheduled": 0}
    applied[0, 1] = 0
    applied[0, 2] = 2
    applied[1, 7] = 1
    assert judge(applied, 6) == {"lost": 1, "doubled": 1, "never_scheduled": 1}


def test_a_training_that_applied_fewer_or_more_than_it_scheduled_is_told() -> None:
    result: dict[str, Any] = table("benchmarks/tables", "trained_result")
    short = row_of(result, "late:0.1")
    assert (short["lost"], short["doubled"], short["to_processes"]) == (3, 0, 1)
    result["updates"]["applied"] = 102
    more = row_of(result, "late:0.1")
    assert (more["lost"], more["doubled"]) == (0, 2)
