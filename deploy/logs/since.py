"""`--since` of `fab deploy logs`: the times of journalctl that people type, understood on the operator's machine. Pure.

No node is given the text: it has a time zone of its own, and journalctl 252 refuses `2026-11-21T22:45:01Z`.
"""

import re
from datetime import UTC, datetime, timedelta

from cluster.errors import UsageError

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_AGO = re.compile(
    r"-?\s*(?P<count>\d{1,9})\s*(?P<unit>s|sec|seconds?|m|min|minutes?|h|hours?|d|days?|w|weeks?)(?P<ago>\s+ago)?"
)
_MONTHS = re.compile(r"\d\s*M\b")
"""Months in journalctl, which somebody who means minutes must not get, nor the other way round: neither."""

_RUN_SLACK_SECONDS = 86400.0
"""A node's clock may be so much behind that of the coordinator, which names the run."""

_TIMES = ("%H:%M", "%H:%M:%S")


def not_before(run: str) -> float:
    """A time before every line of the run, by its name; 0 for a name that does not begin with one."""
    try:
        begun = datetime.strptime(run.partition("-")[0], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    except ValueError:
        return 0.0
    return max(0.0, begun.timestamp() - _RUN_SLACK_SECONDS)


def since(text: str, now: datetime) -> float:
    """Seconds since the epoch of `10 min ago`, `-2h`, `today`, `22:45`, `2026-11-21 22:45` or an ISO 8601 time.

    A time without a zone is this machine's, as `now` is. Raises UsageError for anything else.
    """
    words = text.strip().lower()
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    named = {"now": now, "today": midnight, "yesterday": midnight - timedelta(days=1)}
    if words in named:
        return named[words].timestamp()
    ago = _AGO.fullmatch(words)
    if ago and (ago["ago"] or words.startswith("-")) and not _MONTHS.search(text):
        return now.timestamp() - int(ago["count"]) * _SECONDS[ago["unit"][0]]
    for form in _TIMES:
        try:
            found = datetime.strptime(words, form)
        except ValueError:
            continue
        return midnight.replace(hour=found.hour, minute=found.minute, second=found.second).timestamp()
    try:
        given = datetime.fromisoformat(words.removesuffix(" utc").upper())
        return (given.replace(tzinfo=UTC) if words.endswith(" utc") else given).timestamp()
    except (ValueError, OverflowError):
        raise UsageError(
            f"--since: expected a time such as '10 min ago', 'today', '22:45' or '2026-11-21 22:45', got {text!r}"
        ) from None
