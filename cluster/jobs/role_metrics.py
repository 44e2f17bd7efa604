"""What a role process says about itself, read from its /metrics as anybody would."""

from collections.abc import Collection

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from cluster.control.client import NoAnswerError, ask
from cluster.errors import ClusterError
from cluster.metrics.scrapes import UNCOUNTED

ANSWER_SECONDS = 5.0
MOST_LINES = 10_000
"""Of which a role writes some 150. Reading so many takes a tenth of a second."""
BUILD = "pscluster_build_info"
CORES = "pscluster_process_cores"


def role_metrics(
    host: str, metrics_port: int, names: Collection[str] | None = None, timeout_seconds: float = ANSWER_SECONDS
) -> list[Sample]:
    """Every sample that a role process exports, or those of these names, which costs less to read.

    Raises ClusterError if the whole answer, of a bounded size, is not there within `timeout_seconds`.
    """
    address = f"{host}:{metrics_port}"
    try:
        answer = ask(address, "GET", UNCOUNTED, deadline_seconds=timeout_seconds)
        if answer.status != 200:
            raise ValueError(f"status {answer.status}")
        lines = answer.text.splitlines(keepends=True)
        if names is not None:
            starts = tuple(name + end for name in names for end in (" ", "{"))
            lines = [line for line in lines if line.startswith(starts)]
        if len(lines) > MOST_LINES:
            raise ValueError(f"{len(lines)} lines, more than {MOST_LINES}")
        families = list(text_string_to_metric_families("".join(lines)))
    except NoAnswerError as problem:
        raise ClusterError(f"{problem}; expected the role's metrics: is it still running?") from None
    except (ValueError, IndexError, KeyError) as problem:
        raise ClusterError(
            f"http://{address}{UNCOUNTED}: expected the role's metrics, got {problem}: "
            "does another program have its port?"
        ) from None
    return [sample for family in families for sample in family.samples]


def processor_of(host: str, metrics_port: int, timeout_seconds: float = ANSWER_SECONDS) -> str | None:
    """The kind of processor a role process runs on; None if it does not say."""
    try:
        samples = role_metrics(host, metrics_port, (BUILD,), timeout_seconds)
    except ClusterError:
        return None
    return next((sample.labels.get("processor") for sample in samples if sample.name == BUILD), None)


def cores_of(host: str, metrics_port: int, timeout_seconds: float = ANSWER_SECONDS) -> int | None:
    """Cores that a role process can compute on; None if it does not say."""
    try:
        samples = role_metrics(host, metrics_port, (CORES,), timeout_seconds)
    except ClusterError:
        return None
    return next((int(sample.value) for sample in samples if sample.name == CORES), None)
