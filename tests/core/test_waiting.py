"""A wait asks once at least, stops at the first true value, and asks once more at its end."""

from types import SimpleNamespace

import pytest

from core.ground.waiting import until


@pytest.mark.parametrize(("seconds", "asked"), [(0.0, 2), (0.25, 4), (9.0, 7)])
def test_a_wait_asks_until_it_is_true_or_over(
    monkeypatch: pytest.MonkeyPatch, seconds: float, asked: int
) -> None:
    now = [0.0]
    answers = iter(["", "", "", "", "", "", "yes"])
    calls = []
    clock = SimpleNamespace(
        monotonic=lambda: now[0], sleep=lambda pause: now.append(now.pop() + pause)
    )
    monkeypatch.setattr("core.ground.waiting.time", clock)

    def condition() -> str:
        calls.append(now[0])
        return next(answers)

    assert until(condition, seconds, 0.1) == ("yes" if asked == 7 else "")
    assert len(calls) == asked
