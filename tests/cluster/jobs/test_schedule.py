"""The learning rate against PyTorch's OneCycleLR, written down from its documentation."""

from math import cos, pi

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.jobs.fit import Plan, learning_rate
from core.inventory import Constant, OneCycle
from core.inventory.training import TrainJob

PEAK = 0.002


def one_cycle_of_pytorch(step: int, steps: int, pct_start: float) -> float:
    """OneCycleLR with `anneal_strategy="cos", three_phase=False`, phase by phase.

    `div_factor` and `final_div_factor` are its own defaults.
    """
    initial = PEAK / 25.0
    top = pct_start * steps - 1
    if step <= top:
        return PEAK + (initial - PEAK) / 2 * (cos(pi * step / top) + 1)
    last = initial / 10_000.0
    return last + (PEAK - last) / 2 * (cos(pi * (step - top) / (steps - 1 - top)) + 1)


@pytest.mark.parametrize("updates", [12, 37, 500, 2220])
@pytest.mark.parametrize("fraction", [0.1, 0.3, 0.5])
def test_equals_pytorch(updates: int, fraction: float) -> None:
    schedule = OneCycle(warmup_fraction=fraction)
    for update in range(updates):
        expected = one_cycle_of_pytorch(update, updates, fraction)
        assert learning_rate(schedule, PEAK, update, updates) == pytest.approx(expected, rel=1e-12)


def test_constant_is_constant() -> None:
    assert {learning_rate(Constant(), 0.001, update, 50) for update in range(50)} == {0.001}


@given(
    updates=st.integers(1, 5000),
    share=st.floats(0, 1),
    fraction=st.floats(0, 0.999),
    peak=st.floats(1e-8, 1e3),
)
def test_always_between_the_last_rate_and_the_peak(
    updates: int, share: float, fraction: float, peak: float
) -> None:
    update = round(share * (updates - 1))
    rate = learning_rate(OneCycle(warmup_fraction=fraction), peak, update, updates)
    assert peak / 250_000 * (1 - 1e-9) <= rate <= peak * (1 + 1e-9)


@pytest.mark.parametrize(("base", "rate"), [(None, 0.004), (100, 0.016), (800, 0.002)])
def test_the_rate_of_a_base_batch_grows_with_the_batch(base: int | None, rate: float) -> None:
    optimizer = {"name": "lamb", "learning_rate": 0.004, "base_batch": base}
    job = {"optimizer": optimizer, "batch_size": 400, "schedule": {"name": "constant"}}
    assert Plan(TrainJob.model_validate(job), np.arange(400)).rate(0) == pytest.approx(rate)
