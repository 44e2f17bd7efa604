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
    problems_by_key: dict[str, dict[str, str]] = {}
    for session in sessions:
        session_name = session.name
        if session.readings > 2 and 2 * session.unordered > session.readings:
            problem = "most readings have the time of the one before or an older one"
            problems_by_key.setdefault("time.column", {})[session_name] = problem
        elif session.hertz:
            wrong = times_problem(1.0 / session.hertz)
            key, problem = "time.unit", wrong or ""
            if wrong is None:
                key, problem = "time.hertz", _rate_problem(form.time.hertz, session.hertz)
            if problem:
                problems_by_key.setdefault(key, {})[session_name] = problem
    for key, problems in problems_by_key.items():
        yield _first_of(key, problems)


def rate_questions(form: RecordingFormat, sessions: Sequence[SessionLook]) -> Iterator[str]:
    """Yield whether another rate than the recordings' is meant."""
    windows = form.time.hertz
    if windows is None:
        return
    questions = {
        session.name: (f"about {session.hertz:.3g} readings a second, which become {windows:g}")
        for session in sessions
        if session.hertz >= windows / SPARSE
        and not 1 / OTHER_RATE <= session.hertz / windows <= OTHER_RATE
        and times_problem(1.0 / session.hertz) is None
    }
    if questions:
        yield _first_of("time.hertz", questions)


def _rate_problem(windows: float | None, recorded_hertz: float) -> str:
    if windows is not None and recorded_hertz < windows / SPARSE:
        return (
            f"about {recorded_hertz:.3g} readings a second, too few for windows of {windows:g}: set"
            " jobs.train.data.sampling_hz"
        )
    return ""


def _first_of(name: str, problems: Mapping[str, str]) -> str:
    """Return the first of several problems, and how many others there are."""
    session_name, wrong = next(iter(problems.items()))
    also = f" (and {len(problems) - 1} other sessions)" if len(problems) > 1 else ""
    return f"{name}: {session_name}: {wrong}{also}"
