"""KTH's comparison of sync and async again.

`python -m experiments.kth --json > experiments/results/kth.json`.

Sozinov and Hammar (KTH 2018) trained one network on HHAR in one process, with eight asynchronous
workers and with eight synchronous ones, each at a learning rate of its own. Here every mode also
has one learning rate, and equal numbers of updates of equal batches; the split is theirs (windows
at random, a leak) and by people.

The work takes longer than one call may: a call trains for `--seconds`, kills what runs, and the
next call resumes it from its checkpoint. All rows reach the first mark before any trains to the
next. Each call prints what there is by then. Recordings are invented (`core.data.synthetic_hhar`)
unless `--data` names a file.
"""

import argparse
import fcntl
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

from benchmarks.beds.local_cluster import LocalCluster, local_cluster
from benchmarks.report import arguments, publish
from cluster.pages.run_files import part_of
from core.atomic_write import atomic_write
from core.data import Dataset, find_source, prepare, split_validation
from core.data.synthetic_hhar import write_hhar
from core.user_cache import user_cache
from deploy.common.project import ROOT

MARKS = (2_000, 5_000, 10_000)
QUICK_MARKS = (20, 40, 60)
"""Updates at which KTH's charts have an accuracy."""
LEVELS = (0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.93, 0.95)
BATCH = 16
STRIDE = 50
HELD_OUT_PEOPLE = 2
PEOPLE = 9
DEVICES = 8
BOUT_SECONDS = 6.0
"""Such that an epoch has about as many updates as theirs, 510: 10,000 updates are some 20 epochs in
both."""
SPLITS = {"random": "random", "people": "groups"}
CHECKPOINT_SECONDS = 15
LOOK_SECONDS = 2.0


@dataclass(frozen=True)
class Variant:
    """A row of the table: one mode, with so many workers, at one learning rate."""

    name: str
    mode: str
    workers: int
    learning_rate: float
    theirs: str = ""
    """The setup of KTH's that it repeats."""


VARIANTS = (
    Variant("one process", "single", 0, 0.0025, "local-1-cpu"),
    Variant("async", "async", 8, 0.0025),
    Variant("sync", "sync", 2, 0.0025),
    Variant("async at their rate", "async", 8, 0.00025, "spark-8-exec-async"),
    Variant("sync at their rate", "sync", 2, 0.5, "spark-8-exec-sync"),
)


