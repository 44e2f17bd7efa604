"""The benchmark's arithmetic, its processes, and that its contestants train the same network."""

import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.kernel import in_keras as kernel_keras
from benchmarks.kernel import ours as kernel_ours
from benchmarks.kernel.__main__ import PRODUCT_FLOP, chosen, commands_of, refuse_different_networks, row, summarize
from benchmarks.kernel.cells import DEEP, GRID, PLAIN, Cell, floor_flop
from benchmarks.kernel.contestant import Contestant, Missing, torch_interpreter
from benchmarks.kernel.serving import fastest
from cluster.asking import NoAnswerError
from tests.habits import needs

SMALL = [
    Cell("plain", "thesis", 8, 2, 0, batch=4),
    Cell("highway", "thesis", 8, 2, 2, True, batch=4),
    Cell("deep", "dblstm", batch=4),
]
TORCH_PYTHON = os.environ.get("PSCLUSTER_TORCH_PYTHON") or (sys.executable if importlib.util.find_spec("torch") else "")

ECHO = """
from benchmarks.kernel.serving import serve
def build(order):
    print("a library's chatter")
    return (lambda: order["loss"]), {"variant": "echo"}
serve(build, lambda: None)
"""


def turns(*seconds: float) -> list[dict[str, float]]:
    return [{"seconds": value, "processor_seconds": 2 * value} for value in seconds]


def test_the_floor_counts_what_multiplies_at_every_step() -> None:
    projections, cells = 9 * 32 + 2 * 32 * 32, 3 * (32 + 32) * 4 * 32
    assert floor_flop(PLAIN["h32"]) == 6 * (projections + cells) * 128 * 100
    both_ways = 2 * (9 + 128) * 4 * 128 + 2 * (256 + 128) * 4 * 128
    assert floor_flop(DEEP) == 6 * (both_ways + (256 + 64) * 4 * 64) * 128 * 64


def test_a_ratio_is_taken_within_each_round_and_the_peak_is_the_faster_product() -> None:
    taken = {
        "ours": turns(1.0, 2.0, 4.0),
        "ours_of_four": turns(1.0, 1.0, 2.0),
        "keras": turns(2.0, 3.0, 4.0),
        "keras_whole": turns(2.0, 8.0, 8.0),
        "pytorch": turns(3.0, 4.0, 4.0),
        "pytorch_whole": turns(3.0, 8.0, 12.0),
    }
    built: dict[str, dict[str, Any]] = {name: {"variant": name, "matrix_parameters": 1, "loss": 1.8} for name in taken}
    found = row(PLAIN["h32"], built, taken, {"keras_whole": [0.1, 0.2, 0.3], "pytorch_whole": [0.2, 0.4, 0.6]})
    assert found["keras_over_ours"] == 1.5  # of 2, 1.5, 1; the medians' ratio would be 1.5, too
    assert found["pytorch_over_ours"] == 2.0  # of 3, 2, 1
    assert (found["keras_whole_over_ours"], found["pytorch_whole_over_ours"]) == (2.0, 3.0)
    assert found["pytorch_over_ours_of_four"] == 3.0  # of 3, 4, 2; the medians' ratio would be 4
    assert found["ours"] == {"variant": "ours", "loss": 1.8, "seconds": 2.0, "processor_seconds": 4.0}
    assert found["peak_of"] == "keras_whole"
    assert found["peak_flop_per_second"] == PRODUCT_FLOP / 0.2
    assert found["sgemm_share"] == pytest.approx(floor_flop(PLAIN["h32"]) / 2.0 * 0.2 / PRODUCT_FLOP)


def test_the_summary_has_the_plain_networks_by_key_and_the_lowest_of_all_cells() -> None:
    rows = [
        {"cell": "3x0 h128", "keras_over_ours": 1.3, "pytorch_over_ours": 1.5, "sgemm_share": 0.75},
        {"cell": "3x3 bi h256", "keras_over_ours": 1.2, "pytorch_over_ours": 1.1, "sgemm_share": 0.5},
    ]
    found = summarize(rows)
    assert found["pytorch_over_ours"] == {"h32": None, "h64": None, "h128": 1.5, "h256": None, "dblstm": None}
    assert found["sgemm_share"] == {"h128": 0.75, "h256": None}
    assert found["pytorch_whole_over_ours"]["h128"] is None
    assert (found["lowest_keras_over_ours"], found["lowest_pytorch_over_ours"]) == (1.2, 1.1)
    assert summarize([])["lowest_keras_over_ours"] is None


def test_the_grid_is_the_thesis_and_the_dblstm_and_quick_is_its_headlines() -> None:
    assert len(GRID) == 3 * 4 + 1
    assert [cell.name for cell in chosen(None, quick=True)] == ["3x0 h32", "3x0 h64", "3x0 h128", "3x0 h256", "dblstm"]
    assert [cell.name for cell in chosen("dblstm, 2x2 bi h64", quick=False)] == ["dblstm", "2x2 bi h64"]
    with pytest.raises(Missing, match="no cell '4x4'; expected some of 3x0 h32, "):
        chosen("4x4", quick=False)


