"""Questions that may never be answered, such as those to an NFS server that is gone: whoever asks waits briefly."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Answer(Generic[T]):
    """`value` is None if none came in time, or an error; `seconds` is what it took, so far if it goes on.

    `waiting`: none is known yet, and it is too early to say that none will come.
    """

    value: T | None
    seconds: float
    waiting: bool = False


class _Question(Generic[T]):
    """One asking, in a daemon thread: a process ends whether the answer has come or not."""

    def __init__(self, ask: Callable[[], T]) -> None:
        self._ask = ask
        self._begin = time.monotonic()
        self._answer: Answer[T] | None = None
        self._answered = threading.Event()
        threading.Thread(target=self._run, name="probe", daemon=True).start()

    def _run(self) -> None:
        try:
            value: T | None = self._ask()
        except OSError:
            value = None
        self._answer = Answer(value, time.monotonic() - self._begin)
        self._answered.set()

    def within(self, seconds: float) -> Answer[T] | None:
        """The answer, if it is there by so many seconds after the question."""
        self._answered.wait(max(0.0, seconds - self.open_seconds))
        return self._answer

    @property
    def open_seconds(self) -> float:
        """Since it was asked."""
        return time.monotonic() - self._begin


class Probe(Generic[T]):
    """Asks when called, but never twice at once: while a question hangs, all who call are told so at once."""

    def __init__(self, ask: Callable[[], T], deadline_seconds: float, patience_seconds: float) -> None:
        """A call takes `deadline_seconds` at most; a question open for `patience_seconds` counts as not answered."""
        self._ask, self._deadline_seconds, self._patience_seconds = ask, deadline_seconds, patience_seconds
        self._lock = threading.Lock()
        self._question: _Question[T] | None = None
        self._latest: Answer[T] | None = None

    def __call__(self) -> Answer[T]:
        """The answer; that of the question before while this one is open; none after the patience, or an OSError."""
        with self._lock:
            if self._question is not None and (answer := self._question.within(0.0)) is not None:
                self._question, self._latest = None, answer
            if self._question is None:
                self._question = _Question(self._ask)
            question, latest = self._question, self._latest
        answer = question.within(self._deadline_seconds)
        if answer is not None:
            return answer
        so_far = question.open_seconds
        if so_far >= self._patience_seconds:
            return Answer(None, so_far)
        if latest is None:
            return Answer(None, so_far, waiting=True)
        return Answer(latest.value, max(latest.seconds, so_far))
