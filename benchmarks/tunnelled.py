"""What `transport: wireguard` costs on 94 Mbit/s links: `ours` of `benchmarks.links`, both ways.

The tunnel is `wireguard-go`, in user space: on this machine all its ends share the processors with
the cluster, which a Raspberry Pi with the kernel's module does not.
"""

import statistics
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.asking import Asked
from benchmarks.beds.tunnels import tunnels, why_not
from benchmarks.beds.virtual_network import Machine, machines
from benchmarks.links.__main__ import (
    MEGABITS,
    ROLES,
    SIZES,
    VARIANTS,
    coordinator,
    inventory_in,
    roles,
)
from benchmarks.report import arguments, publish
from core.inventory import load

TRANSPORTS = ("plain", "wireguard")


def measure(places: Sequence[Machine], steps: int, rounds: int) -> list[dict[str, Any]]:
    """A row for each transport and codec; they take turns, so that the others rest."""
    with ExitStack() as stack:
        folder = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="pscluster-benchmark-"))
        )
        running: dict[tuple[str, str], Asked] = {}
        for transport in TRANSPORTS:
            for variant in VARIANTS[:2]:
                path = inventory_in(folder, f"{transport}-{variant.name}", places).path
                path.write_text(f"{path.read_text()}transport: {transport}\n")
                inventory = load(path)
                if transport == "wireguard" and not any(key[0] == transport for key in running):
                    prefixes = {
                        node.name: place.prefix
                        for node, place in zip(inventory.nodes, places, strict=True)
                    }
                    stack.enter_context(tunnels(inventory, prefixes, folder))
                stack.enter_context(roles(inventory, places, variant.server))()
                asked = stack.enter_context(coordinator(places[0], variant, path))
                asked.ask(steps)
                running[transport, variant.name] = asked
        found: dict[tuple[str, str], list[float]] = {key: [] for key in running}
        for _ in range(rounds):
            for key, asked in running.items():
                took = asked.ask(steps)
                found[key].append(took["steps"] / took["seconds"])
    return [
        {
            "transport": transport,
            "variant": name,
            "steps_per_second": statistics.median(figures),
            "rounds": figures,
        }
        for (transport, name), figures in found.items()
    ]


def summarize(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Tunnel over plain, by variant: the median of the rounds' own ratios."""
    of = {(row["transport"], row["variant"]): row["rounds"] for row in rows}
    over = {}
    for variant in VARIANTS[:2]:
        pairs = zip(of["wireguard", variant.name], of["plain", variant.name], strict=True)
        over[variant.name] = statistics.median(tunnel / plain for tunnel, plain in pairs)
    return {"wireguard_go_over_plain": over, "megabits": MEGABITS}


def main() -> None:
    """Measure and print the object."""
    given = arguments(
        "tunnelled", "Steps per second over 94 Mbit/s links, in the clear and in a tunnel."
    ).parse_args()
    problem = why_not()
    if problem:
        sys.exit(f"benchmarks.tunnelled: {problem}")
    with machines(len(ROLES), MEGABITS) as places:
        rows = measure(places, *SIZES[given.size][1:])
    publish("tunnelled", rows, summarize(rows), given)


if __name__ == "__main__":
    main()
