"""What rows show of a run that none of its fields says: it is computed, live and at the end."""

from collections.abc import Iterator, Mapping
from math import nan, pi
from pathlib import Path
from statistics import fmean
from typing import Any

from cluster.pages.files import StoredRun
from cluster.pages.rows import NAMING, ROWS, Tile, number_at, tiles_of, value_at
from cluster.pages.special import unit_of, workers_of
from cluster.pages.words import (
    NOTHING,
    WORDS,
    count,
    figure_word,
    measure,
    percent,
    short,
    terms,
    value,
)
from core.inventory.extensions import MODES
from core.status.parts import FIGURE_KEYS
from core.status.view import PiPoint, RunView

MOST_OTHERS = 4
"""Tiles of figures that only the task or the app has; of a report twice as many."""
MOST_WRONG = 100
"""Rows of the table of what was wrong."""
INSIDE = ("idle", "busy", "suspect", "slow", "fenced")
"""States of a worker that is in the cluster."""
_NO_POINT = PiPoint(0, 0.0, nan, nan)
"""Stands for one before the first."""

Root = dict[str, Any]
"""Begin of the paths of rows, and the `words` for what they have in braces."""


def root_of(run: StoredRun, computed: Mapping[str, Any]) -> Root:
    """What rows show of a run, and what was computed of it."""
    texts = {name: value for name, value in computed.items() if isinstance(value, str)}
    return {
        "view": run.view,
        "result": run.result,
        "environment": run.environment,
        "computed": computed,
        "words": {**terms(unit_of(run.view)), **texts},
    }


def live_tiles(view: RunView) -> list[Tile]:
    """The figures of a run to look at first."""
    return tiles_of("live" if view.sweep is None else "live_sweep", live_root(view))


def live_root(view: RunView) -> Root:
    """What the rows of the live page show."""
    computed = _live_workers(view)
    if view.sweep is not None:
        counts = {"finished": 0, "running": 0, "failed": 0, "pruned": 0, **view.sweep.counts}
        early = f"{counts['pruned']} ended early by the search"
        computed |= {"counts": counts, "runs": sum(counts.values())}
        computed["failures"] = early if counts["pruned"] else "see sweep.json"
    if view.train is not None:
        losses = (sample.loss for sample in reversed(view.samples) if sample.loss is not None)
        if view.train.epochs:
            earlier = view.train.epochs[-1].loss
        else:
            earlier = None
        computed |= {"loss": next(losses, earlier), "learnt": _learnt(view)}
        computed["passes"] = f"finished passes over the training {unit_of(view)}"
        if view.train.stopped_early is not None:
            computed["passes"] = f"stopped early: {view.train.stopped_early}"
    if view.pi is not None:
        point = (view.pi.points or (_NO_POINT,))[-1]
        computed |= {"point": point, "distance": abs(point.estimate - pi)}
    return root_of(StoredRun(Path(), view), computed)


def _live_workers(view: RunView) -> dict[str, Any]:
    if view.train is not None and view.train.mode in MODES:
        mode = view.train.mode
        if not MODES[mode].needs_roles():
            hint = f"the coordinator computes alone, in mode {mode}"
            return {"workers": "none", "workers_hint": hint}
    workers = workers_of(view)
    live = sum(role.state in INSIDE for _, role in workers)
    return {
        "workers": f"{live} of {len(workers)}" if workers else NOTHING,
        "workers_hint": "in the cluster now, of those in the inventory",
    }


def _learnt(view: RunView) -> list[Tile]:
    """Return how good the model is: its accuracy, if any, and figures of only this task or app."""
    unit = unit_of(view)
    held_out = f"of {terms(unit)['held_out']}"
    for split, of in (("test", f"of the test {unit}"), ("validation", held_out)):
        figures = view.figures.get(split)
        if figures is None:
            continue
        if split == "test":
            hint = f"share {of} named correctly"
        else:
            hint = of
        tiles = _others(figures, of, MOST_OTHERS)
        if "accuracy" in figures:
            return [Tile("Accuracy", percent(figures["accuracy"]), hint), *tiles]
        loss = measure(figures.get("loss"))
        return tiles or [Tile(f"{split.capitalize()} loss", loss, f"{hint}; lower is better")]
    if view.task_type not in NAMING:
        return []
    if view.train is None or not view.train.epochs:
        return [Tile("Accuracy", NOTHING, "comes after the first epoch")]
    return [Tile("Accuracy", percent(view.train.epochs[-1].accuracy), f"of the training {unit}")]


def _others(figures: Mapping[str, float], of: str, most: int) -> list[Tile]:
    """Return the first figures that only this task or app has; `of`: what they are figures of."""
    tiles = []
    for name in [name for name in figures if name not in FIGURE_KEYS][:most]:
        word, hint = figure_word(name)
        tiles.append(Tile(word, measure(figures[name]), hint or of))
    return tiles