def test_the_fair_contestants_cut_the_batch_as_ours_does(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One part a core, as ours has one micro-batch a core; the unsplit ones are named for what they are."""
    torch = tmp_path / "python"
    torch.write_text("#!/bin/sh\n")
    torch.chmod(0o755)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1, 2})
    told = {name: settings for name, (_, settings) in commands_of(None, str(torch), []).items()}
    assert told == {
        "ours": {"micro_batches": 3},
        "ours_of_four": {"micro_batches": 4},
        "keras": {"parts": 3},
        "keras_whole": {"parts": 1},
        "pytorch": {"parts": 3},
        "pytorch_whole": {"parts": 1},
    }
    assert list(commands_of(4, None, ["keras", "pytorch"])) == ["ours"]


@pytest.mark.parametrize(("weights", "loss"), [(11, 1.8), (10, 1.801)])
def test_networks_that_differ_are_refused(weights: int, loss: float) -> None:
    ours = {"matrix_parameters": 10, "loss": 1.8}
    refuse_different_networks(DEEP, {"ours": ours, "keras": {"matrix_parameters": 10, "loss": 1.80001}})
    with pytest.raises(Missing, match="dblstm: keras does not compute what ours does"):
        refuse_different_networks(DEEP, {"ours": ours, "keras": {"matrix_parameters": weights, "loss": loss}})


def test_a_contestant_answers_whatever_its_libraries_print() -> None:
    with Contestant("echo", [sys.executable, "-c", ECHO]) as echo:
        assert echo.ask({"cell": {"loss": 1.5}}) == {"variant": "echo", "loss": 1.5}
        timed = echo.ask({"steps": 3})
        assert len(timed["seconds"]) == 3
        assert timed["processor_seconds"] >= 0
        assert timed["last"] == 1.5
        assert len(echo.ask({"products": 2})["seconds"]) == 2


def test_a_contestant_that_ends_is_told() -> None:
    with (
        Contestant("short-lived", [sys.executable, "-c", "raise SystemExit(3)"]) as gone,
        pytest.raises(NoAnswerError, match="short-lived ended with status 3"),
    ):
        gone.ask({"steps": 1})


def test_the_fastest_variant_is_the_one_with_the_fastest_step() -> None:
    def busy(additions: int) -> float:
        return float(sum(range(additions)))

    assert fastest({"slow": lambda: busy(2_000_000), "fast": lambda: busy(2_000)}) == "fast"


def test_without_pytorch_the_remedy_is_named(tmp_path: Path) -> None:
    with pytest.raises(Missing, match=r"there is no such program; make it an environment .* torch==2\.13\.0"):
        torch_interpreter(str(tmp_path / "python"))
    without = tmp_path / "without"
    without.write_text(f'#!/bin/sh\nexec {sys.executable} -S -E "$@"\n')
    without.chmod(0o755)
    with pytest.raises(Missing, match=r"cannot run PyTorch \(ModuleNotFoundError: .*--torch-python"):
        torch_interpreter(str(without))


@pytest.fixture
def order(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    cell: Cell = request.param
    np.savez(tmp_path / "arrays.npz", **cell.arrays())
    return {**cell.order(), "arrays": str(tmp_path / "arrays.npz")}


def losses_of_ours(order: dict[str, Any]) -> list[float]:
    step, _ = kernel_ours.build({**order, "micro_batches": 2})
    return [step() for _ in range(4)]


@pytest.mark.long
@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("order", SMALL, ids=lambda cell: cell.name, indirect=True)
def test_keras_trains_the_same_network(order: dict[str, Any], parts: int) -> None:
    """Equal losses after three updates: the same forward pass, gradients, clip and Adam, however the batch is cut."""
    step, said = kernel_keras.build({**order, "parts": parts})
    assert [step() for _ in range(4)] == pytest.approx(losses_of_ours(order), rel=1e-4)
    assert said["matrix_parameters"] == kernel_ours.build({**order, "micro_batches": 2})[1]["matrix_parameters"]


@pytest.mark.parametrize("order", SMALL, ids=lambda cell: cell.name, indirect=True)
def test_pytorch_trains_the_same_network_however_the_batch_is_cut(order: dict[str, Any]) -> None:
    """Later losses are its own: `nn.LSTM` has a second bias, so clip and update differ a little."""
    needs.possible("" if TORCH_PYTHON else "PyTorch is not in the lock; PSCLUSTER_TORCH_PYTHON names an interpreter")
    one_core = [
        "taskset",
        "-c",
        str(min(os.sched_getaffinity(0))),
    ]  # its threads spin: several slow a busy machine down
    with Contestant("pytorch", [*one_core, TORCH_PYTHON, "-m", "benchmarks.kernel.in_torch"]) as torch:
        first, last = [], []
        for parts in (1, 3, 1):
            first.append(torch.ask({"cell": {**order, "parts": parts}})["loss"])
            last.append(torch.ask({"steps": 3})["last"])
    assert first == pytest.approx([losses_of_ours(order)[0]] * 3, rel=1e-4)
    assert last == pytest.approx([last[0]] * 3, rel=1e-5)
    assert last[0] < first[0]
