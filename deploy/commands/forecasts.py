"""`fab forecast`: what a training takes on other numbers of nodes."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deploy.commands.action import run_module, takes
from deploy.commands.apps import inventory_or_usual
from deploy.commands.flags import (
    JsonFlags,
    from_here,
    number,
    path,
    real_number,
    switch,
    text,
    whole_number,
    with_overrides,
)
from deploy.commands.jobs import codec_flag, mode_flag
from deploy.commands.opening import open_inventory

if TYPE_CHECKING:
    from core.inventory import Inventory

USUAL_FILE = "costs.json"
USUAL_NODES = [1, 2, 4, 8, 16]
MOST_NODES = 100_000
ASSUMED = ("link", "latency", "failures", "recovery", "watts", "pc_watts", "price")


def counts_of(flag: str, value: str) -> list[int]:
    """Return numbers of nodes, ascending: `16..10000` is 16, twice that and so on, and 10000.

    Raises UsageError.
    """
    counts = set[int]()
    for piece in value.split(","):
        low_text, dots, high_text = piece.partition("..")
        low = whole_number(flag, low_text, 1, MOST_NODES)
        high = whole_number(flag, high_text, low, MOST_NODES) if dots else low
        while low < high:
            counts.add(low)
            low *= 2
        counts.add(high)
    return sorted(counts)


def _amount(help_text: str, usual: float, low: float, high: float) -> Any:
    """Declare a flag with a number from `low` to `high`."""

    def read(flag: str, value: str) -> float:
        return real_number(flag, value, low, high)

    return text(f"{help_text} ({usual:g})", usual, read=read)


class ForecastFlags(JsonFlags):
    """The flags of `forecast`."""

    costs: str = path(
        f"file that `fab app check --out` wrote ({USUAL_FILE})", default=USUAL_FILE, read=from_here
    )
    nodes: list[int] = text(
        "numbers of nodes with a worker each, such as 16..10000 or 3,8 (1..16)",
        USUAL_NODES,
        read=counts_of,
    )
    measure: bool = switch("first measure the inventory's training here, into the file")
    app: str | None = text("name of the app or network, if the file has several")
    mode: str | None = mode_flag()
    codec: str | None = codec_flag()
    servers: int | None = number(
        "parameter servers; else those of --inventory, else as many as measured", 1, 1024
    )
    link: float = _amount("Mbit/s of each node's link", 300.0, 1e-3, 1e6)
    latency: float = _amount("milliseconds there and back between two nodes", 0.5, 0.0, 1e5)
    failures: float = _amount("failures of a node a day", 0.0, 0.0, 1e4)
    recovery: float = _amount("seconds until a node that failed is back", 60.0, 0.0, 1e6)
    watts: float = _amount("watts of a node: a Raspberry Pi 4 with four busy cores", 6.4, 0.0, 1e5)
    pc_watts: float = _amount("watts of this PC at work", 65.0, 0.0, 1e5)
    price: float = _amount("euros a kilowatt-hour: the EU's households in 2024", 0.29, 0.0, 1e3)


@takes(ForecastFlags)
def forecast(flags: ForecastFlags) -> None:
    """Show speed, limit, watts and euros by number of nodes: `fab forecast --nodes 16..10000`."""
    from cluster.forecast.costs import entry_of

    settled = with_overrides(flags)
    if flags.measure:
        from deploy.forecast.roles import measure_into

        with inventory_or_usual(settled) as (inventory, _):
            settled = _like(inventory, settled)
            measure_into(Path(flags.costs), inventory)
    elif flags.inventory is not None:
        settled = _like(open_inventory(settled, as_written=True), settled)
    entry = (settled.app, settled.mode, settled.codec)
    entry_of(Path(settled.costs), *entry)
    request = {
        "costs": settled.costs,
        "entry": entry,
        "nodes": settled.nodes,
        "servers": settled.servers,
        "assumed": {name: getattr(settled, name) for name in ASSUMED},
        "json": settled.json_,
    }
    run_module("cluster.forecast", json.dumps(request))


def _like(inventory: "Inventory", flags: ForecastFlags) -> ForecastFlags:
    """Return the flags with app, mode, codec and servers of the inventory where left out."""
    from cluster.forecast.costs import app_of

    train = inventory.jobs.train
    return flags.but(
        app=flags.app or app_of(train),
        mode=train.mode,
        codec=train.codec.name,
        servers=flags.servers or len(inventory.of_role("ps")) or None,
    )
