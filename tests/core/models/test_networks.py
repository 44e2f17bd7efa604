"""What holds for every network.

Sizes, shapes, no state, graphs that do not grow with the window.
"""

from typing import Any

import numpy as np
import pytest

from core.ground.lazy import tf
from core.inventory.extensions import MODELS
from core.inventory.fields import Choice as ModelConfig
from core.models.network import Network
from tests.core.models.yardstick import gradient_function, logits, small, windows
from tests.tables import table


def of_row(row: dict[str, Any]) -> ModelConfig:
    return MODELS[row["name"]].Options.model_validate(row)


EVERY = [of_row(row) for row in table("core/models/tables", "every")]
COUNTS = table("core/models/parameters")
every = pytest.mark.parametrize("config", EVERY, ids=lambda config: config.name)


def classic(config: ModelConfig) -> Network:
    return small(config, 128, 9, 6)


@pytest.mark.parametrize("row", COUNTS, ids=str)
def test_parameter_counts_on_the_classic_channels(row: dict[str, Any]) -> None:
    network = classic(of_row(row["model"]))
    assert network.layout.trained_size == row["parameters"]
    assert network.describe()["parameters"] == row["parameters"]


@every
def test_description_says_what_to_build_again(config: ModelConfig) -> None:
    network = small(config)
    described = network.describe()
    own = {key: described[key] for key in config.model_dump()}
    assert own == config.model_dump()
    assert (described["window_steps"], described["channels"], described["classes"]) == (10, 4, 3)
    rebuilt = small(config.model_validate(own))
    assert rebuilt.layout.slots == network.layout.slots


@every
@pytest.mark.parametrize("steps", [8, 13])
def test_any_window_length_and_batch_gives_finite_logits(config: ModelConfig, steps: int) -> None:
    network = small(config, steps)
    for batch in (1, 3):
        found = logits(network, windows(batch, network))
        assert found.shape == (batch, 3)
        assert np.isfinite(found).all()


def traced(network: Network, batch: int | None) -> Any:
    return tf.function(gradient_function(network)).get_concrete_function(
        tf.TensorSpec([network.layout.size]), tf.TensorSpec([batch, *network.problem.input_shape])
    )


@every
def test_no_variables_and_any_batch_size_in_one_graph(config: ModelConfig) -> None:
    network = small(config)
    graph = traced(network, batch=None)
    assert graph.variables == ()
    _, gradient = graph(tf.constant(network.initial(0)), tf.constant(windows(5, network)))
    trained = network.layout.trained_size
    assert np.isfinite(gradient.numpy()[:trained]).all()
    by_name = network.layout.unpack(gradient.numpy())
    for slot in network.layout.slots:
        if slot.offset < trained:
            name = slot.spec.name
            assert np.abs(by_name[name]).max() > 0, f"nothing trains {name}"


@every
def test_graphs_do_not_grow_with_the_window(config: ModelConfig) -> None:
    short, long = (
        len(traced(small(config, steps), batch=2).graph.as_graph_def().node) for steps in (150, 450)
    )
    assert long < 1.05 * short


@every
def test_only_matrices_are_decayed(config: ModelConfig) -> None:
    for slot in small(config).layout.slots:
        assert slot.spec.decayed == (len(slot.spec.shape) > 1), slot.spec.name