def ended_root(run: StoredRun) -> Root:
    """What the rows of a report show."""
    view = run.view
    result = run.result
    unit = unit_of(view)
    tested = view.figures.get("test", {})
    samples = number_at(result, "samples")
    seconds = view.elapsed_seconds
    by = value_at(result, "dataset.held_out.by") or "person"
    computed: dict[str, Any] = {
        "by": value(by),
        "speed": samples / seconds if samples is not None and seconds > 0 else None,
        "count": len(workers_of(view)) or result.get("workers"),
        "departures": sum(role.departures for node in view.nodes for role in node.roles),
        "suspicions": sum(span.state == "suspected" for span in view.spans),
        "injected": [
            Tile(f"injected: {fault}", count(times), "by --chaos")
            for fault, times in mapping_at(result, "chaos.injected").items()
        ],
        "others": [],
        "wrong": _wrong(result),
        "worked": list(_worked(view)),
        "nodes": [
            {"node": node, "roles": [role.task for role in node.roles]} for node in view.nodes
        ],
        "settings": [{"key": key, "value": text} for key, text in settings_of(run).items()],
        **_wired(result),
    }
    if view.pi is not None:
        computed["planned"] = short(view.pi.planned_samples)
    else:
        naming = view.task_type in NAMING
        computed |= {
            "has_test": True,
            "has_accuracy": naming or "accuracy" in tested,
            "has_f1": naming or "f1_macro" in tested,
            "others": _others(tested, f"of the test {unit}", 2 * MOST_OTHERS),
        }
        leak = value_at(result, "dataset.held_out.leak")
        if leak:
            computed["others"].append(Tile("The test set", "a leak", str(leak)))
    if view.train is not None:
        scheduled = number_at(result, "updates.scheduled")
        early = value_at(result, "stopped_early.epoch") or view.train.epoch
        computed |= {
            "stopped": f"epoch {count(early)}",
            "why": view.train.stopped_early or "",
            "scheduled": "in the whole history" if scheduled is None else f"of {count(scheduled)}",
        }
    return root_of(run, computed)


def mapping_at(root: Mapping[str, Any], path: str) -> Mapping[str, Any]:
    """Return the object behind a path, an empty one for anything else."""
    section = value_at(root, path)
    if isinstance(section, Mapping):
        return section
    return {}


def _wired(result: Mapping[str, Any]) -> dict[str, Any]:
    """Bytes between workers and parameter servers; nothing where nothing was measured."""
    pull = number_at(result, "wire.pull_bytes_per_step")
    push = number_at(result, "wire.push_bytes_per_step")
    if pull is None or push is None:
        return {"wired": False}
    updates = (number_at(result, f"updates.{name}") for name in ("applied", "scheduled"))
    steps = next(filter(None, updates), 0.0)
    return {"wired": True, "steps": count(steps), "all_bytes": (pull + push) * steps}


def _wrong(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return each stretch of a test that was taken for another class, with its place in words."""
    mistakes = result.get("wrong")
    stretches = []
    for entry in mistakes[:MOST_WRONG] if isinstance(mistakes, list) else []:
        if isinstance(entry, Mapping):
            ends = [count(entry.get(end)) for end in ("first", "last")]
            stretches.append({**entry, "stretch": " to ".join(dict.fromkeys(ends))})
    return stretches


def _worked(view: RunView) -> Iterator[dict[str, Any]]:
    """Yield what each worker did: its mean speed, and its shares of the time since it was there."""
    for node, role in workers_of(view):
        seconds = dict.fromkeys(WORDS["span_states"], 0.0)
        for span in view.spans:
            if span.task == role.task:
                if span.end_seconds is None:
                    end = view.elapsed_seconds
                else:
                    end = span.end_seconds
                spent = max(0.0, end - span.begin_seconds)
                seconds[span.state] = seconds.get(span.state, 0.0) + spent
        total = sum(seconds.values())
        speeds = [
            sample.workers[role.task] for sample in view.samples if role.task in sample.workers
        ]
        yield {
            "role": role,
            "node": node.name,
            "speed": fmean(speeds) if speeds else None,
            "shares": {state: spent / total for state, spent in seconds.items()} if total else {},
            "left": f"{role.departures}\N{MULTIPLICATION SIGN}",
        }


def settings_of(run: StoredRun) -> dict[str, str]:
    """Return all settings of the run, by their keys in the inventory."""
    settings = {
        key: value_at({"result": run.result}, path) for key, path in ROWS["settings"].items()
    }
    settings |= dict(_flat(mapping_at(run.result, "settings")))
    return {key: value(setting) for key, setting in settings.items() if setting is not None}


def _flat(settings: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for key, setting in settings.items():
        if isinstance(setting, Mapping):
            yield from _flat(setting, f"{above}{key}.")
        else:
            yield f"{above}{key}", setting
