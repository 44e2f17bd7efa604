"""`--set KEY=VALUE` changes one value for one call, or says in one line why it cannot."""

import pytest

from cluster.models.conv_lstm import ConvolutionalModel
from cluster.models.thesis import ThesisModel
from ps_node.optimizers.sgd import SgdOptions as Sgd
from tests.inventory.cases import THREE_NODES, only, problems, read


def test_a_value_is_read_as_yaml() -> None:
    train = read(
        THREE_NODES,
        [
            "jobs.train.epochs=3",
            "jobs.train.optimizer.learning_rate=1e-3",
            "jobs.train.validation_subjects=[1, 7]",
            "jobs.train.refit=true",
            "jobs.train.data.source=/data/har.npz",
            "jobs.train.clip_norm=",
        ],
    ).jobs.train

    assert train.epochs == 3
    assert train.optimizer.learning_rate == 0.001
    assert train.validation_subjects == (1, 7)
    assert train.refit is True
    assert train.data.source == "/data/har.npz"
    assert train.clip_norm is None


def test_a_section_that_is_null_is_written_key_by_key() -> None:
    given = ["jobs.train.early_stopping.patience=5", "jobs.train.class_weights.WALKING=2"]
    train = read(THREE_NODES, given).jobs.train
    assert train.early_stopping is not None
    assert (train.early_stopping.patience, train.early_stopping.min_delta) == (5, 0.0)
    assert train.class_weights == {"WALKING": 2.0}
    off = read(THREE_NODES, [*given, "jobs.train.early_stopping=", "jobs.train.class_weights=none"]).jobs.train
    assert (off.early_stopping, off.class_weights) == (None, None)


@pytest.mark.parametrize(
    ("text", "expected"), [("balanced", "balanced"), ("none", None), ("{A: 2, '1': 0.5}", {"A": 2.0, "1": 0.5})]
)
def test_class_weights(text: str, expected: object) -> None:
    assert read(THREE_NODES, [f"jobs.train.class_weights={text}"]).jobs.train.class_weights == expected


def test_a_node_is_named_or_counted() -> None:
    inventory = read(THREE_NODES, ["nodes.rpi02.address=192.168.1.40", "nodes.2.address=192.168.1.41"])

    assert [node.address for node in inventory.nodes] == ["192.168.1.16", "192.168.1.40", "192.168.1.41"]


def test_the_last_of_two_overrides_wins() -> None:
    assert read(THREE_NODES, ["jobs.train.epochs=3", "jobs.train.epochs=4"]).jobs.train.epochs == 4


def test_a_section_nobody_wrote_is_made() -> None:
    inventory = read(THREE_NODES, ["ports.ps=4000", "jobs.evaluate={run: runs/old}"])

    assert inventory.task("ps", 0).port == 4000
    assert inventory.jobs.order == ("pi", "train", "evaluate")


def test_another_model_forgets_the_knobs_of_the_one_in_the_file() -> None:
    train = read(THREE_NODES, ["jobs.train.model.name=conv-lstm", "jobs.train.optimizer.name=sgd"]).jobs.train

    assert train.model == ConvolutionalModel()
    assert train.optimizer == Sgd()


@pytest.mark.parametrize("turned", [False, True])
def test_knobs_of_the_same_call_are_kept_in_either_order(turned: bool) -> None:
    overrides = ["jobs.train.model.name=conv-lstm", "jobs.train.model.filters=16"]

    inventory = read(THREE_NODES, overrides[::-1] if turned else overrides)

    assert inventory.jobs.train.model == ConvolutionalModel(filters=16)


def test_the_same_model_keeps_its_knobs() -> None:
    assert read(THREE_NODES, ["jobs.train.model.name=thesis"]).jobs.train.model == ThesisModel(hidden=64)


@pytest.mark.parametrize(
    ("override", "key", "problem", "remedy"),
    [
        ("jobs.train.epoch=3", "jobs.train.epoch", "unknown key", "`epochs`"),
        ("jbos.train.epochs=3", "jbos", "unknown key", "`jobs`"),
        ("jobs.train.epochs=many", "jobs.train.epochs", "whole number", "quotes"),
        ("jobs.train.epochs=0", "jobs.train.epochs", "out of range", "at least 1"),
        ("jobs.train.epochs=[1", "jobs.train.epochs", "not valid YAML", "quotes"),
        ("jobs.train.epochs", "", "KEY=VALUE", "jobs.train.epochs=3"),
        ("=3", "", "KEY=VALUE", "jobs.train.epochs=3"),
        ("jobs.\ud800=3", "", "KEY=VALUE", "jobs.train.epochs=3"),
        ("jobs.train.data.source=\ud800", "jobs.train.data.source", "not valid YAML", "quotes"),
        ("jobs..epochs=3", "", "KEY=VALUE", "jobs.train.epochs=3"),
        (f"{'a.' * 5000}a=3", "", "KEY=VALUE", "jobs.train.epochs=3"),
        ("cluster.name=a", "cluster.name", "cluster is a value", "cluster=VALUE"),
        ("nodes.rpi20.address=10.0.0.1", "nodes.rpi20.address", "nothing is called 'rpi20'", "did you mean `rpi0"),
        ("nodes.9.address=10.0.0.1", "nodes.9.address", "nothing is called '9'", "rpi01, rpi02, rpi03"),
        ("nodes.rpi01.roles.7=ps", "nodes.rpi01.roles.7", "nothing is called '7'", "0 to 2"),
        ("nodes.rpi02.address=127.0.0.1", "nodes.rpi02.address", "loopback", "IPv4"),
        ("jobs.train.model.name=resnet", "jobs.train.model.name", "expected 'thesis'", "write one"),
        ("jobs.train.model={hiden: 3}", "jobs.train.model.hiden", "unknown key", "`hidden`"),
    ],
)
def test_an_override_that_cannot_be_used_is_one_problem(override: str, key: str, problem: str, remedy: str) -> None:
    found = only(THREE_NODES, [override])

    assert (found.override, found.line, found.key) == (override, None, key)
    assert problem in found.problem
    assert remedy in found.remedy


def test_a_message_names_the_override_instead_of_a_line() -> None:
    assert str(only(THREE_NODES, ["jobs.train.epoch=3"])) == (
        "--set jobs.train.epoch=3: jobs.train.epoch: 3: unknown key - did you mean `epochs`?"
    )


def test_problems_of_the_file_and_of_overrides_come_together() -> None:
    found = problems(THREE_NODES.replace("epochs: 30", "epochs: 0"), ["jobs.pi.sample=1"])

    assert [(problem.line, problem.key) for problem in found] == [(21, "jobs.train.epochs"), (None, "jobs.pi.sample")]


def test_an_override_heals_what_the_file_has_wrong() -> None:
    assert read(THREE_NODES.replace("epochs: 30", "epochs: 0"), ["jobs.train.epochs=2"]).jobs.train.epochs == 2
