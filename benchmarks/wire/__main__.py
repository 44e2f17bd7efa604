"""Bytes and packets of a training step: ours beside the same training written the tutorial's way.

One parameter server and one worker, lean role processes; then, in turn, coordinators' training of
one network (`benchmarks.wire.network`) from the same weights on the same batches: our step with
each codec but `topk`, and of `local` with `int8`, Keras layers under ParameterServerStrategy with
the weights read once per step, and the same as the tutorial writes it, which reads them at every
time step. Counted on the parameter server's own sockets by its kernel (TCP_INFO), for all alike.
"""

import json
import subprocess
import sys
from typing import Any

from benchmarks.beds.local_cluster import local_cluster
from benchmarks.report import arguments, publish, tell
from benchmarks.wire.ours import VARIANTS

COORDINATORS: tuple[tuple[str, tuple[str, ...], list[str]], ...] = (
    *(("benchmarks.wire.ours", (variant,), ["--variant", variant]) for variant in VARIANTS),
    ("benchmarks.wire.in_keras", ("read_once", "tutorial"), []),
)
SIZES = {"full": (30, 5, 600.0), "quick": (5, 2, 100.0), "smoke": (1, 1, 100.0)}
"""Steps that count, steps before them, and seconds for both: ParameterServerStrategy has no
deadline of its own, and a call of its may never return."""


def rows_of(
    module: str, variants: tuple[str, ...], flags: list[str], deadline_seconds: float
) -> list[dict[str, Any]]:
    """A row for each variant: what its coordinator printed, or why there is nothing."""
    command = [sys.executable, "-m", module, *flags]
    try:
        ended = subprocess.run(command, capture_output=True, timeout=deadline_seconds)
        output = ended.stdout
        problem = _last_line(ended.stderr) if ended.returncode else "printed nothing"
    except subprocess.TimeoutExpired as expired:
        output = expired.stdout or b""
        problem = f"not done after {deadline_seconds:.0f} s"
    found = {row["variant"]: row for row in map(json.loads, output.splitlines())}
    return [found.get(variant, {"variant": variant, "problem": problem}) for variant in variants]


def _last_line(output: bytes) -> str:
    lines = output.decode(errors="replace").strip().splitlines()
    if lines:
        return lines[-1]
    return "failed without a word"


def summarize(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Ours with fp16 in `bytes_per_step`, `packets_per_step` and `.._over_ours`.

    What moves the same values as ours with fp32 is compared with that: `.._over_ours_fp32`, and two
    float32 vectors.
    """
    of = {row["variant"]: row for row in rows}
    ours = of["ours_fp16"]
    fp32 = of["ours"]
    tutorial = of["tutorial"]
    read_once = of["read_once"]

    def over(other: dict[str, Any], key: str, mine: dict[str, Any] = ours) -> float | None:
        if key in other and key in mine:
            return float(other[key] / mine[key])
        return None

    return {
        **{
            f"tutorial_bytes_over_{variant}": over(tutorial, "bytes_per_step", of.get(variant, {}))
            for variant in VARIANTS
            if variant not in ("ours", "ours_fp16")
        },
        "tutorial_bytes_over_ours": over(tutorial, "bytes_per_step"),
        "tutorial_packets_over_ours": over(tutorial, "packets_per_step"),
        "tutorial_seconds_over_ours": over(tutorial, "seconds_per_step"),
        "tutorial_bytes_over_ours_fp32": over(tutorial, "bytes_per_step", fp32),
        "read_once_bytes_over_ours_fp32": over(read_once, "bytes_per_step", fp32),
        "read_once_packets_over_ours_fp32": over(read_once, "packets_per_step", fp32),
        "bytes_per_step": ours.get("bytes_per_step"),
        "packets_per_step": ours.get("packets_per_step"),
        "bytes_over_half_vectors": (
            ours["bytes_per_step"] / (4 * ours["parameters"]) if "parameters" in ours else None
        ),
        "bytes_over_two_vectors": (
            fp32["bytes_per_step"] / (8 * fp32["parameters"]) if "parameters" in fp32 else None
        ),
    }


def main() -> None:
    """Measure them all and print the object; status 1 if one of them has no figures."""
    given = arguments(
        "wire", "Bytes and packets per training step, beside the tutorial's."
    ).parse_args()
    steps, warm_up, deadline = SIZES[given.size]
    rows: list[dict[str, Any]] = []
    with local_cluster(workers=1, servers=1) as cluster:
        flags = [f"--inventory={cluster.inventory.path}", f"--steps={steps}"]
        flags.append(f"--warm-up={warm_up}")
        for module, variants, own in COORDINATORS:
            for row in rows_of(module, variants, [*flags, *own], deadline):
                rows.append(row)
                tell(_line(row))
    publish("wire", rows, summarize(rows), given)
    sys.exit(any("problem" in row for row in rows))


def _line(row: dict[str, Any]) -> str:
    if "problem" in row:
        return f"{row['variant']}: {row['problem']}"
    return (
        f"{row['variant']}: {row['bytes_per_step']:,.0f} bytes and {row['packets_per_step']:.1f}"
        " packets a step"
    )


if __name__ == "__main__":
    main()
