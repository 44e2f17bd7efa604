"""The shared part of the coordinators of `benchmarks.wire`: flags, measured steps, output."""

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.asking import serve
from cluster.jobs.roles import RoleTraffic, traffic_of
from core.inventory import Inventory


@dataclass(frozen=True)
class Steps:
    """Traffic of training steps over the parameter servers' sockets, and their losses."""

    steps: int
    bytes_per_step: float
    pull_bytes_per_step: float
    push_bytes_per_step: float
    packets_per_step: float
    seconds_per_step: float
    first_loss: float
    last_loss: float


def arguments(program: str) -> argparse.ArgumentParser:
    """A parser for the cluster and the numbers of steps."""
    parser = argparse.ArgumentParser(prog=f"python -m {program}")
    parser.add_argument("--inventory", required=True)
    parser.add_argument("--warm-up", type=int, default=3, help="steps before those that count")
    parser.add_argument("--steps", type=int, default=20, help="steps that count")
    return parser


def traffic(inventory: Inventory) -> RoleTraffic:
    """The traffic of all parameter servers so far."""
    return sum(map(traffic_of, inventory.of_role("ps")), RoleTraffic())


def timed_steps(
    inventory: Inventory, run: Callable[[int], list[float]], given: argparse.Namespace
) -> Steps:
    """Measure `run(count)`, which trains for `count` steps and returns their losses.

    The first run warms up.
    """
    first = run(given.warm_up)
    before = traffic(inventory)
    begin = time.monotonic()
    losses = run(given.steps)
    seconds = time.monotonic() - begin
    carried = traffic(inventory) - before
    steps = len(losses)
    return Steps(
        steps=steps,
        bytes_per_step=(carried.sent + carried.received) / steps,
        pull_bytes_per_step=carried.sent / steps,
        push_bytes_per_step=carried.received / steps,
        packets_per_step=carried.packets / steps,
        seconds_per_step=seconds / steps,
        first_loss=first[0],
        last_loss=losses[-1],
    )


def serve_rounds(run: Callable[[int], list[float]]) -> None:
    """Answer each number on standard input: `run` that many steps.

    Their count, seconds and last loss.
    """

    def answer(steps: int) -> dict[str, Any]:
        begin = time.monotonic()
        losses = run(steps)
        return {"steps": len(losses), "seconds": time.monotonic() - begin, "last_loss": losses[-1]}

    serve(answer)


def report(variant: str, parameters: int, steps: Steps) -> None:
    """Print the row that `benchmarks.wire` reads, on one line."""
    json.dump({"variant": variant, "parameters": parameters, **asdict(steps)}, sys.stdout)
    print(flush=True)
