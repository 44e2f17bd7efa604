"""`fab job inference`: how fast the exports of a run answer on every worker's node."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cluster.programs.request import ProgramRequest
from core.errors import ClusterError, UsageError
from core.json_file import json_object
from core.logs.terminal import say, say_json
from deploy.commands.action import takes
from deploy.commands.flags import JobFlags, TrustFlags, number, path, with_overrides
from deploy.commands.jobs import run_job
from deploy.commands.opening import open_inventory
from deploy.common.project import environment_for_any_folder, module_command
from deploy.common.waiting import waiting_for
from deploy.jobs.timing_program import REQUIREMENTS, written

EXPORTS: Mapping[str, tuple[str, ...]] = {
    "onnx": ("--to=onnx",),
    "onnx-dynamic": ("--to=onnx", "--quantize=dynamic"),
    "litert": ("--to=litert",),
    "litert-dynamic": ("--to=litert", "--quantize=dynamic"),
}
RESULT = "inference.json"
LARGEST_RESULT = 1 << 20
MOST_ROUNDS = 1000
WINDOWS = 40
"""The windows of one round."""
ROW = "{:<10}  {:<12}  {:<30}  {:<18}  {:>9}  {:>9}  {:>8}  {:>8}  {:>9}"


class InferenceFlags(TrustFlags, JobFlags):
    """The flags of `job inference`."""

    run: str | None = path("folder of the training whose exports are timed")
    rounds: int = number("how many rounds of windows are timed; 25", 1, MOST_ROUNDS, 25)
    data: str | None = path(
        "recordings of the test windows, where they lie elsewhere than in the training"
    )


@takes(InferenceFlags)
def inference(flags: InferenceFlags) -> None:
    """Time the exports of a run on every worker's node: `fab job inference --run RUN`."""
    if not flags.run:
        raise UsageError(
            "--run: expected the folder of a finished training, e.g. runs/20260101T120000Z-train"
        )
    run = Path(os.path.expanduser(flags.run))
    if not (run / "model").is_dir():
        raise UsageError(
            f"{run}: expected the folder of a finished training, which has a folder `model`"
        )
    runs = Path(open_inventory(flags).runs)
    with tempfile.TemporaryDirectory(prefix="pscluster-inference-") as made:
        folder = Path(made)
        exported(run, folder / "exports", flags.data)
        program = written(folder, run)
        words = (str(flags.rounds), str(WINDOWS), "1")
        wish = ProgramRequest(
            str(program), words, "workers", 0, requirements=str(folder / REQUIREMENTS)
        ).checked()
        with _new_run(runs) as found, _not_on_stdout(flags.json_):
            run_job("run", with_overrides(_quiet(flags)), wish=wish)
    result = gathered(found[0], run.name)
    path = found[0] / RESULT
    path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    if flags.json_:
        say_json(result)
        return
    for line in table(result):
        say(line)
    say(f"result: {path}")


def exported(run: Path, folder: Path, data: str | None) -> None:
    """Every export that this run's network has. Raises ClusterError where there is none."""
    folder.mkdir()
    last = ""
    for name, words in EXPORTS.items():
        more = () if data is None else (f"--data={data}",)
        command = module_command(
            "cluster.export", f"--run={run}", f"--out={folder / name}", *words, *more, "--quiet"
        )
        with waiting_for(f"exporting {name}"):
            done = subprocess.run(
                command, env=environment_for_any_folder(), capture_output=True, text=True
            )
        if done.returncode:
            last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
            say(f"{name} is left out: {last}", error=True)
    if not any(folder.iterdir()):
        raise ClusterError(f"{run}: it cannot be exported: {last}")


@contextmanager
def _new_run(runs: Path) -> Iterator[list[Path]]:
    """The folder of the run that the block has made, in the list afterwards.

    Raises ClusterError without one.
    """
    before = set(runs.glob("*-run*"))
    found: list[Path] = []
    yield found
    found += sorted(set(runs.glob("*-run*")) - before)
    if not found:
        raise ClusterError(f"{runs}: expected the folder of the program's run, found none")


def gathered(run: Path, training: str) -> dict[str, Any]:
    """What the workers of a program's `run` found, by worker.

    Raises ClusterError for a file that is damaged.
    """
    tasks = (json_object(run / "result.json") or {}).get("tasks")
    if not isinstance(tasks, dict):
        raise ClusterError(f"{run}: expected the result of a program, with its tasks")
    workers: dict[str, Any] = {}
    for name, task in tasks.items():
        path = run / "files" / name.replace(":", "-") / RESULT
        try:
            if path.stat().st_size > LARGEST_RESULT:
                raise ValueError(f"more than {LARGEST_RESULT:,} bytes")
            found = json.loads(path.read_text(encoding="utf-8"))
            machine = {
                key: _plain(found["machine"][key])
                for key in ("model", "architecture", "cores", "memory_mb")
            }
            rows = [{key: _plain(row[key]) for key in KEYS} for row in found["rows"]]
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as problem:
            raise ClusterError(f"{path}: expected what {name} measured, got {problem}") from None
        workers[name] = {"node": task["node"], "machine": machine, "rows": rows}
    return {"schema": 1, "run": training, "workers": workers}


KEYS = (
    "name",
    "runtime",
    "bytes",
    "median_ms",
    "p99_ms",
    "process_mb",
    "model_and_runtime_mb",
    "first_answer_seconds",
    "greatest_difference",
    "same_labels",
    "windows",
)


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return value[:200]
    if value is None or isinstance(value, int | float):
        return value
    raise TypeError(f"a {type(value).__name__}")


def table(result: Mapping[str, Any]) -> Sequence[str]:
    """A row for each runtime on each node; the ratio is to the node's first runtime."""
    made = [ROW.format("worker", "node", "machine", "runtime", "ms", "p99 ms", "over", "MB", "kB")]
    for name, worker in result["workers"].items():
        first = worker["rows"][0]["median_ms"]
        for row in worker["rows"]:
            size = ""
            if row["bytes"] is not None:
                size = f"{row['bytes'] / 1000:,.0f}"
            cells = (
                name,
                worker["node"],
                worker["machine"]["model"][:30],
                row["name"],
                f"{row['median_ms']:.2f}",
                f"{row['p99_ms']:.2f}",
                f"{row['median_ms'] / first:.1f} x",
                f"{row['process_mb']:.0f}",
                size,
            )
            made.append(ROW.format(*cells))
    return made


@contextmanager
def _not_on_stdout(wanted: bool) -> Iterator[None]:
    """Send what the block and its children print on stdout to stderr, if `wanted`.

    Standard output then has one JSON object.
    """
    if not wanted:
        yield
        return
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)


def _quiet(flags: InferenceFlags) -> InferenceFlags:
    return flags.but(json_=False, quiet=flags.quiet or flags.json_)
