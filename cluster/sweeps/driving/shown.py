"""What a sweep shows of itself while it runs, and at its end."""

import logging
from collections.abc import Mapping, Sequence

from cluster.pages.files import OVER, RunRecord, SweepRecord
from cluster.sweeps.search import Search
from cluster.sweeps.table import in_words
from core.status.view import SweepCellView, SweepView

log = logging.getLogger(__name__)


MOST_CELLS = 1000


def best_of(record: SweepRecord, search: Search) -> RunRecord | None:
    """Return the run with the best value of the search's metric on the validation.

    None before one is finished.
    """
    candidates = [run for run in record.runs if (run.selected or {}).get(search.metric) is not None]
    if search.maximizes:
        sign = 1
    else:
        sign = -1
    return max(
        candidates,
        key=lambda run: sign * ((run.selected or {})[search.metric] or 0.0),
        default=None,
    )


def picture_of(
    record: SweepRecord, shares: Mapping[str, float], remaining: float | None
) -> SweepView:
    """The sweep as page and metrics have it.

    `shares`: how much is done of each running run, by id.
    """
    cells = tuple(
        SweepCellView(
            run.id,
            in_words(run.settings),
            run.seed,
            run.state,
            run.node,
            1.0 if run.state in OVER else shares.get(run.id, 0.0),
            (run.final or {}).get("accuracy"),
        )
        for run in record.runs[:MOST_CELLS]
    )
    counts = {str(state): count for state, count in record.counts().items()}
    return SweepView(record.name, record.placement, counts, remaining, cells)


def aligned(table: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table, its columns below one another."""
    widths = [max(len(row[at]) for row in table) for at in range(len(table[0]))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in table
    ]
