"""What a role process says about itself, read from its /metrics as anybody would."""

import urllib.request
from collections.abc import Collection
from http.client import HTTPException

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from cluster.errors import ClusterError
from cluster.metrics.scrapes import UNCOUNTED

ANSWER_SECONDS = 5.0
BUILD = "pscluster_build_info"
CORES = "pscluster_process_cores"
_NO_PROXY = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def role_metrics(
    host: str, metrics_port: int, names: Collection[str] | None = None, timeout_seconds: float = ANSWER_SECONDS
) -> list[Sample]:
    """Every sample that a role process exports, or those of these names, which costs less to read.

    Raises ClusterError if it does not answer.
    """
    address = f"http://{host}:{metrics_port}{UNCOUNTED}"
    try:
        with _NO_PROXY.open(address, timeout=timeout_seconds) as answer:
            text = answer.read().decode()
        if names is not None:
            starts = tuple(name + end for name in names for end in (" ", "{"))
            text = "".join(line for line in text.splitlines(keepends=True) if line.startswith(starts))
        families = list(text_string_to_metric_families(text))
    except (OSError, HTTPException, ValueError) as problem:
        raise ClusterError(f"{address}: expected the role's metrics, got {problem}: is it still running?") from None
    return [sample for family in families for sample in family.samples]


def processor_of(host: str, metrics_port: int) -> str | None:
    """The kind of processor a role process runs on; None if it does not say."""
    try:
        samples = role_metrics(host, metrics_port)
    except ClusterError:
        return None
    return next((sample.labels.get("processor") for sample in samples if sample.name == BUILD), None)


def cores_of(host: str, metrics_port: int) -> int | None:
    """Cores that a role process can compute on; None if it does not say."""
    try:
        samples = role_metrics(host, metrics_port, (CORES,))
    except ClusterError:
        return None
    return next((int(sample.value) for sample in samples if sample.name == CORES), None)
