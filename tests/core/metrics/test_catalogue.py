"""The catalogue keeps to Prometheus's naming practice, and docs/metrics.md says what it says."""

import re

from core.metrics.catalogue import CATALOGUE, LABELS


def test_every_name_is_there_once_and_is_a_name() -> None:
    names = [entry.name for entry in CATALOGUE]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"pscluster_[a-z][a-z0-9_]*[a-z0-9]", name) for name in names)


def test_labels_are_bounded_and_never_those_of_all() -> None:
    free = {
        f"{entry.short} {label}"
        for entry in CATALOGUE
        for label, values in entry.labels.items()
        if not values
    }
    assert free == {
        "build_info version",
        "build_info tensorflow",
        "build_info python",
        "build_info processor",
        "job_info run",
        "job_info mode",
        "job_info model",
        "device_busy_seconds_total device",  # the process takes one
        "device_memory_used_bytes device",
        "train_metric metric",  # bounded by MOST_OTHERS of the coordinator
        "program_cpu_seconds_total member",
        "program_resident_bytes member",
        "program_processes member",
        "service_low_confidence_ratio version",  # the open ones, two at most
        "service_input_distance_ratio version",
        "service_input_distance_ratio channel",  # MOST_CHANNELS of each
        "train_wire_bytes_total codec",  # bounded by the registry, which a role does without
    }
    assert not any(set(LABELS) & set(entry.labels) for entry in CATALOGUE)
