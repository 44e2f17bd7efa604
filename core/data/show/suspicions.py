"""What looks wrong about the times of recordings, with the likely cause."""

from collections.abc import Iterator, Mapping, Sequence

from core.data.described.description import RecordingFormat
from core.data.intake import SPARSE
from core.data.show.looks import SessionLook
from core.ground.plausible import times_problem

OTHER_RATE = 1.25
"""A rate that differs by this factor from the windows' is said."""


def rate_problems(form: RecordingFormat, sessions: Sequence[SessionLook]) -> Iterator[str]:
    """Yield what is wrong with the times of sessions, and with their rate for the windows."""
    found: dict[str, dict[str, str]] = {}
    for one in sessions:
        whose = one.name
        if one.readings > 2 and 2 * one.unordered > one.readings:
            said = "most readings have the time of the one before or an older one"
            found.setdefault("time.column", {})[whose] = said
        elif one.hertz:
            wrong = times_problem(1.0 / one.hertz)
            key, said = "time.unit", wrong or ""
            if wrong is None:
                key, said = "time.hertz", _rate_problem(form.time.hertz, one.hertz)
            if said:
                found.setdefault(key, {})[whose] = said
    for key, each in found.items():
        yield _said(key, each)


def rate_questions(form: RecordingFormat, sessions: Sequence[SessionLook]) -> Iterator[str]:
    """Yield whether another rate than the recordings' is meant."""
    windows = form.time.hertz
    if windows is None:
        return
    found = {
        one.name: (f"about {one.hertz:.3g} readings a second, which become {windows:g}")
        for one in sessions
        if one.hertz >= windows / SPARSE
        and not 1 / OTHER_RATE <= one.hertz / windows <= OTHER_RATE
        and times_problem(1.0 / one.hertz) is None
    }
    if found:
        yield _said("time.hertz", found)


def _rate_problem(windows: float | None, found: float) -> str:
    if windows is not None and found < windows / SPARSE:
        return (
            f"about {found:.3g} readings a second, too few for windows of {windows:g}: set"
            " jobs.train.data.sampling_hz"
        )
    return ""


def _said(name: str, found: Mapping[str, str]) -> str:
    """Return the first of several problems, and how many others there are."""
    whose, wrong = next(iter(found.items()))
    also = f" (and {len(found) - 1} other sessions)" if len(found) > 1 else ""
    return f"{name}: {whose}: {wrong}{also}"
