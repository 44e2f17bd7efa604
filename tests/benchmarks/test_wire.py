import json

import pytest

from benchmarks.wire.__main__ import rows_of
from tests.ran import python

ENDLESS = [
    "-n",
    "1",
    "-r",
    "1",
    "-s",
    'print(\'{"variant": "first"}\', flush=True)',
    "while True: pass",
]


def test_a_coordinator_that_hangs_is_ended_and_what_it_said_before_is_kept() -> None:
    first, second = rows_of("timeit", ("first", "second"), ENDLESS, deadline_seconds=2.0)
    assert first == {"variant": "first"}
    assert second == {"variant": "second", "problem": "not done after 2 s"}


def test_a_coordinator_that_fails_says_why() -> None:
    (found,) = rows_of(
        "timeit", ("ours",), ["-n", "1", "raise RuntimeError('no such cluster')"], 60.0
    )
    assert found == {"variant": "ours", "problem": "RuntimeError: no such cluster"}


@pytest.mark.long
def test_ours_moves_two_vectors_a_step_fp16_half_of_it_and_the_tutorial_many_times_that() -> None:
    found = json.loads(python("-m", "benchmarks.wire", "--quick", "--json"))
    summary = found["summary"]
    assert found["name"] == "wire"
    assert summary["bytes_over_two_vectors"] == pytest.approx(1.0, abs=0.1)
    assert summary["bytes_over_half_vectors"] == pytest.approx(1.0, abs=0.1)
    assert summary["tutorial_bytes_over_ours"] > 90
    assert summary["tutorial_bytes_over_ours_fp32"] > 50
    assert summary["tutorial_packets_over_ours"] > 50
    losses = [measured["last_loss"] for measured in found["rows"]]
    assert losses == pytest.approx([losses[0]] * 4, abs=2e-3), (
        "the variants do not train the same network"
    )
