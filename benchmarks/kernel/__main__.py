"""Time of one training step.

Ours beside Keras 3 and PyTorch, and as a share of the machine's own matrix product.

Over the thesis's grid and the dBLSTM: forward, backward, clip and Adam over a batch of windows of
128 x 9, all three from the same weights on the same windows. Each contestant is a process of its
own with all cores; they take turns, a round is one turn of each, and a ratio is the median of the
rounds' ratios. The peak is that of a product of two 2,048 x 2,048 float32 matrices in the same run
on the same cores, the faster of TensorFlow's and PyTorch's.

`ours` is the native library with the slots of the shipped recipe and a thread a core. `keras`,
`pytorch` and `tensorflow` (our step in TensorFlow's arithmetic) cut the batch alike: one part a
core, one thread a part, the gradients summed, one clip and one Adam. Beside them `keras_whole` and
`pytorch_whole` have the batch in one piece and their libraries' own threads. `one_thread` and
`one_slot` are the library on one thread, with those slots and with one: what slots cost. The peak
of `one_thread_sgemm_share` is that product by TensorFlow on one thread, both in processor seconds.
"""

import os
import statistics
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.asking import ChildFailedError
from benchmarks.kernel.cells import GRID, HEADLINES, PLAIN, SMALLEST, Cell, floor_flop
from benchmarks.kernel.contestant import (
    Contestant,
    Missing,
    remedy,
    torch_interpreter,
    usual_torch,
)
from benchmarks.report import arguments, publish, tell
from core.inventory.slots import LIBRARY, TENSORFLOW, USUAL_SLOTS

PRODUCT_FLOP = 2 * 2048**3
SAME_LOSS = 1e-4
"""How far the losses of the first step may lie apart, relatively: beyond it the networks are not
the same."""

SPLIT = ("keras", "pytorch")
WHOLE = ("keras_whole", "pytorch_whole")
MULTIPLYING = (*WHOLE, "one_thread")
"""Contestants whose library's product is a peak."""
OTHERS = (*SPLIT, *WHOLE, "tensorflow", "one_thread", "one_slot")
SHARES = ("sgemm_share", "one_thread_sgemm_share")
ROUNDS = {"full": 5, "quick": 2, "smoke": 1}
CELLS = {"full": GRID, "quick": (PLAIN["h32"], PLAIN["h128"]), "smoke": (SMALLEST,)}
PRODUCTS = 6
TURN_SECONDS = 0.25
"""A turn is as many steps as fit, and at least one."""


def turn(contestant: Contestant, what: str, times: int) -> dict[str, float]:
    """Of one turn: the median seconds of a step (or product), and processor seconds a step."""
    answer = contestant.ask({what: times})
    return {
        "seconds": statistics.median(answer["seconds"]),
        "processor_seconds": answer["processor_seconds"] / times,
    }


def measure(
    cell: Cell, contestants: Sequence[Contestant], rounds: int, folder: Path
) -> dict[str, Any]:
    """The row of one cell. Raises Missing when the contestants do not compute the same."""
    arrays = folder / "arrays.npz"
    np.savez(arrays, **cell.arrays())
    order = {**cell.order(), "arrays": str(arrays)}
    built = {
        contestant.name: contestant.ask({"cell": order | contestant.settings})
        for contestant in contestants
    }
    refuse_different_networks(cell, built)
    times = {
        contestant.name: max(1, int(TURN_SECONDS / turn(contestant, "steps", 1)["seconds"]))
        for contestant in contestants
    }
    taken: dict[str, list[dict[str, float]]] = {contestant.name: [] for contestant in contestants}
    products: dict[str, list[float]] = {name: [] for name in taken if name in MULTIPLYING}
    for contestant in contestants:
        if contestant.name in products:
            turn(contestant, "products", 1)  # the first one also begins threads and maps memory
    for _ in range(rounds):
        for contestant in contestants:
            taken[contestant.name].append(turn(contestant, "steps", times[contestant.name]))
        for contestant in contestants:
            if contestant.name in products:
                clock = "seconds" if contestant.name in WHOLE else "processor_seconds"
                products[contestant.name].append(turn(contestant, "products", PRODUCTS)[clock])
    return row(cell, built, taken, products)


