"""What was measured, and how the pages of the published tables write figures.

Times of two processors do not compare: each time has the sign of its own.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
FOLDERS = (ROOT / "experiments" / "results", ROOT / "benchmarks" / "results")
NOT_YET = "not measured"
NONE = "\N{EN DASH}"
SIGNS: Mapping[str, str] = {
    "Intel(R) Xeon(R) Processor": "\N{DAGGER}",
    "AMD EPYC": "\N{DOUBLE DAGGER}",
    "several processors": "\N{SECTION SIGN}",
}
"""Signs by the processor as Linux names it."""
SEVERAL = "several processors"


def results(name: str) -> Mapping[str, Any]:
    """Read a file of `FOLDERS`; it is empty if no folder has it yet."""
    for path in (folder / name for folder in FOLDERS):
        if path.exists():
            return dict(json.loads(path.read_text(encoding="utf-8")))
    return {}


def names_of(pattern: str) -> list[str]:
    """The files that fit, by name."""
    return sorted(path.name for folder in FOLDERS for path in folder.glob(pattern))


def processors_of(
    measurements: Mapping[str, Any], rows: Iterable[Mapping[str, Any]]
) -> frozenset[str]:
    """Return the processors of these rows of a file.

    It is the processor that a row names, else that of the whole file's machine.
    """
    usual = measurements.get("machine", {}).get("processor")
    return frozenset(name for row in rows if (name := row.get("processor") or usual))


def of_processor(time: str, processors: frozenset[str]) -> str:
    """A time with the sign of its processor; without one where that is not known.

    Raises ValueError for a processor that has no sign yet.
    """
    if not processors:
        return time
    if len(processors) > 1:
        name = SEVERAL
    else:
        name = next(iter(processors))
    if name not in SIGNS:
        raise ValueError(
            f"no sign for times of {name!r}: give it one in SIGNS of experiments/tables/measured.py"
        )
    return f"{time} {SIGNS[name]}"


def legend(text: str, subject: str) -> str:
    """Return what the signs in a text stand for, of the times of `subject`; empty without any."""
    entries = [f"{sign} {name}" for name, sign in SIGNS.items() if sign in text]
    if not entries:
        return ""
    return (
        f"Our times of {subject}:"
        f" {', '.join(entries)}{'; compare times of one sign alone' if len(entries) > 1 else ''}."
    )


def with_legend(markdown: str, subject: str) -> str:
    """A table, and below it what its signs stand for."""
    return "\n\n".join(part for part in (markdown, legend(markdown, subject)) if part)


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [
        f"| {' | '.join(heads)} |",
        "|---" * len(heads) + "|",
        *(f"| {' | '.join(row)} |" for row in rows),
    ]
    return "\n".join(lines)


def clock(seconds: float) -> str:
    """Return `1:43:51`, as the thesis writes times."""
    whole = round(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"


def share(value: Any) -> str:
    """An accuracy or the like, a number or None."""
    if value is None:
        return NONE
    return f"{value:.4f}"
