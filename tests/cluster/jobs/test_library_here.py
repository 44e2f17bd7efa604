"""All exact modes end with the library's bits, for every built-in network."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from core.consistency import Grant
from core.consistency.synchronous import Synchronous
from core.data import Dataset
from core.engine.workers import Outcome
from core.inventory.extensions import MODELS
from tests.cluster.jobs.steps_here import (
    UPDATES,
    agreed,
    built_in,
    job_of,
    measured,
    placed,
    same_bits,
    trained,
    update_of,
)
from tests.tables import table
from worker_node.recordings import WorkerWindows

EXACT = [("sync", 8), ("sync", 2), ("sync", 1), ("allreduce", 1)]
NETWORKS = table("cluster/jobs/library", "networks")
RECIPE = table("cluster/jobs/library", "recipe")


def test_every_built_in_network_is_here() -> None:
    assert set(NETWORKS) == set(MODELS)


@pytest.mark.parametrize("name", NETWORKS)
def test_the_modes_agree(data: Dataset, name: str) -> None:
    options = NETWORKS[name]
    network = built_in(name, **options)
    model = {"name": name, **options}
    expected, losses = agreed(network, data, EXACT, model=model, **RECIPE)
    assert np.isfinite(losses).all()
    begun, _ = measured(network, data)
    kept = network.layout.averaged == 0
    size = network.layout.trained_size
    np.testing.assert_array_equal(expected[size:][kept], begun[size:][kept])


@pytest.mark.parametrize("name", ["spectral", "hybrid"])
def test_windows_that_are_measured_once_train_the_same(
    data: Dataset, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = built_in(name, **NETWORKS[name])
    recipe = {**RECIPE, "augment": None, "model": {"name": name, **NETWORKS[name]}}
    found = agreed(network, data, [("sync", 4), ("allreduce", 1)], **recipe)
    monkeypatch.setattr(WorkerWindows, "identified", lambda *_: None)
    expected = trained(network, job_of("single", **recipe), data)
    same_bits(found[0], expected[0])
    assert found[1] == expected[1]


@pytest.mark.parametrize(
    "optimizer", ["adam", "adamw", "lion", "lamb", "rmsprop", "adagrad", "sgd"]
)
def test_the_modes_agree_under_every_optimizer(data: Dataset, optimizer: str) -> None:
    codec = {"adagrad": "int8", "sgd": "int8"}.get(optimizer, "fp16")
    network = built_in("residual", **NETWORKS["residual"])
    agreed(
        network,
        data,
        [("sync", 4), ("allreduce", 1)],
        **{**RECIPE, "codec": {"name": codec}},
        optimizer={"name": optimizer},
    )


@pytest.mark.parametrize("threads", [2, 1], ids=["together", "one after the other"])
def test_calls_of_several_steps_over_unequal_slots_have_the_bits_of_single(
    data: Dataset, threads: int
) -> None:
    """One after the other, each waits for the other's part in vain and ends early."""
    network = built_in("residual", **NETWORKS["residual"])
    expected, losses = trained(network, job_of("single", **RECIPE), data)
    job = job_of("sync", **RECIPE)
    mode, stretch = placed(network, job, data)
    policy = mode.policy
    assert isinstance(policy, Synchronous)
    for task, seconds in ((0, 0.003), (1, 0.005)):
        for _ in range(2):
            policy.speeds.observe(task, 1, seconds)
    updates = [update_of(number, job) for number in range(UPDATES)]
    policy.begin(range(UPDATES))
    results: dict[int, float] = {}
    grants: list[Grant] = []
    with ThreadPoolExecutor(threads) as pool:
        while not policy.exhausted():
            drawn = {task: policy.draw(task, frozenset({0, 1}), 0.0) for task in (0, 1)}
            items = {
                task: mode.item(grant, updates[grant.update :][: grant.updates], stretch)
                for task, grant in drawn.items()
                if grant is not None
            }
            calls = {
                task: pool.submit(item.function.answer, *item.arguments)
                for task, item in items.items()
            }
            for task, call in calls.items():
                grant = drawn[task]
                assert grant is not None
                grants.append(grant)
                granted = updates[grant.update :][: grant.updates]
                outcome = Outcome(items[task], task, call.result(), 0.1, 1)
                for update, result in zip(
                    granted, mode.read(grant, granted, outcome, stretch), strict=False
                ):
                    if result.step is not None:
                        (results[update.id],) = result.step.losses.values()
    last = mode.settle()
    assert last is not None
    last.function.answer(*last.arguments)
    same_bits(mode.shards.read(), expected)
    assert [results[number] for number in range(UPDATES)] == losses
    assert grants[:2] == [Grant(0, 0, 5, UPDATES), Grant(0, 5, 3, UPDATES)]
    assert (len(grants) == 2) == (threads == 2)


@pytest.mark.parametrize(("codec", "functions"), [("fp32", 1), ("fp16", 4)])
def test_a_worker_sets_up_one_function_for_parts_of_all_sizes(
    data: Dataset, codec: str, functions: int
) -> None:
    """But where the wire rounds: then the number of slots has to be known before."""
    job = job_of("sync", **RECIPE, codec={"name": codec})
    mode, stretch = placed(built_in("spectral", hidden=8), job, data)
    grants = [Grant(0, 0, size) for size in (1, 2, 4, 8)]
    items = [mode.item(grant, [update_of(0, job)], stretch) for grant in grants]
    assert len({id(item.function) for item in items}) == functions


@pytest.mark.parametrize("mode", ["async", "ssp", "local"])
def test_a_push_learns_the_same_way(data: Dataset, mode: str) -> None:
    network = built_in("residual", **NETWORKS["residual"])
    vector, losses = trained(network, job_of(mode, **RECIPE), data)
    assert np.isfinite(vector).all()
    assert np.isfinite(losses).all()
