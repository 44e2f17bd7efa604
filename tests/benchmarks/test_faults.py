"""Lost and doubled updates are seen, each by itself; and a training on a cluster that a supervisor
keeps."""

import json
from typing import Any

import numpy as np
import pytest

from benchmarks.beds.supervised_cluster import supervised_cluster
from benchmarks.coordinators.faults import judge
from benchmarks.faults import DEADLINE_SECONDS, row_of, train_words
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


@pytest.mark.long
@pytest.mark.timeout(900)
def test_where_a_coordinator_and_a_server_die_each_update_is_applied_once() -> None:
    with supervised_cluster(workers=3, servers=2) as cluster:
        # By this seed the first coordinator dies at dispatch 282, the second loses a server at 332,
        # the third neither.
        chaos = "kill-ps:0.002,kill-coordinator:0.002,duplicate:0.05,seed:3814"
        ended = cluster.fab(train_words(4, chaos), DEADLINE_SECONDS)
    trained = row_of(json.loads(ended.stdout), chaos)
    assert (trained["status"], trained["epochs_done"], trained["lost"], trained["doubled"]) == (
        "done",
        4,
        0,
        0,
    )
    assert (trained["injected"]["kill-coordinator"], trained["injected"]["kill-ps"]) == (1, 1)
    assert trained["resumptions"] + trained["rolled_back"] > 0
    assert "Traceback" not in ended.stderr, "a death that was told is told once"
