"""The forecast for each number of nodes: speed, what limits it, watts, euros. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from cluster.forecast.costs import FittedCosts, MeasuredCosts, fitted
from cluster.forecast.simulation import (
    COORDINATOR,
    LINK,
    ROUND_TRIPS,
    SERVER,
    WORKER,
    Links,
    Simulation,
)

MOST_PLAYED = 128
"""Nodes that are simulated one by one; more are taken by the bound of the busiest resource."""
UPDATES_A_WORKER = 10
FEWEST_UPDATES = 400
FEWEST_STEPS = 100
SLOTS = "slots"
SECONDS_A_DAY = 86_400.0
LEAST_SHARE = 1e-6
"""Least share of the speed: with more failures nothing ever ends."""


@dataclass(frozen=True)
class Assumptions:
    """What is not measured: links, failures, power and its price."""

    link: float
    """Mbit/s of each node, each way."""
    latency: float
    """Milliseconds there and back."""
    failures: float
    """Failures of a node a day."""
    recovery: float
    """Seconds until a node that failed is back."""
    watts: float
    """Watts of a node."""
    pc_watts: float
    price: float
    """Euros a kilowatt-hour."""

    @property
    def links(self) -> Links:
        """The links in bytes and seconds."""
        return Links(self.link * 1e6 / 8, self.latency / 1e3)

    def euros(self, watts: float, seconds: float) -> float:
        """Return the price of the energy."""
        return watts * seconds / 3.6e6 * self.price


@dataclass(frozen=True)
class Outlook:
    """The training on so many nodes, each with a worker."""

    nodes: int
    windows_a_second: float
    efficiency: float
    """Windows a second over those of as many times one node."""
    seconds: float
    """Seconds of the whole training, validation and test left out."""
    limit: str
    """What takes the largest share of the workers' time; in a bound, what is never idle."""
    watts: float
    euros: float
    by: str
    """`simulation` where every worker was played, else `bound`: that of the busiest resource."""
    extrapolated: bool
    """Whether more workers, or another number of servers, were asked for than measured."""


def one_pc(costs: MeasuredCosts, assumed: Assumptions) -> dict[str, float]:
    """Return what the training takes in mode `single` where its costs were measured."""
    speed = costs.batch_size / costs.single_seconds
    seconds = _windows_of_job(costs) / speed
    return {
        "windows_a_second": speed,
        "seconds": seconds,
        "watts": assumed.pc_watts,
        "euros": assumed.euros(assumed.pc_watts, seconds),
    }


def outlooks(
    measured: MeasuredCosts,
    servers: int | None,
    counts: Sequence[int],
    assumed: Assumptions,
    largest: int | None = None,
) -> list[Outlook]:
    """Return the forecast for each number of nodes.

    It is fitted to the runs of at most `largest` workers, else to all. `servers` are as many as
    measured where it is None.
    """
    fit = fitted(measured, largest)
    costs = replace(measured, servers=servers or measured.servers)
    other_servers = costs.servers != measured.servers
    speeds: dict[int, tuple[float, str]] = {}

    def speed_of(nodes: int) -> tuple[float, str]:
        at_work = _at_work(costs, nodes)
        if at_work not in speeds:
            speeds[at_work] = _speed(costs, fit, assumed, at_work)
        speed, limit = speeds[at_work]
        if at_work < nodes:
            limit = SLOTS
        return speed, limit

    alone, _ = speed_of(1)
    forecast = []
    for nodes in counts:
        speed, limit = speed_of(nodes)
        seconds = _windows_of_job(costs) / speed
        watts = nodes * assumed.watts
        forecast.append(
            Outlook(
                nodes,
                speed,
                speed / (nodes * alone),
                seconds,
                limit,
                watts,
                assumed.euros(watts, seconds),
                "simulation" if _is_played(costs, nodes) else "bound",
                nodes > fit.largest or other_servers,
            )
        )
    return forecast


def _windows_of_job(costs: MeasuredCosts) -> int:
    return costs.windows * costs.alone.updates_an_epoch * costs.epochs


def _at_work(costs: MeasuredCosts, nodes: int) -> int:
    """More workers than a step has slots compute no part of it."""
    if costs.in_parts:
        return min(nodes, costs.slots)
    return nodes


def _is_played(costs: MeasuredCosts, nodes: int) -> bool:
    return costs.facts.in_steps or nodes <= MOST_PLAYED


def _speed(
    costs: MeasuredCosts, fit: FittedCosts, assumed: Assumptions, nodes: int
) -> tuple[float, str]:
    """Windows a second of so many workers, and what limits them."""
    if _is_played(costs, nodes):
        updates, limit = _played(costs, fit, assumed.links, nodes)
    else:
        updates, limit = _bound(costs, fit, assumed.links, nodes)
    rate = assumed.failures / SECONDS_A_DAY
    lost = rate * assumed.recovery
    if costs.facts.parameters == "workers":  # each one lost ends the run, which begins again
        lost *= nodes
    elif costs.facts.in_steps:  # the others compute its part again
        lost += rate * nodes / updates
    return updates * costs.windows * max(LEAST_SHARE, 1.0 - lost), limit


def _played(costs: MeasuredCosts, fit: FittedCosts, links: Links, nodes: int) -> tuple[float, str]:
    """Updates a second in the simulation: of whole epochs, or of the midst of a longer one."""
    updates = FEWEST_STEPS
    if not costs.facts.in_steps:
        updates = max(FEWEST_UPDATES, UPDATES_A_WORKER * nodes)
    epoch = costs.alone.updates_an_epoch
    whole = epoch <= 2 * updates
    if whole:
        updates = epoch * -(-updates // epoch)
    played = Simulation(costs, fit, links, nodes)
    played.run(updates, epoch)
    limit = max(played.spent, key=lambda kind: played.spent[kind])
    if whole:
        return updates / played.complete[-1], limit
    edge = updates // 4
    midst = played.complete[edge:-edge]
    return (len(midst) - 1) / (midst[-1] - midst[0]), limit


def _bound(costs: MeasuredCosts, fit: FittedCosts, links: Links, nodes: int) -> tuple[float, str]:
    """Updates a second if nothing waits but for what is never idle (Denning and Buzen 1978)."""
    shared = {
        COORDINATOR: fit.coordinator.at(nodes),
        SERVER: fit.server.at(nodes) / costs.servers,
        LINK: max(fit.pull_bytes, fit.push_bytes) / costs.servers / links.bytes_a_second,
    }
    cycle = shared[COORDINATOR] + shared[SERVER] + fit.call + fit.compute
    cycle += (fit.pull_bytes + fit.push_bytes) / links.bytes_a_second
    cycle += ROUND_TRIPS * links.round_trip_seconds
    busiest = max(shared, key=lambda kind: shared[kind])
    if nodes / cycle <= 1 / shared[busiest]:
        return nodes / cycle, WORKER
    return 1 / shared[busiest], busiest
