"""What a result says of the data that a job was given."""

from dataclasses import asdict
from typing import Any

from core.data import Dataset

DATASET_KEYS = (
    "name",
    "source",
    "sha256",
    "train_windows",
    "test_windows",
    "channels",
    "window_steps",
    "labels",
    "task",
    "unit",
    "held_out",
    "filters",
    "sampling_hz",
    "channel_names",
    "units",
    "sensors",
    "people",
    "format_sha256",
)


def describe_dataset(dataset: Dataset | None) -> dict[str, Any]:
    """The `dataset` entry of a result."""
    if dataset is None:
        return dict.fromkeys(DATASET_KEYS)
    listed = {
        "labels": list(dataset.labels),
        "channel_names": list(dataset.channel_names),
        "units": list(dataset.units),
        "sensors": {sensor.name: sensor.kind for sensor in dataset.signals.sensors},
        "format_sha256": dataset.signals.format_sha256,
        "held_out": asdict(dataset.held_out),
    }
    attributes = [key for key in DATASET_KEYS if key not in listed]
    entry = {**listed, **{key: getattr(dataset, key) for key in attributes}}
    return {key: entry[key] for key in DATASET_KEYS}
