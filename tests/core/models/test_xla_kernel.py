"""The kernel for XLA, compiled by the processor's XLA, beside the fused kernels.

A layer, and whole networks.
"""

from functools import partial
from typing import Any

import numpy as np
import pytest

from core.ground.lazy import tf
from core.inventory import TrainJob
from core.models.operations import compiled_by_xla, for_xla
from tests.core.models.test_lstm_kernels import operands, run, with_gradients
from tests.core.models.yardstick import close, small
from tests.lazy import lstm_kernels as kernels
from tests.tables import table
from worker_node.gradient import GradientOfBatch

BATCH = 6
STEPS = 8
CHANNELS = 3
CLASSES = 4


def compiled(*values: Any) -> Any:
    from core.models.lstm import xla_lstm

    traced = tf.function(partial(with_gradients, xla_lstm), jit_compile=True, autograph=False)
    return traced(*values)


@pytest.mark.parametrize(("features", "hidden"), [(9, 8), (5, 65)])
def test_outputs_and_gradients_of_a_layer_are_those_of_the_fused_kernel(
    features: int, hidden: int
) -> None:
    from core.models.lstm import xla_lstm

    values = operands(features, hidden)
    expected = run(kernels.block_lstm, values)
    close(list(compiled(*map(tf.constant, values))), expected, scaled=True)
    close(run(xla_lstm, values), expected, scaled=True)  # without XLA too


def test_a_layer_takes_it_where_a_function_is_traced_for_xla() -> None:
    values = [tf.constant(value) for value in operands(9, 8)[:3]]

    def fused() -> bool:
        """Whether the traced layer is one operation; each trace is a new one."""
        layer = tf.function(lambda *given: kernels.lstm(*given), autograph=False)
        graph = layer.get_concrete_function(*values).graph.as_graph_def(add_shapes=False)
        return "BlockLSTMV2" in {node.op for node in graph.node}

    assert not for_xla()
    assert fused()
    with compiled_by_xla():
        assert not fused()
        with compiled_by_xla(False):
            assert fused()
    assert not for_xla()


def gradient_of(model: dict[str, object], **others: object) -> list[Any]:
    """Trace loss, gradient and statistics of two slots of any number of windows."""
    plain = {
        "slots": 2,
        "batch_size": BATCH,
        "keep_probability": 0.8,
        "label_smoothing": 0.1,
        "clip_norm": None,
    }
    job = TrainJob.model_validate({"model": model, **plain, **others})
    network = small(job.model, STEPS, CHANNELS, CLASSES)
    trained, statistics = np.split(network.initial(1), [network.layout.trained_size])
    windows = np.random.default_rng(2).normal(size=(BATCH, STEPS, CHANNELS)).astype(np.float32)
    of_batch = GradientOfBatch(network, job)
    signature = [tf.TensorSpec([None, STEPS, CHANNELS]), tf.TensorSpec([None], tf.int32)]

    @tf.function(autograph=False, input_signature=signature)
    def found(inputs: Any, classes: Any) -> Any:
        batch = of_batch(
            tf.constant(trained), tf.constant(statistics), inputs, classes, tf.constant([0, 0])
        )
        return batch.loss, batch.gradient, batch.statistics

    targets = np.arange(BATCH, dtype=np.int32) % CLASSES
    return [value.numpy() for value in found(windows, targets)]


@pytest.mark.parametrize(("name", "options"), table("core/models/tables", "by xla").items())
def test_the_gradient_of_a_network_is_that_of_the_fused_kernels(
    name: str, options: dict[str, object]
) -> None:
    model = {"name": name, **options}
    found = gradient_of({**model, "kernel": "xla"})
    expected = gradient_of(model)
    assert found[0] == pytest.approx(expected[0], rel=1e-5)
    close(found[1:], expected[1:], scaled=True)


def test_a_tpu_takes_it_by_itself_and_a_processor_does_not() -> None:
    def of(**given: object) -> bool:
        return TrainJob.model_validate(given).compiled

    assert [of(), of(device={"kind": "gpu"}), of(device={"kind": "tpu"})] == [False, False, True]
    assert of(model={"name": "dblstm", "kernel": "xla"})
    assert not of(model={"name": "thesis", "kernel": "fused"}, device={"kind": "tpu"})
