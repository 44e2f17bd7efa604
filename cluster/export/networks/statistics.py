"""The statistics of `spectral` and `hybrid` as they are exported; see `cluster.models.window_statistics`."""

import numpy as np

from cluster.export.networks.writing import Layers
from cluster.export.writer import Tensor, Writer
from cluster.models import window_statistics as ours
from cluster.models.network import Problem
from cluster.models.spectral import FARTHEST, StandardizedStatistics


def standardized_statistics(layers: Layers, problem: Problem, name: str, windows: Tensor) -> Tensor:
    """(batch, statistics), each less its mean and over its deviation over the training windows."""
    write = layers.write
    assert StandardizedStatistics(name, problem).function.count == len(layers.parameters[f"{name}/mean"])
    scale, shift, mean, deviation = (
        layers.parameters[f"{name}/{each}"] for each in ("scale", "shift", "mean", "deviation")
    )
    raw = write.each("add", write.each("multiply", windows, scale), shift)
    found = _statistics(write, problem.window_steps, problem.channels, raw)
    found = write.each("divide", write.each("subtract", found, mean), deviation)
    return write.each("maximum", write.each("minimum", found, FARTHEST), -FARTHEST)


def _statistics(write: Writer, steps: int, channels: int, windows: Tensor) -> Tensor:
    neighbours = write.each("subtract", write.cut(windows, 1, 1, steps), write.cut(windows, 1, 0, steps - 1))
    changes = write.each("multiply", neighbours, ours.CHANGE)
    count = channels + ours.sensors(channels)
    parts = []
    for signals, length in ((windows, steps), (changes, steps - 1)):
        parts += _of_signals(write, _with_lengths(write, signals, length, channels), length, count)
    return write.joined([*parts, *_between(write, windows, steps, channels)], 1)


def _with_lengths(write: Writer, signals: Tensor, steps: int, channels: int) -> Tensor:
    sensors = ours.sensors(channels)
    if not sensors:
        return signals
    squares = write.shaped(write.own("square", signals), [steps, sensors, ours.AXES])
    squares = write.each("add", write.over("sum", squares, 3), ours.SMALL * ours.SMALL)
    return write.joined([signals, write.own("sqrt", squares)], 2)


def _of_signals(write: Writer, signals: Tensor, steps: int, count: int) -> list[Tensor]:
    mean = write.over("mean", signals, 1, kept=True)
    centred = write.each("subtract", signals, mean)
    variance = write.over("mean", write.own("square", centred), 1)
    found = [
        write.shaped(mean, [count]),
        write.own("sqrt", write.each("add", variance, ours.SMALL * ours.SMALL)),
        write.over("mean", write.own("absolute", centred), 1),
        write.over("max", signals, 1),
        write.over("min", signals, 1),
        write.over("mean", write.own("square", signals), 1),
    ]
    spectrum, bins = _log_spectrum(write, centred, steps, count)
    found += [write.over("mean", write.cut(spectrum, 2, begin, end), 2) for begin, end in ours.bands(steps)]
    found.append(write.over("max", write.cut(spectrum, 2, 1, bins), 2))
    for lag in ours.lags(steps):
        moved = write.each("multiply", write.cut(centred, 1, lag, steps), write.cut(centred, 1, 0, steps - lag))
        together = write.over("mean", moved, 1)
        found.append(write.each("divide", together, write.each("add", variance, ours.SMALL)))
    return found


def _log_spectrum(write: Writer, centred: Tensor, steps: int, count: int) -> tuple[Tensor, int]:
    """(batch, signals, bins), and how many bins."""
    stretch = min(steps, ours.LONGEST_SPECTRUM)
    stretches, bins = steps // stretch, stretch // 2 + 1
    rows = write.turned(write.cut(centred, 1, 0, stretches * stretch), [0, 2, 1])
    rows = write.shaped(rows, [count, stretches, stretch])
    waves = write.dense(rows, ours.waves(stretch, bins), None)
    parts = [write.own("square", write.cut(waves, 3, begin, begin + bins)) for begin in (0, bins)]
    power = write.over("mean", write.each("add", *parts), 2)
    return write.own("log1p", power), bins


def _between(write: Writer, windows: Tensor, steps: int, channels: int) -> list[Tensor]:
    sensors = ours.sensors(channels)
    if not sensors:
        rolled = _rolled(write, windows, 2, channels)
        return [_correlation(write, windows, rolled)] if channels > 1 else []
    axes = write.shaped(windows, [steps, sensors, ours.AXES])
    correlation = _correlation(write, axes, _rolled(write, axes, 3, ours.AXES))
    mean = write.over("mean", axes, 1)
    length = write.own("sqrt", write.over("sum", write.own("square", mean), 2, kept=True))
    direction = write.each("divide", mean, write.each("add", length, ours.WEAK))
    return [write.shaped(correlation, [channels]), write.shaped(direction, [channels])]


def _rolled(write: Writer, values: Tensor, axis: int, length: int) -> Tensor:
    """Moved by one along the axis, the last element to the front."""
    parts = [write.cut(values, axis, length - 1, length), write.cut(values, axis, 0, length - 1)]
    return write.joined(parts, axis) if length > 1 else values


def _correlation(write: Writer, first: Tensor, second: Tensor) -> Tensor:
    first, second = (write.each("subtract", one, write.over("mean", one, 1, kept=True)) for one in (first, second))
    squares = [write.over("mean", write.own("square", one), 1) for one in (first, second)]
    spreads = write.own("sqrt", write.each("multiply", *squares))
    together = write.over("mean", write.each("multiply", first, second), 1)
    return write.each("divide", together, write.each("add", spreads, np.float32(ours.SMALL)))