def refuse_different_networks(cell: Cell, built: dict[str, dict[str, Any]]) -> None:
    """Raise Missing unless all have as many weights and the same loss on the same windows."""
    ours = built["ours"]
    for name, answer in built.items():
        same = abs(answer["loss"] - ours["loss"]) <= SAME_LOSS * abs(ours["loss"])
        if answer["matrix_parameters"] != ours["matrix_parameters"] or not same:
            raise Missing(
                f"{cell.name}: {name} does not compute what ours does:"
                f" {answer['matrix_parameters']} weights and loss {answer['loss']:.6f}, expected"
                f" {ours['matrix_parameters']} and {ours['loss']:.6f}"
            )


def row(
    cell: Cell,
    built: dict[str, dict[str, Any]],
    taken: dict[str, list[dict[str, float]]],
    products: dict[str, list[float]],
) -> dict[str, Any]:
    """Medians over the rounds; a ratio is taken within each round first."""
    peaks = {name: PRODUCT_FLOP / statistics.median(seconds) for name, seconds in products.items()}
    flop = floor_flop(cell)
    rounds = len(taken["ours"])
    found: dict[str, Any] = {
        "cell": cell.name,
        "batch": cell.batch,
        "floor_flop": flop,
        "rounds": rounds,
    }
    for name, turns in taken.items():
        found[name] = {
            **{key: value for key, value in built[name].items() if key != "matrix_parameters"},
            "seconds": statistics.median(each["seconds"] for each in turns),
            "processor_seconds": statistics.median(each["processor_seconds"] for each in turns),
        }
        if name in OTHERS:
            found[f"{name}_over_ours"] = _ratio(turns, taken["ours"], "seconds")
        if name == "one_slot":
            found["slots_cpu_over_one"] = _ratio(taken["one_thread"], turns, "processor_seconds")
    whole = [name for name in WHOLE if name in peaks]
    if whole:
        found["peak_of"] = max(whole, key=peaks.__getitem__)
        found["peak_flop_per_second"] = peaks[found["peak_of"]]
        found["sgemm_share"] = flop / found["ours"]["seconds"] / found["peak_flop_per_second"]
    if "one_thread" in peaks:
        of_thread = flop / found["one_thread"]["processor_seconds"]
        found["one_thread_sgemm_share"] = of_thread / peaks["one_thread"]
    return found


def _ratio(some: Sequence[dict[str, float]], others: Sequence[dict[str, float]], of: str) -> float:
    return statistics.median(one[of] / other[of] for one, other in zip(some, others, strict=True))


