"""Questions that may never be answered, such as those to an NFS server that is gone: whoever asks waits briefly."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Answer(Generic[T]):
    """`value` is None if none came in time, or an error; `seconds` is what it took, so far if it goes on."""

    value: T | None
    seconds: float


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

    def within(self, seconds: float) -> Answer[T]:
        """The answer, if it is there by so many seconds after the question."""
        self._answered.wait(max(0.0, seconds - (time.monotonic() - self._begin)))
        return self._answer or Answer(None, time.monotonic() - self._begin)

    @property
    def over(self) -> bool:
        return self._answered.is_set()


class Probe(Generic[T]):
    """Asks when called, but never twice at once: while a question hangs, all who call are told so at once."""

    def __init__(self, ask: Callable[[], T], deadline_seconds: float) -> None:
        self._ask, self._deadline_seconds = ask, deadline_seconds
        self._lock = threading.Lock()
        self._question: _Question[T] | None = None

    def __call__(self) -> Answer[T]:
        """The answer, or none after the deadline at the latest. An OSError is no answer either."""
        with self._lock:
            if self._question is None or self._question.over:
                self._question = _Question(self._ask)
            question = self._question
        return question.within(self._deadline_seconds)
