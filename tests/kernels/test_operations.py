"""The operations that TensorFlow gets: gradients, updates, norms, nodes and augmentation."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from core.consistency import tree_sum
from core.engine.codecs.fp16 import Fp16
from core.ground.lazy import tf
from core.parameters import BLOCK
from kernels.library import Floats, operations
from ps_node.optimizers import Optimizer
from ps_node.optimizers.adagrad import Adagrad
from ps_node.optimizers.adam import Adam
from ps_node.optimizers.lion import Lion
from ps_node.optimizers.rmsprop import RMSprop
from ps_node.optimizers.sgd import MomentumSGD
from tests.kernels.networks import CLASSES, SLOTS, Case
from tests.tables import table

SIZE = 2 * BLOCK + 77
DRAWS = np.random.default_rng(5)


def test_a_gradient_in_a_graph_has_the_bits_of_the_library() -> None:
    case = Case("residual", 0.8)
    network, recipe, batch = case.written, case.recipe, case.batch

    @tf.function
    def computed(windows: Any) -> Any:
        settings = [recipe.batch_size, SLOTS, 0, SLOTS, recipe.group, 2, CLASSES, 0, *recipe.seed]
        return operations().pscluster_gradient(
            program=network.words,
            constants=network.constants,
            trained=case.vector[0],
            statistics=case.vector[1],
            windows=windows,
            labels=batch.labels,
            weights=batch.weights,
            settings=settings,
            smoothing=recipe.smoothing,
        )

    found = computed(tf.constant(batch.windows))
    expected = case.sums()
    assert found.nodes.numpy().tobytes() == expected.nodes.tobytes()
    assert found.losses.numpy().tobytes() == expected.losses.tobytes()
    assert found.hits.numpy().tobytes() == expected.hits.tobytes()


def test_answers_are_judged_as_tensorflow_does_and_what_is_no_number_stays_none() -> None:
    answers = (DRAWS.normal(size=(50, 5)) * 10).astype(np.float32)
    answers[7, 3] = np.nan
    labels = DRAWS.integers(0, 5, 50).astype(np.int32)
    shares, losses = operations().pscluster_judged(logits=answers, labels=labels)
    expected = tf.nn.softmax(answers).numpy()
    expected[7] = np.nan
    np.testing.assert_allclose(shares, expected, rtol=2e-6, atol=1e-12)
    expected = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, answers)
    np.testing.assert_allclose(losses, expected, rtol=2e-6, atol=2e-6)
    assert np.flatnonzero(np.isnan(losses)).tolist() == [7]
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"logits \(n, classes\)"):
        operations().pscluster_judged(logits=answers, labels=labels[1:])


OPTIMIZERS: list[tuple[Optimizer, int, Sequence[float]]] = [
    (MomentumSGD(), 0, (0.0, 0.0, 0.0)),
    (MomentumSGD(momentum=0.9), 0, (0.9, 0.0, 0.0)),
    (MomentumSGD(momentum=0.9, nesterov=True), 0, (0.9, 1.0, 0.0)),
    (Adam(), 1, (0.9, 0.999, 1e-7)),
    (Adagrad(), 2, (1e-7, 0.0, 0.0)),
    (RMSprop(), 3, (0.9, 0.0, 1e-7)),
    (RMSprop(momentum=0.5), 3, (0.9, 0.5, 1e-7)),
    (Lion(), 4, (0.9, 0.99, 0.0)),
]


@pytest.mark.parametrize("count", [6, 2**32 + 1])
@pytest.mark.parametrize(("optimizer", "code", "numbers"), OPTIMIZERS)
def test_an_update_is_the_optimizer_s(
    optimizer: Optimizer,
    code: int,
    numbers: Sequence[float],
    count: int,
) -> None:
    parameters, gradient = DRAWS.normal(size=(2, SIZE)).astype(np.float32)
    slots = DRAWS.uniform(size=(len(optimizer.slot_names), SIZE)).astype(np.float32)
    expected = optimizer.stepped(parameters, slots, gradient, 0.01, tf.constant(count, tf.int64))
    found = operations().pscluster_update(
        parameters=parameters,
        slots=slots,
        gradient=gradient,
        settings=[code, count % 2**32, count // 2**32],
        numbers=[0.01, *numbers],
    )
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=2e-6, atol=1e-6)


def test_an_update_of_an_unknown_optimizer_is_refused() -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match="no such optimizer"):
        operations().pscluster_update(
            parameters=[1.0],
            slots=np.zeros((1, 1), np.float32),
            gradient=[1.0],
            settings=[9, 0, 0],
            numbers=[0.0] * 4,
        )


def test_the_norm_of_nothing() -> None:
    assert operations().pscluster_norm(squares=[]) == 0.0


def added(leaves: Sequence[Floats], present: Sequence[float], halves: bool) -> Any:
    """Call the operation; the last three elements are statistics."""
    settings = [SIZE, SIZE + 3, int(halves)]
    return operations().pscluster_node(leaves=leaves, present=present, settings=settings).numpy()


def through_the_codec(node: Floats) -> Floats:
    """Round as halves of the wire, the statistics apart."""
    codec = Fp16()
    words = codec.encode(tf.constant(node[:SIZE]), tf.zeros([0, SIZE]))[0]
    return np.append(codec.decode(words, SIZE).numpy(), node[SIZE:]) + np.float32(0)


@pytest.mark.parametrize("scale", [1.0, 1e-30, 1e30, 0.0])
def test_a_node_in_halves_rounds_as_the_codec_does(scale: float) -> None:
    leaf = (DRAWS.normal(size=SIZE + 3) * scale).astype(np.float32)
    assert added([leaf], [1], halves=True).tobytes() == through_the_codec(leaf).tobytes()


@pytest.mark.parametrize("halves", [False, True])
@pytest.mark.parametrize("absent", [(), (0,), (2, 3)])
@pytest.mark.parametrize("count", [4, 5, 7, 12])
def test_a_node_adds_in_the_tree(count: int, absent: Sequence[int], halves: bool) -> None:
    leaves = list(DRAWS.normal(size=(count, SIZE + 3)).astype(np.float32))
    present = np.ones(count)
    present[list(absent)] = 0
    settled = through_the_codec if halves else np.asarray
    counting = [
        settled(leaf * np.float32(here)) for leaf, here in zip(leaves, present, strict=True)
    ]
    expected = tree_sum(counting, lambda left, right: settled(left + right))
    for k in absent:
        leaves[k] = leaves[k][: 5 * k - 10]
    assert added(leaves, list(present), halves).tobytes() == (expected + np.float32(0)).tobytes()


def test_a_node_without_leaves_is_zeros() -> None:
    found = added([np.ones(3, np.float32)] * 2, [0, 0], halves=True)
    assert found.tobytes() == bytes(4 * (SIZE + 3))


UNFIT_NODES = table("kernels/unfit", "nodes")


@pytest.mark.parametrize("reason", UNFIT_NODES)
def test_a_node_that_does_not_fit(reason: str) -> None:
    leaves, present, settings = UNFIT_NODES[reason]
    with pytest.raises(tf.errors.InvalidArgumentError, match=reason):
        operations().pscluster_node(leaves=leaves, present=present, settings=settings)


STANDARDIZATION = np.array([[0.1, -0.2, 9.0], [1.0, 2.0, 0.5]], np.float32)


def augmented(windows: Floats, first: int, degrees: float, warp: float) -> Any:
    found = operations().pscluster_augmented(
        windows=windows,
        standardization=STANDARDIZATION,
        settings=[first, 3, 4],
        factors=[degrees, warp],
    )
    return found.numpy()


def test_a_warp_keeps_both_ends_and_the_order_of_time() -> None:
    time = np.arange(20, dtype=np.float32)
    windows = np.repeat(np.stack([time, 2 * time, -time], 1)[None], 5, 0)
    warped = augmented(windows, 0, 0.0, 0.2)
    np.testing.assert_allclose(warped[:, [0, -1]], windows[:, [0, -1]], atol=1e-4)
    assert (np.diff(warped[..., 0], axis=1) > 0).all()
    assert np.abs(warped - windows).max() > 0.1


def test_a_window_is_augmented_alike_wherever_it_is_computed() -> None:
    windows = DRAWS.normal(size=(6, 20, 3)).astype(np.float32)
    whole = augmented(windows, 0, 45.0, 0.2)
    part = augmented(windows[4:], 4, 45.0, 0.2)
    assert part.tobytes() == whole[4:].tobytes()
    assert not np.array_equal(whole[0], whole[1])


def layer_settings(**other: int) -> list[int]:
    return list({"slots": 4, "threads": 2, "floats": 2, "keeps": 1, **other}.values())


def layer_operands(*words: int) -> dict[str, Any]:
    """Return what a dense layer of two units reads; `words` stand in the place of its own."""
    return {
        "program": words or [0, 4, 1, 3, 4, 3, 0, 2, 7, 1, 0, 6, 2, 0],
        "trained": np.arange(8, dtype=np.float32),
        "windows": np.ones((9, 1, 3), np.float32),
    }


UNFIT_LAYERS = table("kernels/unfit", "layers")


@pytest.mark.parametrize("reason", UNFIT_LAYERS)
def test_a_layer_that_does_not_fit(reason: str) -> None:
    words, other = UNFIT_LAYERS[reason]
    with pytest.raises(tf.errors.InvalidArgumentError, match=reason):
        operations().pscluster_layer(**layer_operands(*words), settings=layer_settings(**other))


def test_a_gradient_takes_what_the_same_layer_has_kept() -> None:
    given = {**layer_operands(), "settings": layer_settings()}
    kept = operations().pscluster_layer(**given).kept.numpy()
    by_results = np.ones((9, 2), np.float32)
    found = operations().pscluster_layer_gradient(**given, kept=kept, by_results=by_results)
    assert found.by_trained.numpy().tolist() == [9.0] * 8
    assert found.by_windows.numpy().tolist() == [[1.0, 5.0, 9.0]] * 9
    for slots in (0.0, 3.0, 8.0, 1e30, np.nan):
        kept[0] = slots
        with pytest.raises(tf.errors.InvalidArgumentError, match="kept: not by this layer"):
            operations().pscluster_layer_gradient(**given, kept=kept, by_results=by_results)
    with pytest.raises(tf.errors.InvalidArgumentError, match="kept: not by this layer"):
        operations().pscluster_layer_gradient(**given, kept=kept[:-1], by_results=by_results)
    with pytest.raises(tf.errors.InvalidArgumentError, match="the shape of the results"):
        operations().pscluster_layer_gradient(**given, kept=[], by_results=by_results[1:])
