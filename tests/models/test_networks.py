"""What holds for every network: sizes, shapes, no state, graphs that do not grow with the window."""

import numpy as np
import pytest
import tensorflow as tf

from cluster.inventory.fields import Choice as ModelConfig
from cluster.models.conv_lstm import ConvolutionalModel
from cluster.models.dblstm import DeepBidirectionalModel
from cluster.models.hybrid import HybridModel
from cluster.models.kth import KthModel
from cluster.models.network import Network, build
from cluster.models.residual import ResidualModel
from cluster.models.spectral import SpectralModel
from cluster.models.thesis import ThesisModel
from cluster.references.tables import own_table
from tests.models.yardstick import windows

EVERY: list[ModelConfig] = [
    ThesisModel(hidden=8, n_layers_in_highway=2, n_stacked_layers=2, bidirectional=True, batch_norm=True),
    ResidualModel(hidden=8, layers=2),
    DeepBidirectionalModel(units=8),
    DeepBidirectionalModel(units=8, layers=1),
    ConvolutionalModel(filters=8, hidden=8),
    KthModel(hidden=8),
    SpectralModel(hidden=8),
    HybridModel(filters=8, hidden=8, statistics_hidden=8),
]
SEED = tf.constant([0, 0], tf.int32)


def small(config: ModelConfig, window_steps: int = 10, keep_probability: float = 1.0) -> Network:
    return build(config, window_steps=window_steps, channels=4, classes=3, keep_probability=keep_probability)


def traced(network: Network, batch: int | None) -> tf.types.experimental.ConcreteFunction:
    shape = [batch, network.problem.window_steps, network.problem.channels]

    def gradient(flat: tf.Tensor, batch: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            tape.watch(flat)
            loss = tf.reduce_sum(network.apply(network.unpack(flat), batch, training=True, seed=SEED).logits)
        return loss, tape.gradient(loss, flat)

    return tf.function(gradient).get_concrete_function(tf.TensorSpec([network.layout.size]), tf.TensorSpec(shape))


@pytest.mark.parametrize(
    ("config", "parameters"),
    [
        (ThesisModel(hidden=32), 27_590),
        (ThesisModel(hidden=64), 108_422),
        (ThesisModel(hidden=128), 429_830),
        (ThesisModel(hidden=256), 1_711_622),
        (ThesisModel(hidden=32, bidirectional=True), 15_302),
        (ThesisModel(hidden=28, n_layers_in_highway=3, bidirectional=True, batch_norm=True), 35_124),
        (ResidualModel(), 76_038),
        (DeepBidirectionalModel(), 618_118),
        (DeepBidirectionalModel(layers=1), 2 * 4 * 128 * (9 + 128 + 1) + 256 * 6 + 6),
        (DeepBidirectionalModel(units=32, layers=2), 2 * 4 * 32 * (9 + 32 + 1 + 64 + 32 + 1) + 64 * 6 + 6),
        (DeepBidirectionalModel(units=256), 2_448_646),
        (ConvolutionalModel(), 189_126),
        (SpectralModel(), 41_542),
        (HybridModel(), 230_662),
        (HybridModel(body="residual", hidden=32, layers=3), 117_574),
    ],
)
def test_parameter_counts_on_the_classic_channels(config: ModelConfig, parameters: int) -> None:
    network = build(config, window_steps=128, channels=9, classes=6)
    assert network.layout.trained_size == parameters
    assert network.describe()["parameters"] == parameters


def test_each_layer_of_the_dblstm_has_kimms_parameters() -> None:
    sizes = dict[str, int]()
    for slot in build(DeepBidirectionalModel(), window_steps=128, channels=9, classes=6).layout.slots:
        layer = slot.spec.name.partition("/")[0]
        sizes[layer] = sizes.get(layer, 0) + slot.spec.size
    assert [*sizes.values()] == [row["parameters"] for row in own_table("kimm-layers").rows]


def test_the_network_of_the_slides_has_their_count_of_weights() -> None:
    """3 x 64 + 2 x 4 x (64^2 + 64^2) + 64 x 7 = 66,176 without biases; their checkpoint has 66,759 parameters."""
    network = build(KthModel(), window_steps=200, channels=3, classes=7)
    assert network.layout.trained_size == 66_759
    weights = [slot.spec.size for slot in network.layout.slots if not slot.spec.name.endswith("/bias")]
    assert sum(weights) == 66_176
    assert build(KthModel(), window_steps=200, channels=3, classes=6).layout.trained_size == 66_694


@pytest.mark.parametrize("config", EVERY, ids=lambda config: config.name)
def test_description_says_what_to_build_again(config: ModelConfig) -> None:
    network = small(config)
    described = network.describe()
    assert {key: described[key] for key in config.model_dump()} == config.model_dump()
    assert (described["window_steps"], described["channels"], described["classes"]) == (10, 4, 3)
    again = config.model_validate({key: described[key] for key in config.model_dump()})
    rebuilt = build(again, window_steps=10, channels=4, classes=3)
    assert [slot.spec for slot in rebuilt.layout.slots] == [slot.spec for slot in network.layout.slots]


@pytest.mark.parametrize("config", EVERY, ids=lambda config: config.name)
@pytest.mark.parametrize("window_steps", [8, 13])
def test_any_window_length_and_batch_gives_finite_logits(config: ModelConfig, window_steps: int) -> None:
    network = small(config, window_steps)
    parameters = network.unpack(tf.constant(network.initial(0)))
    for batch in (1, 3):
        logits = network.apply(parameters, windows(batch, network), training=False, seed=SEED).logits
        assert logits.shape == (batch, 3)
        assert np.isfinite(logits.numpy()).all()


@pytest.mark.parametrize("config", EVERY, ids=lambda config: config.name)
def test_no_variables_and_any_batch_size_in_one_graph(config: ModelConfig) -> None:
    network = small(config)
    graph = traced(network, batch=None)
    assert graph.variables == ()
    vector = tf.constant(network.initial(0))
    _, gradient = graph(vector, tf.constant(windows(5, network)))
    trained = gradient.numpy()[: network.layout.trained_size]
    assert np.isfinite(trained).all()
    by_name = network.layout.unpack(gradient.numpy())
    for slot in network.layout.slots:
        if slot.offset < network.layout.trained_size:
            name, value = slot.spec.name, by_name[slot.spec.name]
            assert np.abs(value).max() > 0, f"nothing trains {name}"


@pytest.mark.parametrize("config", EVERY, ids=lambda config: config.name)
def test_graphs_do_not_grow_with_the_window(config: ModelConfig) -> None:
    sizes = [len(traced(small(config, steps), batch=2).graph.as_graph_def().node) for steps in (150, 450)]
    assert sizes[1] < 1.05 * sizes[0]


def test_only_matrices_are_decayed() -> None:
    for config in EVERY:
        for slot in small(config).layout.slots:
            assert slot.spec.decayed == (len(slot.spec.shape) > 1), slot.spec.name
