"""What a run says of its recordings: whether a recording of readings fits its model."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from core.data.filters import NINE_CHANNELS
from core.data.signals import FILTERS, UNKNOWN, Signals
from core.errors import UsageError
from core.exported.description import NAMED_CHANNELS
from core.json_file import json_object
from core.status.past_run import RESULT
from recognise.fitting import refuse_unfit
from worker_node.recordings import Standardization

MOST_STRIDE = 4096


@dataclass(frozen=True)
class RecordedAs:
    """Facts of the recordings.

    `stride`: samples from one window to the next, 0 where the run does not say.
    """

    signals: Signals
    filters: str
    stride: int


def recorded_as(run: Path, standardization: Standardization) -> RecordedAs:
    """Return what the run in this folder states.

    Raises UsageError where its model takes other windows than are cut of readings, or the run does
    not say which.
    """
    found = json_object(run / RESULT) or {}
    dataset, settings = (_object(found, name) for name in ("dataset", "settings"))
    data = _object(settings, "data")
    signals = _signals(dataset, data, len(standardization.mean))
    try:
        refuse_unfit(signals, standardization.mean.tolist(), standardization.deviation.tolist())
    except UsageError as problem:
        raise UsageError(f"{run}: {problem}") from None
    if signals.filters is None or signals.sampling_hz is None:
        raise UsageError(
            f"{run}: expected a model of {' or '.join(FILTERS)} filters, got one whose training"
            " does not say which; state filters with the recordings, in the .npz, and train again"
        )
    stride = data.get("window_stride")
    if not isinstance(stride, int) or not 0 < stride <= MOST_STRIDE:
        stride = 0
    return RecordedAs(signals, signals.filters, stride)


def _signals(dataset: Mapping[str, Any], data: Mapping[str, Any], width: int) -> Signals:
    """Return the facts of the result, or those of its kind where it names no channels."""
    said = {
        "channels": dataset.get("channel_names"),
        **{key: dataset.get(key) for key in ("units", "sampling_hz", "sensors", "format_sha256")},
    }
    said["filters"] = dataset.get("filters")
    is_file = str(dataset.get("source")).endswith(
        ".npz"
    )  # which has the name that its owner gave it
    if "channel_names" not in dataset and dataset.get("name") in NAMED_CHANNELS and not is_file:
        # These kinds are filtered as the setting says.
        return replace(NINE_CHANNELS, filters=said["filters"] or data.get("filters"))
    try:
        return Signals.of({key: value for key, value in said.items() if value is not None}, width)
    except (TypeError, ValueError):
        return UNKNOWN


def _object(of: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = of.get(name)
    if isinstance(found, dict):
        return found
    return {}
