import json
import subprocess
import sys
from typing import Any

import pytest

from benchmarks.wire.__main__ import rows_of, summarize

ENDLESS = ["-n", "1", "-r", "1", "-s", 'print(\'{"variant": "first"}\', flush=True)', "while True: pass"]


def row(variant: str, total: float, packets: float, seconds: float) -> dict[str, Any]:
    return {
        "variant": variant,
        "parameters": 29_182,
        "bytes_per_step": total,
        "packets_per_step": packets,
        "seconds_per_step": seconds,
    }


def test_the_summary_holds_ours_with_fp16_and_ratios_over_it_and_over_fp32() -> None:
    rows = [row("ours", 2e5, 20.0, 0.1), row("ours_fp16", 1e5, 10.0, 0.2)]
    found = summarize([*rows, row("read_once", 3e5, 80.0, 0.2), row("tutorial", 1e7, 4000.0, 1.0)])
    assert found["bytes_per_step"] == 1e5
    assert found["packets_per_step"] == 10.0
    assert found["tutorial_bytes_over_ours"] == 100.0
    assert found["tutorial_bytes_over_ours_fp32"] == 50.0
    assert found["tutorial_packets_over_ours"] == 400.0
    assert found["tutorial_seconds_over_ours"] == 5.0
    assert found["read_once_bytes_over_ours_fp32"] == 1.5
    assert found["read_once_packets_over_ours_fp32"] == 4.0
    assert found["bytes_over_two_vectors"] == pytest.approx(2e5 / (2 * 4 * 29_182))
    assert found["bytes_over_half_vectors"] == pytest.approx(1e5 / (2 * 2 * 29_182))


def test_a_variant_without_figures_is_null_not_a_number() -> None:
    rows = [
        row("ours", 2e5, 20.0, 0.1),
        row("ours_fp16", 1e5, 20.0, 0.1),
        {"variant": "read_once", "problem": "x"},
        {"variant": "tutorial", "problem": "x"},
    ]
    found = summarize(rows)
    assert found["tutorial_bytes_over_ours"] is None
    assert found["tutorial_bytes_over_ours_fp32"] is None
    assert found["bytes_per_step"] == 1e5


def test_a_coordinator_that_hangs_is_ended_and_what_it_said_before_is_kept() -> None:
    first, second = rows_of("timeit", ("first", "second"), ENDLESS, deadline_seconds=2.0)
    assert first == {"variant": "first"}
    assert second == {"variant": "second", "problem": "not done after 2 s"}


def test_a_coordinator_that_fails_says_why() -> None:
    (found,) = rows_of("timeit", ("ours",), ["-n", "1", "raise RuntimeError('no such cluster')"], 60.0)
    assert found == {"variant": "ours", "problem": "RuntimeError: no such cluster"}


@pytest.mark.long
@pytest.mark.timeout(300)
def test_ours_moves_two_vectors_a_step_fp16_half_of_it_and_the_tutorial_many_times_that() -> None:
    command = [sys.executable, "-m", "benchmarks.wire", "--quick", "--json"]
    found = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    summary = found["summary"]
    assert found["name"] == "wire"
    assert summary["bytes_over_two_vectors"] == pytest.approx(1.0, abs=0.1)
    assert summary["bytes_over_half_vectors"] == pytest.approx(1.0, abs=0.1)
    assert summary["tutorial_bytes_over_ours"] > 90
    assert summary["tutorial_bytes_over_ours_fp32"] > 50
    assert summary["tutorial_packets_over_ours"] > 50
    losses = [measured["last_loss"] for measured in found["rows"]]
    assert losses == pytest.approx([losses[0]] * 4, abs=2e-3), "the variants do not train the same network"
