"""What a training says of itself before it begins."""

import logging
from collections.abc import Iterator

from cluster.apps.app_network import AppNetwork
from cluster.jobs.session import Session, Solo
from core.engine.devices import computing_words
from core.inventory.slots import LIBRARY, BatchSlots, ChosenArithmetic
from core.inventory.training import TrainJob
from core.inventory.training_sections import apart_from_recipe
from core.models.network import Network

log = logging.getLogger(__name__)


def reproducible(job: TrainJob, processors: set[str | None]) -> bool | None:
    """Return whether another run would end with the same bits, on any number of such nodes.

    By the library also on other ones. None if that is unknown.
    """
    if not job.facts.same_bits(job.mode_options):
        return False
    if job.arithmetic == LIBRARY:
        return True
    if (
        None in processors or job.device.kind != "cpu" or job.compiled
    ):  # no two runs were compared on others
        return None
    if len(processors) > 1:
        log.warning(
            "the nodes have different processors (%s): under TensorFlow's arithmetic, who computes"
            " what changes the last bits of the result",
            ", ".join(sorted(filter(None, processors))),
        )
    return len(processors) == 1


def opening_lines(
    job: TrainJob,
    network: Network,
    session: Session | Solo,
    *,
    cut: BatchSlots | None,
    arithmetic: ChosenArithmetic | None,
    on: tuple[str, ...],
) -> Iterator[str]:
    """Yield what a person should know before a long training. `on`: the devices of this process."""
    described = network.describe()
    assert cut is not None
    assert arithmetic is not None
    servers = len(session.places)
    workers = session.workers
    if isinstance(session, Solo):
        where = "in this process"
    else:
        where = (
            f"on {servers} parameter server{'s' * (servers > 1)}, {workers}"
            f" worker{'s' * (workers > 1)}"
        )
    where += computing_words(job.device, on)
    if isinstance(network, AppNetwork):
        yield from network.notes()
    if changed_values := apart_from_recipe(job.recipe, job.model_dump(mode="json", by_alias=True)):
        yield f"recipe {job.recipe} with other values: {', '.join(changed_values)}"
    yield (
        f"model: {described['name']}, {described['parameters']:,} parameters {where},"
        f" {job.mode}, batch {job.batch_size} in {cut.number}"
        f" slot{'s' * (cut.number > 1)} ({cut.why}); arithmetic: {arithmetic.name}"
        f" ({arithmetic.why})"
    )
