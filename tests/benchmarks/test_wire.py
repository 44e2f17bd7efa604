import json
import subprocess
import sys
from typing import Any

import pytest

from benchmarks.wire import rows_of, summarize

ENDLESS = ["-n", "1", "-r", "1", "-s", 'print(\'{"variant": "first"}\', flush=True)', "while True: pass"]


def row(variant: str, total: float, packets: float, seconds: float) -> dict[str, Any]:
    return {
        "variant": variant,
        "parameters": 29_182,
        "bytes_per_step": total,
        "packets_per_step": packets,
        "seconds_per_step": seconds,
    }


def test_the_summary_holds_ours_and_ratios_over_ours() -> None:
    rows = [row("ours", 2e5, 20.0, 0.1), row("read_once", 3e5, 80.0, 0.2), row("tutorial", 1e7, 4000.0, 1.0)]
    found = summarize(rows)
    assert found["bytes_per_step"] == 2e5
    assert found["packets_per_step"] == 20.0
    assert found["tutorial_bytes_over_ours"] == 50.0
    assert found["tutorial_packets_over_ours"] == 200.0
    assert found["read_once_bytes_over_ours"] == 1.5
    assert found["bytes_over_two_vectors"] == pytest.approx(2e5 / (2 * 4 * 29_182))


def test_a_variant_without_figures_is_null_not_a_number() -> None:
    rows = [
        row("ours", 2e5, 20.0, 0.1),
        {"variant": "read_once", "problem": "x"},
        {"variant": "tutorial", "problem": "x"},
    ]
    found = summarize(rows)
    assert found["tutorial_bytes_over_ours"] is None
    assert found["bytes_per_step"] == 2e5


def test_a_coordinator_that_hangs_is_ended_and_what_it_said_before_is_kept() -> None:
    first, second = rows_of("timeit", ("first", "second"), ENDLESS, deadline_seconds=2.0)
    assert first == {"variant": "first"}
    assert second == {"variant": "second", "problem": "not done after 2 s"}


def test_a_coordinator_that_fails_says_why() -> None:
    (found,) = rows_of("timeit", ("ours",), ["-n", "1", "raise RuntimeError('no such cluster')"], 60.0)
    assert found == {"variant": "ours", "problem": "RuntimeError: no such cluster"}


@pytest.mark.long
@pytest.mark.timeout(300)
def test_ours_moves_two_vectors_a_step_and_the_tutorial_many_times_that() -> None:
    command = [sys.executable, "-m", "benchmarks.wire", "--quick", "--json"]
    found = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    summary = found["summary"]
    assert found["name"] == "wire"
    assert summary["bytes_over_two_vectors"] == pytest.approx(1.0, abs=0.1)
    assert summary["tutorial_bytes_over_ours"] > 50
    assert summary["tutorial_packets_over_ours"] > 50
    losses = {round(measured["last_loss"], 3) for measured in found["rows"]}
    assert len(losses) == 1, "the variants do not train the same network"