def summarize(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The plain networks and the dBLSTM by key, and the lowest ratio of all cells."""
    by_cell = {found["cell"]: found for found in rows}

    def of(field: str, keys: Sequence[str]) -> dict[str, float | None]:
        return {key: by_cell.get(HEADLINES[key].name, {}).get(field) for key in keys}

    def lowest(field: str) -> float | None:
        return min((found[field] for found in rows if field in found), default=None)

    ratios = [f"{name}_over_ours" for name in OTHERS]
    return {
        **{ratio: of(ratio, list(HEADLINES)) for ratio in ratios},
        "slots_cpu_over_one": of("slots_cpu_over_one", list(HEADLINES)),
        **{share: of(share, list(HEADLINES)) for share in SHARES},
        **{f"lowest_{ratio}": lowest(ratio) for ratio in ratios},
    }


def chosen(cells: str | None, size: str) -> Sequence[Cell]:
    """The cells to measure. Raises Missing for a name that is none."""
    if cells is None:
        return CELLS[size]
    by_name = {cell.name: cell for cell in GRID}
    names = [name.strip() for name in cells.split(",")]
    for name in names:
        if name not in by_name:
            raise Missing(
                f"--cells: there is no cell {name!r}; expected some of {', '.join(by_name)}"
            )
    return [by_name[name] for name in names]


def main() -> None:
    """Measure and print the object; status 2 with one line when a contestant is missing."""
    parser = arguments("kernel", "Seconds of a training step: ours beside Keras 3 and PyTorch.")
    parser.add_argument(
        "--torch-python",
        metavar="PATH",
        default=usual_torch(),
        help="interpreter that has PyTorch; default: %(default)s",
    )
    parser.add_argument("--cells", metavar="NAME,...", help="only these cells of the grid")
    parser.add_argument("--rounds", type=int, help="turns of each; default 5, quick 3")
    parser.add_argument("--slots", type=int, default=USUAL_SLOTS, help="of ours; %(default)s")
    parser.add_argument(
        "--without",
        action="append",
        default=[],
        choices=["keras", "pytorch", "whole", "tensorflow", "one_slot"],
        help="leave one out; `whole` are both that have the batch in one piece",
    )
    given = parser.parse_args()
    if given.torch_python is None and "pytorch" not in given.without:
        tell(f"benchmarks.kernel: without PyTorch, which is not here; {remedy()}")
        given.without.append("pytorch")
    try:
        rows = run(
            chosen(given.cells, given.size),
            given.rounds or ROUNDS[given.size],
            given.slots,
            given.torch_python,
            given.without,
        )
    except (Missing, ChildFailedError) as problem:
        tell(f"benchmarks.kernel: {problem}")
        sys.exit(2)
    publish("kernel", rows, summarize(rows), given)


def run(
    cells: Sequence[Cell],
    rounds: int,
    slots: int,
    torch_python: str,
    without: Sequence[str],
) -> list[dict[str, Any]]:
    """A row for each cell."""
    commands = commands_of(slots, torch_python, without)
    rows = []
    with ExitStack() as stack, tempfile.TemporaryDirectory(prefix="pscluster-benchmark-") as folder:
        contestants = [
            stack.enter_context(Contestant(name, *command)) for name, command in commands.items()
        ]
        for cell in cells:
            rows.append(measure(cell, contestants, rounds, Path(folder)))
            tell(_line(rows[-1]))
    return rows


def commands_of(
    slots: int, torch_python: str, without: Sequence[str]
) -> dict[str, tuple[list[str], dict[str, Any]]]:
    """The contestants: the command of each and what is added to its orders.

    On one core nothing is split.
    """
    cores = len(os.sched_getaffinity(0))
    own, keras = (
        [sys.executable, "-m", f"benchmarks.kernel.{name}"] for name in ("ours", "in_keras")
    )
    commands: dict[str, tuple[list[str], dict[str, Any]]] = {
        "ours": (own, {"slots": slots, "arithmetic": LIBRARY}),
        "one_thread": (own, {"slots": slots, "arithmetic": LIBRARY, "threads": 1}),
        "one_slot": (own, {"slots": 1, "arithmetic": LIBRARY, "threads": 1}),
        "tensorflow": (own, {"slots": cores, "arithmetic": TENSORFLOW}),
    }
    if "keras" not in without:
        commands["keras"] = ([*keras, "--split"], {"parts": cores})
        commands["keras_whole"] = (keras, {"parts": 1})
    if "pytorch" not in without:
        torch = [torch_interpreter(torch_python), "-m", "benchmarks.kernel.in_torch"]
        commands["pytorch"] = (torch, {"parts": cores})
        commands["pytorch_whole"] = (torch, {"parts": 1})
    return {
        name: command
        for name, command in commands.items()
        if name not in without and not ("whole" in without and name in WHOLE)
    }


def _line(found: dict[str, Any]) -> str:
    parts = [f"{found['cell']}: ours {found['ours']['seconds'] * 1e3:.1f} ms"]
    parts += [
        f"{name} {found[f'{name}_over_ours']:.2f} times that" for name in OTHERS if name in found
    ]
    if "slots_cpu_over_one" in found:
        parts.append(f"the slots' CPU {found['slots_cpu_over_one']:.2f} times that of one")
    if "sgemm_share" in found:
        parts.append(f"{found['sgemm_share']:.0%} of the peak")
    if "one_thread_sgemm_share" in found:
        parts.append(f"on one thread {found['one_thread_sgemm_share']:.0%} of that thread's peak")
    return ", ".join(parts)


if __name__ == "__main__":
    main()
