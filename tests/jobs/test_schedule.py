"""The learning rate against PyTorch's OneCycleLR, written down here once more from its documentation."""

from math import cos, pi

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.inventory import Constant, OneCycle
from cluster.jobs.training import learning_rate


def one_cycle_of_pytorch(
    step: int, total_steps: int, max_lr: float, pct_start: float, div_factor: float, final_div_factor: float
) -> float:
    """`torch.optim.lr_scheduler.OneCycleLR(anneal_strategy="cos", three_phase=False)`, phase by phase."""
    initial = max_lr / div_factor
    phases = [
        (pct_start * total_steps - 1, initial, max_lr),
        (total_steps - 1, max_lr, initial / final_div_factor),
    ]
    start_step = 0.0
    for end_step, start, end in phases:
        if step <= end_step:
            part = (step - start_step) / (end_step - start_step)
            return end + (start - end) / 2 * (cos(pi * part) + 1)
        start_step = end_step
    raise AssertionError(f"step {step} of {total_steps}")


@pytest.mark.parametrize("updates", [12, 37, 500, 2220])
@pytest.mark.parametrize("fraction", [0.1, 0.3, 0.5])
def test_equals_pytorch(updates: int, fraction: float) -> None:
    schedule = OneCycle(warmup_fraction=fraction)
    for update in range(updates):
        expected = one_cycle_of_pytorch(update, updates, 0.002, fraction, 25.0, 10_000.0)
        assert learning_rate(schedule, 0.002, update, updates) == pytest.approx(expected, rel=1e-12)


def test_end_points_and_the_middle_by_hand() -> None:
    schedule = OneCycle(warmup_fraction=0.3, initial_divisor=25.0, final_divisor=10_000.0)
    rates = [learning_rate(schedule, 1.0, update, 10) for update in range(10)]
    assert rates[0] == pytest.approx(1 / 25)
    assert rates[1] == pytest.approx((1 / 25 + 1) / 2)  # half way up: the cosine's middle
    assert rates[2] == pytest.approx(1.0)
    assert rates[9] == pytest.approx(1 / 250_000)


def test_rises_then_falls() -> None:
    rates = [learning_rate(OneCycle(), 0.002, update, 400) for update in range(400)]
    top = rates.index(max(rates))
    assert rates[: top + 1] == sorted(rates[: top + 1])
    assert rates[top:] == sorted(rates[top:], reverse=True)
    assert top == pytest.approx(0.3 * 400, abs=1)


def test_constant_is_constant() -> None:
    assert {learning_rate(Constant(), 0.001, update, 50) for update in range(50)} == {0.001}


@given(
    updates=st.integers(1, 5000),
    share=st.floats(0, 1),
    fraction=st.floats(0, 0.999),
    peak=st.floats(1e-8, 1e3),
)
def test_always_between_the_last_rate_and_the_peak(updates: int, share: float, fraction: float, peak: float) -> None:
    update = round(share * (updates - 1))
    rate = learning_rate(OneCycle(warmup_fraction=fraction), peak, update, updates)
    assert peak / 250_000 * (1 - 1e-9) <= rate <= peak * (1 + 1e-9)
