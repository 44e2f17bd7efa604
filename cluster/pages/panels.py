"""What page and report show besides charts, made of a RunView: tiles, the cluster, the progress."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import nan, pi

from cluster.pages.run_charts import NAMING, place_of, unit_of
from cluster.pages.words import (
    NOTHING,
    Meaning,
    amount,
    count,
    duration,
    figure,
    figure_word,
    give_or_take,
    measure,
    percent,
    rate,
    role_state,
    short,
    terms,
)
from core.inventory.extensions import MODES
from core.status.parts import FIGURE_KEYS
from core.status.view import NodeView, PiPoint, RoleView, RunView, SweepCellView, SweepView

MOST_OTHER_TILES = 4


@dataclass(frozen=True)
class Tile:
    """One figure with its name and a word of explanation."""

    name: str
    value: str
    hint: str


@dataclass(frozen=True)
class RoleCard:
    """A role as it is shown in its node's card."""

    role: RoleView
    state: Meaning
    share: int
    """Percentage of the fastest worker's speed."""


@dataclass(frozen=True)
class NodeCard:
    """A machine of the picture."""

    node: NodeView
    roles: tuple[RoleCard, ...]
    serves: bool
    """Whether it runs a parameter server or the coordinator: the upper row."""
    tone: str
    """The worst of its roles'."""


@dataclass(frozen=True)
class ClusterPicture:
    """The nodes in two rows, and what flows between them."""

    servers: tuple[NodeCard, ...]
    workers: tuple[NodeCard, ...]
    live: int
    configured: int
    pull_bytes_per_second: float | None
    push_bytes_per_second: float | None


_NO_POINT = PiPoint(0, 0.0, nan, nan)
"""Stands for one before the first."""
_ORDER = ("bad", "warning", "waiting", "well", "off")
_INSIDE = ("idle", "busy", "suspect", "slow", "fenced")


def picture_of(view: RunView) -> ClusterPicture:
    """The cluster as cards."""
    roles = [role for node in view.nodes for role in node.roles]
    fastest = max((role.windows_per_second or 0.0 for role in roles), default=0.0)
    cards = [_card(node, fastest) for node in view.nodes]
    workers = [role for role in roles if role.task.startswith("worker:")]
    servers = [role for role in roles if role.task.startswith("ps:")]
    return ClusterPicture(
        servers=tuple(card for card in cards if card.serves),
        workers=tuple(card for card in cards if not card.serves),
        live=sum(role.state in _INSIDE for role in workers),
        configured=len(workers),
        pull_bytes_per_second=_total([role.sent_bytes_per_second for role in servers]),
        push_bytes_per_second=_total([role.received_bytes_per_second for role in servers]),
    )


def _card(node: NodeView, fastest: float) -> NodeCard:
    roles = tuple(
        RoleCard(
            role,
            role_state(role.state),
            round(100 * (role.windows_per_second or 0.0) / (fastest or 1.0)),
        )
        for role in sorted(node.roles, key=lambda role: place_of(role.task))
    )
    tones = [card.state.tone for card in roles]
    tone = next((tone for tone in _ORDER if tone in tones), "off")
    return NodeCard(
        node, roles, any(not role.task.startswith("worker:") for role in node.roles), tone
    )


def _total(values: list[float | None]) -> float | None:
    numbers = [value for value in values if value is not None]
    if numbers:
        return sum(numbers)
    return None


def tiles_of(view: RunView) -> list[Tile]:
    """The figures to look at first."""
    picture = picture_of(view)
    unit = unit_of(view)
    train = view.train
    if picture.configured:
        live = f"{picture.live} of {picture.configured}"
    else:
        live = NOTHING
    workers = Tile("Workers", live, "in the cluster now, of those in the inventory")
    if train is not None and train.mode in MODES and not MODES[train.mode].needs_roles():
        workers = Tile("Workers", "none", f"the coordinator computes alone, in mode {train.mode}")
    if view.sweep is not None:
        return _sweep_tiles(view.sweep)
    tiles = [
        workers,
        Tile("Throughput", rate(view.windows_per_second), f"{unit} a second, all workers together"),
    ]
    if train is not None:
        losses = [epoch.loss for epoch in train.epochs[-1:]]
        losses += [sample.loss for sample in view.samples if sample.loss is not None]
        staleness = None
        if train.staleness:
            staleness = train.staleness.mean
        passes = f"finished passes over the training {unit}"
        if train.stopped_early is not None:
            passes = f"stopped early: {train.stopped_early}"
        tiles += [
            Tile("Epoch", f"{train.epoch} of {train.planned_epochs}", passes),
            Tile(
                "Loss",
                measure(losses[-1] if losses else None),
                "how wrong it is in training; lower is better",
            ),
            *_learnt_tiles(view),
            Tile(
                "Staleness", figure(staleness, 1), "updates of others between pull and push, mean"
            ),
        ]
    if view.pi is not None:
        last = (view.pi.points or (_NO_POINT,))[-1]
        tiles += [
            Tile("Estimate of pi", figure(last.estimate, 7), "four times the share of hits"),
            Tile(
                "Standard error",
                give_or_take(last.standard_error),
                "how far off it typically is by chance",
            ),
            Tile("Distance to pi", figure(abs(last.estimate - pi), 7), "how far off it really is"),
            Tile(
                "Samples",
                f"{short(last.samples)} of {short(view.pi.planned_samples)}",
                "random points drawn",
            ),
        ]
    return tiles


