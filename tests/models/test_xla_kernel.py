"""The kernel for XLA, compiled by the processor's XLA, beside the fused kernels: a layer, and whole networks."""

from typing import Any

import numpy as np
import pytest

from cluster.inventory import TrainJob
from cluster.models.kernels import compiled_by_xla, for_xla
from cluster.models.lstm import block_lstm, lstm
from cluster.models.network import build
from cluster.models.xla_lstm import xla_lstm
from tests.models.test_lstm_kernels import Results, operands, run
from worker_node.gradient import GradientOfBatch

import tensorflow as tf  # isort: skip

WITHIN = 1e-5
BATCH, STEPS, CHANNELS, CLASSES = 6, 8, 3, 4


@tf.function(jit_compile=True, autograph=False)
def compiled(inputs: Any, weights: Any, bias: Any, direction: Any) -> Any:
    with tf.GradientTape() as tape:
        tape.watch([inputs, weights, bias])
        outputs = xla_lstm(inputs, weights, bias)
        loss = tf.reduce_sum(outputs * direction)
    return outputs, *tape.gradient(loss, [inputs, weights, bias])


def close(found: Results, expected: Results) -> None:
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(
            one, other, rtol=WITHIN, atol=WITHIN * max(1.0, float(np.abs(other).max(initial=0.0)))
        )


@pytest.mark.parametrize(("features", "hidden"), [(9, 8), (5, 65)])
def test_outputs_and_gradients_of_a_layer_are_those_of_the_fused_kernel(features: int, hidden: int) -> None:
    values = operands(features, hidden)
    expected = run(block_lstm, values)
    close([value.numpy() for value in compiled(*map(tf.constant, values))], expected)
    close(run(xla_lstm, values), expected)  # without XLA too


def test_a_layer_takes_it_where_a_function_is_traced_for_xla() -> None:
    values = [tf.constant(value) for value in operands(9, 8)[:3]]
    assert not for_xla()

    def operations() -> set[str]:
        graph = tf.function(lambda *given: lstm(*given), autograph=False).get_concrete_function(*values).graph
        return {node.op for node in graph.as_graph_def(add_shapes=False).node}

    assert "BlockLSTMV2" in operations()
    with compiled_by_xla():
        assert "BlockLSTMV2" not in operations()
        with compiled_by_xla(False):
            assert "BlockLSTMV2" in operations()
    assert not for_xla()


def gradient_of(model: dict[str, object], **others: object) -> tuple[Any, Any, Any]:
    """Loss, gradient and statistics of a batch in two micro-batches, through a function for any number of windows."""
    plain = {
        "micro_batches": 2,
        "batch_size": BATCH,
        "keep_probability": 0.8,
        "label_smoothing": 0.1,
        "clip_norm": None,
    }
    job = TrainJob.model_validate({"model": model, **plain, **others})
    network = build(job.model, window_steps=STEPS, channels=CHANNELS, classes=CLASSES)
    trained, statistics = np.split(network.initial(1), [network.layout.trained_size])
    windows = np.random.default_rng(2).normal(size=(BATCH, STEPS, CHANNELS)).astype(np.float32)
    of_batch = GradientOfBatch(network, job)

    @tf.function(
        autograph=False, input_signature=[tf.TensorSpec([None, STEPS, CHANNELS]), tf.TensorSpec([None], tf.int32)]
    )
    def found(inputs: Any, classes: Any) -> Any:
        batch = of_batch(tf.constant(trained), tf.constant(statistics), inputs, classes, tf.constant([0, 0]))
        return batch.loss, batch.gradient, batch.statistics

    return tuple(value.numpy() for value in found(windows, np.arange(BATCH, dtype=np.int32) % CLASSES))


@pytest.mark.parametrize(
    "model",
    [
        {"name": "thesis", "hidden": 8, "n_stacked_layers": 1, "bidirectional": True, "batch_norm": True},
        pytest.param({"name": "conv-lstm", "filters": 8, "hidden": 8, "layers": 1}, marks=pytest.mark.long),
        pytest.param({"name": "residual", "hidden": 8, "layers": 1, "instance_norm": "append"}, marks=pytest.mark.long),
        {"name": "kth", "hidden": 8, "layers": 1},
        pytest.param(
            {"name": "hybrid", "filters": 8, "hidden": 8, "layers": 1, "statistics_hidden": 8, "dropout": 0.0},
            marks=pytest.mark.long,
        ),
    ],
    ids=lambda model: str(model["name"]),
)
def test_the_gradient_of_a_network_is_that_of_the_fused_kernels(model: dict[str, object]) -> None:
    expected, found = gradient_of(model), gradient_of({**model, "kernel": "xla"})
    assert found[0] == pytest.approx(expected[0], rel=WITHIN)
    close(list(found[1:]), list(expected[1:]))


def test_a_tpu_takes_it_by_itself_and_a_processor_does_not() -> None:
    def of(**given: object) -> bool:
        return TrainJob.model_validate(given).compiled

    assert [of(), of(device={"kind": "gpu"}), of(device={"kind": "tpu"})] == [False, False, True]
    assert of(model={"name": "dblstm", "kernel": "xla"})
    assert not of(model={"name": "thesis", "kernel": "fused"}, device={"kind": "tpu"})