@dataclass(frozen=True)
class Bench:
    """Where the work lies, the recordings, and how far to train."""

    folder: Path
    data: Path
    marks: tuple[int, ...]
    ends: float
    """Of this call, in the seconds of time.monotonic."""
    stride: int = STRIDE

    def dataset(self, split: str) -> Dataset:
        """The prepared windows."""
        return _prepared(self.data, SPLITS[split], self.stride)

    def per_epoch(self, split: str) -> int:
        """Updates of an epoch."""
        found = self.dataset(split)
        train = slice(found.train_windows)
        rows, _ = split_validation(
            found.subjects()[train], HELD_OUT_PEOPLE, 0, found.classes()[train]
        )
        return len(rows) // BATCH

    def epochs(self, split: str) -> int:
        """So many that the last mark is reached."""
        return -(-max(self.marks) // self.per_epoch(split))

    def settings(self, variant: Variant, split: str) -> list[str]:
        """Of the job."""
        return [
            "jobs.train.recipe=kth",
            f"jobs.train.mode={variant.mode}",
            f"jobs.train.optimizer.learning_rate={variant.learning_rate}",
            f"jobs.train.data.source={self.data}",
            f"jobs.train.data.window_stride={self.stride}",
            f"jobs.train.data.split={SPLITS[split]}",
            f"jobs.train.batch_size={BATCH}",
            # the same in every mode, so that sync and one process end with equal bits
            "jobs.train.slots=2",
            f"jobs.train.epochs={self.epochs(split)}",
            f"jobs.train.validation_subjects={HELD_OUT_PEOPLE}",
            f"jobs.train.checkpoint.every_seconds={CHECKPOINT_SECONDS}",
        ]


@cache
def _prepared(data: Path, split: str, stride: int) -> Dataset:
    source = find_source(str(data), {}, ROOT, ROOT)
    place = user_cache() / "prepared"
    return prepare(
        source, window_steps=200, window_stride=stride, cache=place, options={"split": split}
    )


def main() -> None:
    """Train for a while and print what is finished."""
    parser = arguments("kth", "Sync and async on HHAR, as KTH compared them.")
    parser.add_argument(
        "--seconds", type=float, default=560.0, help="of this call; the next one continues"
    )
    parser.add_argument(
        "--folder", type=Path, default=ROOT / ".cache" / "kth", help="where the work is kept"
    )
    parser.add_argument(
        "--data", type=Path, help="a Phones_accelerometer.csv; else invented recordings"
    )
    parser.add_argument(
        "--marks", type=int, nargs="+", default=MARKS, help="updates after which rows are compared"
    )
    parser.add_argument("--stride", type=int, default=STRIDE, help="between the windows")
    parser.add_argument("--splits", nargs="+", default=list(SPLITS), choices=list(SPLITS))
    parser.add_argument(
        "--variants", nargs="+", choices=[variant.name for variant in VARIANTS], metavar="VARIANT"
    )
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    bench = Bench(
        given.folder.resolve(),
        (given.data or _invented(given)).resolve(),
        QUICK_MARKS if given.quick else tuple(sorted(given.marks)),
        time.monotonic() + given.seconds,
        given.stride,
    )
    by_name = {variant.name: variant for variant in VARIANTS}
    wanted = [by_name[name] for name in given.variants or by_name]
    for mark, variant, split in product(bench.marks, wanted, given.splits):
        if time.monotonic() < bench.ends:
            advance(bench, variant, split, mark)
    found = list(rows(bench))
    publish("kth", found, summary(bench, found), as_json=given.json)


def _invented(given: argparse.Namespace) -> Path:
    path: Path = given.folder / "Phones_accelerometer.csv"
    if not path.exists():
        partial = path.with_suffix(".partial")
        if given.quick:
            seconds = 4.0
        else:
            seconds = BOUT_SECONDS
        write_hhar(partial, people=PEOPLE, devices=2 if given.quick else DEVICES, seconds=seconds)
        partial.rename(path)
    return path


def advance(bench: Bench, variant: Variant, split: str, mark: int) -> None:
    """Train one row further, until it has so many updates or the call's time is over."""
    place = bench.folder / f"{split}-{variant.name.replace(' ', '-')}"
    (place / "runs").mkdir(parents=True, exist_ok=True)
    with (place / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return  # another call trains this row
        if _finished(place) is None and _reached(bench, split, place) < mark:
            _advance(bench, variant, split, place, mark)


def _advance(bench: Bench, variant: Variant, split: str, place: Path, mark: int) -> None:
    print(f"{split}, {variant.name}: trains on to {mark}", file=sys.stderr, flush=True)
    with local_cluster(max(1, variant.workers), 1) as cluster:
        problem = _piece(bench, cluster, variant, split, place, mark)
    atomic_write(
        place / "pieces.json",
        json.dumps([*_pieces(place), {"to": mark, "problem": problem}]).encode(),
    )


def _piece(
    bench: Bench, cluster: LocalCluster, variant: Variant, split: str, place: Path, mark: int
) -> str | None:
    """Why it ended without a result.

    None if it did not, if time was up, or if the mark was reached.
    """
    flags = ["--json", "--quiet", "--set", f"runs={place / 'runs'}"]
    for setting in bench.settings(variant, split):
        flags += ["--set", setting]
    if any((place / "runs").glob("*-train*/coordinator.log")):
        flags.append("--resume")
    done = threading.Event()

    def watched(pid: int) -> None:
        def watch() -> None:
            while not done.wait(LOOK_SECONDS):
                if mark < max(bench.marks) and _reached(bench, split, place) >= mark:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                    return

        threading.Thread(target=watch, daemon=True).start()

    try:
        left = max(1.0, bench.ends - time.monotonic())
        cluster.coordinate("cluster", ["train"], flags, watched, deadline_seconds=left)
    except RuntimeError as problem:
        text = str(problem)
        if "was not done after" in text or f"ended with status {-signal.SIGKILL}" in text:
            return None
        return text.strip().splitlines()[-1][-500:]
    finally:
        done.set()
    return None


def _reached(bench: Bench, split: str, place: Path) -> int:
    """Updates of the epochs that are finished."""
    histories = sorted((place / "runs").glob("*-train*/history.jsonl"))
    if histories:
        return len(epochs_of(histories[-1])) * bench.per_epoch(split)
    return 0


def _pieces(place: Path) -> list[dict[str, Any]]:
    try:
        found: list[dict[str, Any]] = json.loads((place / "pieces.json").read_bytes())
    except OSError:
        return []
    return found


def _finished(place: Path) -> dict[str, Any] | None:
    """The result of a run that ended by itself, also by diverging."""
    for path in sorted((place / "runs").glob("*-train*/result.json")):
        result: dict[str, Any] = json.loads(path.read_bytes())
        if result["status"] in ("done", "failed"):
            return {**result, "folder": path.parent}
    return None


def rows(bench: Bench) -> Iterator[dict[str, Any]]:
    """Of every variant and split that was begun, in the order of the tables."""
    for split, variant in product(SPLITS, VARIANTS):
        place = bench.folder / f"{split}-{variant.name.replace(' ', '-')}"
        if _reached(bench, split, place) or _finished(place) is not None:
            yield row(bench, variant, split, place)


def row(bench: Bench, variant: Variant, split: str, place: Path) -> dict[str, Any]:
    """What is kept of a run; figures of the test and of the end are null where it has not ended."""
    result = _finished(place) or {}
    pieces = _pieces(place)
    (history,) = sorted((place / "runs").glob("*-train*/history.jsonl"))[-1:]
    curve = curve_of(epochs_of(history), bench.per_epoch(split))
    dataset = bench.dataset(split)
    return {
        "split": split,
        **{key: value for key, value in asdict(variant).items() if key != "name"},
        "variant": variant.name,
        "status": result.get("status", "not trained to the end"),
        "reason": result.get("reason"),
        "data": "invented" if bench.data.parent == bench.folder else bench.data.name,
        "train_windows": dataset.train_windows,
        "test_windows": dataset.test_windows,
        "held_out_by": dataset.held_out.by,
        "leak": bool(dataset.held_out.leak),
        "batch": BATCH,
        "updates": curve[-1]["updates"] if curve else 0,
        "at": {str(mark): at(curve, mark) for mark in bench.marks},
        "updates_to": {
            f"{level:.2f}": next(
                (point["updates"] for point in curve if reaches(point, level)), None
            )
            for level in LEVELS
        },
        "seconds_to": {
            f"{level:.2f}": next(
                (point["seconds"] for point in curve if reaches(point, level)), None
            )
            for level in LEVELS
        },
        "test_accuracy": part_of(result, "final", "accuracy"),
        "test_epoch": part_of(result, "selected", "epoch"),
        "staleness": part_of(result, "staleness", "mean"),
        "parameters_sha256": result.get("parameters_sha256"),
        "pieces": len(pieces),
        "curve": curve,
    }


def reaches(point: dict[str, Any], level: float) -> bool:
    """Whether an epoch ended at this accuracy or better."""
    return point["accuracy"] is not None and point["accuracy"] >= level


def epochs_of(history: Path) -> dict[int, dict[str, Any]]:
    """The event of each finished epoch.

    One that was trained again after a resumption is as it was the last time.
    """
    found: dict[int, dict[str, Any]] = {}
    if history.exists():
        for line in history.read_text(encoding="utf-8").splitlines():
            with suppress(ValueError):  # a killed coordinator leaves half a line
                event = json.loads(line)
                if event["event"] == "epoch" and event["stage"] == "train":
                    found[event["epoch"]] = event
    return found


def curve_of(epochs: Mapping[int, dict[str, Any]], per_epoch: int) -> list[dict[str, Any]]:
    """Return after each epoch: updates, seconds of training alone, held-out accuracy and loss."""
    seconds = 0.0
    curve = []
    for number, event in sorted(epochs.items()):
        speed = event["windows_per_second"]
        seconds += per_epoch * BATCH / speed if speed else 0.0
        held_out = event["validation"] or {}
        curve.append(
            {
                "updates": number * per_epoch,
                "seconds": round(seconds, 1),
                "accuracy": held_out.get("accuracy"),
                "loss": event["loss"],
            }
        )
    return curve


def at(curve: Sequence[dict[str, Any]], mark: int) -> dict[str, Any] | None:
    """The first epoch's end with as many updates; None where the run ended before."""
    return next((point for point in curve if point["updates"] >= mark), None)


def summary(bench: Bench, found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What was compared, and whether one process and sync ended with the same bits."""
    ended = {(row["split"], row["variant"]): row["parameters_sha256"] for row in found}
    curves = {(row["split"], row["variant"]): row["curve"] for row in found}
    same = {
        split: ended[split, "one process"] == ended[split, "sync"]
        for split in SPLITS
        if ended.get((split, "one process")) and ended.get((split, "sync"))
    }
    return {
        "marks": bench.marks,
        "window_steps": 200,
        "window_stride": bench.stride,
        "invented": {"people": PEOPLE, "devices": DEVICES, "bout_seconds": BOUT_SECONDS},
        "validation_people": HELD_OUT_PEOPLE,
        "not_at_the_last_mark": [
            f"{split}: {variant.name}"
            for split, variant in product(SPLITS, VARIANTS)
            if not at(curves.get((split, variant.name), []), max(bench.marks))
        ],
        "sync_has_the_bits_of_one_process": same,
    }


if __name__ == "__main__":
    main()
