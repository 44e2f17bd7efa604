"""Test processes that run side by side draw ports of their own."""

import pytest

from core.ground import ports as ground_ports
from tests import ports

FIRST = 1_000
END = 4_500
"""A range that no other test process claims."""


def claimed(patch: pytest.MonkeyPatch) -> tuple[range, object]:
    """The ports that one more process draws from, and what gives them back."""
    patch.setattr(ground_ports, "LOWEST_PORT", FIRST)
    patch.setattr(ground_ports, "_ephemeral_start", lambda: END)
    back = ports.draw_apart()
    return range(ground_ports.LOWEST_PORT, ground_ports._ephemeral_start()), back


def test_each_process_has_a_share_until_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    shares = [claimed(monkeypatch) for _ in range(4)]
    drawn = [share for share, _ in shares]
    assert drawn[:3] == [range(1_000, 2_000), range(2_000, 3_000), range(3_000, 4_000)]
    assert drawn[3] == range(FIRST, END), "no share is left"
    for _, back in shares[1:]:
        assert callable(back)
        back()
    again, back = claimed(monkeypatch)
    assert again == drawn[1]
    for end in (back, shares[0][1]):
        assert callable(end)
        end()
