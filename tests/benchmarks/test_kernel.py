"""The benchmark's arithmetic, and its processes."""

import os
import shlex
import sys
from pathlib import Path

import pytest

from benchmarks.kernel.__main__ import (
    PRODUCT_FLOP,
    chosen,
    commands_of,
    refuse_different_networks,
    row,
)
from benchmarks.kernel.cells import DEEP, GRID, PLAIN, floor_flop
from benchmarks.kernel.contestant import Contestant, Missing, torch_interpreter
from benchmarks.kernel.modelled import loops
from benchmarks.kernel.serving import fastest
from tests.shown import part
from tests.tables import table

ECHO = """
from benchmarks.kernel.serving import serve
def build(order):
    print("a library's chatter")
    return (lambda: order["loss"]), {"variant": "echo"}
serve(build, lambda: None)
"""

LISTING = """
      10: 3dc00001     \tldr\tq1, [x0]
      14: 4f811042     \tfmla\tv2.4s, v2.4s, v1.s[0]
      18: 4e22cc43     \tfmla\tv3.4s, v2.4s, v2.4s
      1c: 54ffffa8     \tb.hi\t0x10 <.text+0x10>
      20: 3d800001     \tstr\tq1, [x0]
      24: b5ffffe0     \tcbnz\tx0, 0x20 <.text+0x20>
"""


def test_a_modelled_loop_multiplies_by_lane_and_stores_nothing() -> None:
    (loop,) = loops(LISTING)
    assert (loop.multiplications, loop.count("ld")) == (1, 1)
    assert loop.assembly.splitlines()[:2] == [".Lturn:", "ldr\tq1, [x0]"]
    assert loop.assembly.endswith("b.hi\t.Lturn\n")


def test_the_floor_counts_what_multiplies_at_every_step() -> None:
    projections = 9 * 32 + 2 * 32 * 32
    cells = 3 * (32 + 32) * 4 * 32
    assert floor_flop(PLAIN["h32"]) == 6 * (projections + cells) * 128 * 100
    both_ways = 2 * (9 + 128) * 4 * 128 + 2 * (256 + 128) * 4 * 128
    assert floor_flop(DEEP) == 6 * (both_ways + (256 + 64) * 4 * 64) * 128 * 64


def test_a_ratio_is_taken_within_each_round_and_the_peak_is_the_faster_product() -> None:
    case = table("benchmarks/tables", "kernel_row")
    taken = {
        name: [{"seconds": one, "processor_seconds": 2 * one} for one in found]
        for name, found in case["seconds"].items()
    }
    built = {name: {"variant": name, "matrix_parameters": 1, "loss": 1.8} for name in taken}
    found = row(PLAIN["h32"], built, taken, case["products"])
    assert part(found, case["row"]) == case["row"]
    assert found["peak_flop_per_second"] == PRODUCT_FLOP / 0.2
    share = floor_flop(PLAIN["h32"]) / 2.0 * 0.2 / PRODUCT_FLOP
    assert found["sgemm_share"] == pytest.approx(share)
    assert found["one_thread_sgemm_share"] == pytest.approx(share)


def test_the_grid_is_the_thesis_and_the_dblstm_and_quick_is_two_of_it() -> None:
    assert len(GRID) == 3 * 4 + 1
    quick = [cell.name for cell in chosen(None, "quick")]
    assert quick == ["3x0 h32", "3x0 h128"]
    some = [cell.name for cell in chosen("dblstm, 2x2 bi h64", "full")]
    assert some == ["dblstm", "2x2 bi h64"]
    with pytest.raises(Missing, match="no cell '4x4'; expected some of 3x0 h32, "):
        chosen("4x4", "full")


def test_the_fair_contestants_cut_the_batch_as_ours_does(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """One part a core, as ours has one thread a core; others are named for what they are."""
    torch = program(tmp_path / "python", "")
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1, 2})
    told = {name: settings for name, (_, settings) in commands_of(16, str(torch), []).items()}
    assert told == table("benchmarks/tables", "contestants")
    alone = commands_of(4, "", ["keras", "pytorch"])
    assert list(alone) == ["ours", "one_thread", "one_slot", "tensorflow"]
    few = commands_of(4, str(torch), ["keras", "whole", "tensorflow", "one_slot"])
    assert list(few) == ["ours", "one_thread", "pytorch"]


@pytest.mark.parametrize(("weights", "loss"), [(11, 1.8), (10, 1.801)])
def test_networks_that_differ_are_refused(weights: int, loss: float) -> None:
    def compared(weights: int, loss: float) -> None:
        ours = {"matrix_parameters": 10, "loss": 1.8}
        keras = {"matrix_parameters": weights, "loss": loss}
        refuse_different_networks(DEEP, {"ours": ours, "keras": keras})

    compared(10, 1.80001)
    with pytest.raises(Missing, match="dblstm: keras does not compute what ours does"):
        compared(weights, loss)


def test_a_contestant_answers_whatever_its_libraries_print() -> None:
    with Contestant("echo", [sys.executable, "-c", ECHO]) as echo:
        assert echo.ask({"cell": {"loss": 1.5}}) == {"variant": "echo", "loss": 1.5}
        timed = echo.ask({"steps": 3})
        assert len(timed["seconds"]) == 3
        assert timed["processor_seconds"] >= 0
        assert timed["last"] == 1.5
        assert len(echo.ask({"products": 2})["seconds"]) == 2


def test_the_fastest_variant_is_the_one_with_the_fastest_step() -> None:
    def busy(additions: int) -> float:
        return float(sum(range(additions)))

    assert fastest({"slow": lambda: busy(2_000_000), "fast": lambda: busy(2_000)}) == "fast"


def program(path: Path, script: str) -> Path:
    path.write_text(f"#!/bin/sh\n{script}")
    path.chmod(0o755)
    return path


def test_without_pytorch_the_remedy_is_named(tmp_path: Path) -> None:
    remedy = r"there is no such program; make it an environment .* torch==2\.13\.0"
    with pytest.raises(Missing, match=remedy):
        torch_interpreter(str(tmp_path / "python"))
    without = program(tmp_path / "without", f'exec {shlex.quote(sys.executable)} -S -E "$@"\n')
    remedy = r"cannot run PyTorch \(ModuleNotFoundError: .* torch==2\.13\.0"
    with pytest.raises(Missing, match=remedy):
        torch_interpreter(str(without))