def _sweep_tiles(sweep: SweepView) -> list[Tile]:
    """Return how many runs are where."""
    counts = sweep.counts
    total = sum(sweep.counts.values())
    early = f"{counts.get('pruned', 0)} ended early by the search"
    return [
        Tile("Finished", f"{counts.get('finished', 0)} of {total}", "runs with their result"),
        Tile("Running", count(counts.get("running", 0)), "trained at this moment"),
        Tile(
            "Failed",
            count(counts.get("failed", 0)),
            early if counts.get("pruned") else "see sweep.json",
        ),
    ]


@dataclass(frozen=True)
class SweepGrid:
    """The runs of a sweep as a table: a row a setting, a column a seed."""

    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def sweep_grid(sweep: SweepView) -> SweepGrid:
    """The grid, filled as far as it is."""
    seeds = list(dict.fromkeys(cell.seed for cell in sweep.cells))
    cells_of: dict[str, dict[int, str]] = {}
    for cell in sweep.cells:
        cells_of.setdefault(cell.settings or "as the inventory says", {})[cell.seed] = _cell_words(
            cell
        )
    rows = tuple(
        (settings, *(of.get(seed, "") for seed in seeds)) for settings, of in cells_of.items()
    )
    return SweepGrid(("settings", *(f"seed {seed}" for seed in seeds)), rows)


def _cell_words(cell: SweepCellView) -> str:
    if cell.state == "running":
        return f"{percent(cell.share, 0)} on {cell.node}"
    if cell.state == "finished":
        if cell.accuracy is None:
            return "done"
        return figure(cell.accuracy, 4)
    return cell.state


def _learnt_tiles(view: RunView) -> list[Tile]:
    """Return how good the model is: its accuracy, if any, and figures of only this task or app."""
    unit = unit_of(view)
    held_out = terms(unit_of(view))["held_out"]
    shares = {"test": f"share of the test {unit} named correctly", "validation": f"of {held_out}"}
    for split, hint in shares.items():
        figures = view.figures.get(split)
        if figures is not None:
            tiles = other_tiles(
                figures, f"of the test {unit}" if split == "test" else hint, MOST_OTHER_TILES
            )
            if "accuracy" in figures:
                tiles.insert(0, Tile("Accuracy", percent(figures["accuracy"]), hint))
            if tiles:
                return tiles
            return [
                Tile(
                    f"{split} loss".capitalize(),
                    measure(figures.get("loss")),
                    f"{hint}; lower is better",
                )
            ]
    if view.task_type not in NAMING:
        return []
    if view.train is None or not view.train.epochs:
        return [Tile("Accuracy", NOTHING, "comes after the first epoch")]
    return [Tile("Accuracy", percent(view.train.epochs[-1].accuracy), f"of the training {unit}")]


def other_tiles(figures: Mapping[str, float], of: str, most: int) -> list[Tile]:
    """Return the first figures that only this task or app has; `of`: what they are figures of."""
    names = [name for name in figures if name not in FIGURE_KEYS][:most]
    meanings = [(figure_word(name), figures[name]) for name in names]
    return [Tile(word.word, measure(value), word.hint or of) for word, value in meanings]


def remaining(view: RunView) -> str:
    """The time left, in words."""
    if view.state in ("done", "cancelled", "failed"):
        return f"ended after {duration(view.elapsed_seconds)}"
    if view.remaining_seconds is None:
        return "time left is known once the workers have replied"
    return f"about {duration(view.remaining_seconds)} left"


def progress_percent(view: RunView) -> float | None:
    """Return per cent of the present stage; None where it has no end that is known."""
    progress = view.progress
    if progress is None or progress.total <= 0:
        return None
    return 100 * min(1.0, progress.done / progress.total)


def progress_words(view: RunView) -> str:
    """`1,204 of 2,220 updates`."""
    progress = view.progress
    if progress is None or progress.total <= 0:
        return ""
    return f"{count(progress.done)} of {count(progress.total)} {progress.unit}"


def traffic(role: RoleView) -> list[str]:
    """Return what a role receives and sends, for its card."""
    both = (("↓", role.received_bytes_per_second), ("↑", role.sent_bytes_per_second))
    return [f"{arrow} {amount(rate)}/s" for arrow, rate in both if rate is not None]
