"""A wait asks once at least, stops at the first true value, and asks once more at its end."""

from types import SimpleNamespace

import pytest

from core.ground.waiting import until


@pytest.mark.parametrize(("seconds", "asked"), [(0.0, 2), (0.25, 4), (9.0, 7)])
def test_a_wait_asks_until_it_is_true_or_over(
    monkeypatch: pytest.MonkeyPatch, seconds: float, asked: int
) -> None:
    calls = list[float]()
    now = list[float]()
    monkeypatch.setattr(
        "core.ground.waiting.time", SimpleNamespace(monotonic=lambda: sum(now), sleep=now.append)
    )

    def is_seventh() -> bool:
        calls.append(sum(now))
        return len(calls) == 7

    assert until(is_seventh, seconds, 0.1) == (asked == 7)
    assert len(calls) == asked
