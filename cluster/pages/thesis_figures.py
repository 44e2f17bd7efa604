"""What the 2019 thesis printed of its sixteen Raspberry Pi 3B+: Table 5 (pi) and Table 21 (training), every cell.

Source: Ranbirsingh, thesis of 2019 on a cluster of sixteen Raspberry Pis, read from its text. Table 5 ends at 100
million samples. Its N/A are printed without a reason. Its seconds are those of the whole client with its start.
"""

MILLION = 1_000_000
PIS = (1, 2, 4, 8, 16)

PI_SECONDS: dict[int, tuple[float | None, ...]] = {
    10 * MILLION: (1.495, 1.18, 1.32, 1.961, 2.34),
    20 * MILLION: (2.594, 1.704, 1.572, 2.087, 2.48),
    30 * MILLION: (3.673, 2.284, 1.848, 2.299, 2.57),
    40 * MILLION: (4.758, 2.818, 2.09, 2.35, 2.63),
    50 * MILLION: (6.561, 3.373, 2.391, 2.48, 2.79),
    60 * MILLION: (7.713, 3.91, 2.648, 2.628, 2.593),
    70 * MILLION: (None, 4.451, 2.923, 2.782, 2.421),
    80 * MILLION: (None, 4.998, 3.218, 2.953, 2.561),
    90 * MILLION: (None, 5.678, 3.482, 3.147, 2.842),
    100 * MILLION: (None, 6.103, 3.741, 3.234, 2.611),
}
"""Table 5: seconds on each number of `PIS` for so many samples; None where it prints N/A."""

TRAINING: dict[int, tuple[int, float, int, float]] = {
    32: (6231, 0.921709823, 3221, 0.911774695),
    64: (9939, 0.904981205, 4842, 0.899558902),
    128: (15283, 0.922189017, 9845, 0.919239879),
    256: (37171, 0.182218305, 28762, 0.182219207),
}
"""Table 21, three layers of so many units: seconds and accuracy on the sixteen Pis, then on one Intel Xeon."""


def is_in_table_5(samples: int, pis: int) -> bool:
    """Whether the table has such a cell, be it N/A."""
    return samples in PI_SECONDS and pis in PIS


def pi_seconds(samples: int, pis: int) -> float | None:
    """The cell of Table 5; None for N/A, and where there is no such cell."""
    return PI_SECONDS[samples][PIS.index(pis)] if is_in_table_5(samples, pis) else None
