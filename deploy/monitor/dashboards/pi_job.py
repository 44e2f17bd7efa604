"""The dashboard of the pi job. Pure."""

from deploy.monitor.dashboards.page import page
from deploy.monitor.dashboards.parts import Query, figure, lines

UID = "pscluster-pi"
_HERE = 'cluster="$cluster"'
_DRAWN = f"sum(pscluster_pi_samples_total{{{_HERE}}})"
_ESTIMATE = f"max(pscluster_pi_estimate_ratio{{{_HERE}}})"
_ERROR = f"max(pscluster_pi_standard_error_ratio{{{_HERE}}})"


def pi_job() -> str:
    """The dashboard as JSON."""
    return page(
        UID,
        "pscluster: pi job",
        "The Monte Carlo job: how its estimate closes in, and how fast each worker draws.",
        (
            (
                "Now",
                (
                    figure("Estimate", "none", "Of pi, so far.", Query(_ESTIMATE), width=6),
                    figure("Standard error", "sci", "Of the estimate, so far.", Query(_ERROR), width=6),
                    figure("Drawn", "short", "Random points so far, all workers together.", Query(_DRAWN), width=6),
                    figure("Done", "percentunit", "Share of the planned points.",
                           Query(f"{_DRAWN} / max(pscluster_pi_planned_samples{{{_HERE}}})"), width=6),
                ),
            ),
            (
                "Over time",
                (
                    lines("Estimate with its error band", "none", "And two standard errors to both sides.",
                          Query(_ESTIMATE, "estimate"), Query(f"{_ESTIMATE} + 2 * {_ERROR}", "+ 2 standard errors"),
                          Query(f"{_ESTIMATE} - 2 * {_ERROR}", "- 2 standard errors"), Query("pi()", "pi"),
                          from_zero=False),
                    lines("Distance from pi", "sci", "How far off the estimate is, and its standard error.",
                          Query(f"abs({_ESTIMATE} - pi())", "distance"), Query(_ERROR, "standard error")),
                    lines("Points a second", "short", "Drawn by each worker.",
                          Query(f"sum by (task) (rate(pscluster_pi_samples_total{{{_HERE}}}[$__rate_interval]))",
                                "worker:{{task}}"), stacked=True),
                    lines("Calibrated speed", "short", "Points a second of each worker, as the job measured "
                          "it.",
                          Query(f"max by (task) (pscluster_calibration_samples_per_second{{{_HERE}}})",
                                "worker:{{task}}")),
                ),
            ),
        ),
    )  # fmt: skip
