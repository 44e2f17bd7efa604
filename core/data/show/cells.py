"""The words and tables of what recordings hold, which the page and the terminal both show."""

from collections.abc import Sequence

from core.data.show.looks import Excerpt, RecordingLook, SessionLook
from core.data.show.portrait import ChannelRow, Portrait

Cells = list[list[str]]

CLASS_HEADS = ("class", "train", "test")
CHANNEL_HEADS = ("channel", "unit", "mean", "deviation", "least", "most")
LABEL_HEADS = ("class", "readings", "seconds", "people")
SESSION_HEADS = ("session", "readings", "seconds", "Hz", "pauses", "longest", "unordered")
LONGEST_NAME = 48


def class_cells(portrait: Portrait) -> Cells:
    """Return how many windows of each class there are."""
    return [[row.label, f"{row.train:,}", f"{row.test:,}"] for row in portrait.classes]


def group_heads(portrait: Portrait) -> Sequence[str]:
    """Return the heads of the groups, with the classes where these are counted."""
    labels = [row.label for row in portrait.classes]
    is_grouped = bool(portrait.groups and portrait.groups[0].by_class)
    return [portrait.held_out_by or "group", "part", "examples", *(labels if is_grouped else [])]


def group_cells(portrait: Portrait) -> Cells:
    """Return the examples of each group."""
    return [
        [f"{row.number} {row.name}".strip(), row.part, f"{row.examples:,}", *map(str, row.by_class)]
        for row in portrait.groups
    ]


def channel_cells(channels: Sequence[ChannelRow]) -> Cells:
    """Return the figures of each channel."""
    return [
        [
            one.name,
            one.unit,
            *(f"{value:.3g}" for value in (one.mean, one.deviation, one.least, one.most)),
        ]
        for one in channels
    ]


def label_cells(look: RecordingLook) -> Cells:
    """Return how much was recorded of each class."""
    return [
        [one.label, f"{one.readings:,}", f"{one.seconds:.1f}", str(one.people)]
        for one in look.labels
    ]


def session_cells(look: RecordingLook) -> Cells:
    """Return the figures of each session."""
    return [
        [
            session_name(one),
            f"{one.readings:,}",
            f"{one.seconds:.1f}",
            f"{one.hertz:.4g}",
            f"{one.pauses:,}",
            f"{one.longest_pause:.2f} s",
            f"{one.unordered:,}",
        ]
        for one in look.sessions
    ]


def session_name(session: SessionLook) -> str:
    """Return person and session, the end of long ones."""
    return _end_of(f"{session.person} {session.session}".strip())


def _end_of(name: str) -> str:
    if len(name) <= LONGEST_NAME:
        return name
    return f"...{name[3 - LONGEST_NAME :]}"


def excerpt_name(excerpt: Excerpt) -> str:
    """Return of what and whom an excerpt is."""
    return ", ".join(
        filter(None, (excerpt.label, _end_of(excerpt.whose), f"{excerpt.seconds:.1f} s"))
    )


def summary_of(look: RecordingLook) -> str:
    """Return one line of how much was read."""
    read = "all" if look.is_whole else "the first"
    parts = [f"{look.title}: recordings: {look.files:,}", f"readings: {look.readings:,} ({read})"]
    return ", ".join(filter(None, [*parts, look.left_out]))
