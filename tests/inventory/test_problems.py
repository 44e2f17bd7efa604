"""Each mistake in an inventory is named once, with its line, its key, its value and what to do."""

import pytest

from tests.inventory.cases import THREE_NODES, edited, machine, only, problems

MISTAKES = {
    "misspelt key": (
        ("address: 192.168.1.17", "adress: 192.168.1.17"),
        9,
        "nodes.rpi02.adress",
        "unknown",
        "`address`",
    ),
    "misspelt top key": (("storage:", "storege:"), 15, "storege", "unknown key", "`storage`"),
    "key of another section": (
        ("epochs: 30", "epochs: 30\n    learning_rate: 1"),
        22,
        "jobs.train.learning_rate",
        "unknown key",
        "jobs.train.optimizer",
    ),
    "unknown role": (
        ("roles: [worker]", "roles: [worker, wroker]"),
        10,
        "nodes.rpi02.roles.1.wroker",
        "role",
        "worker",
    ),
    "second coordinator": (
        ("roles: [worker]", "roles: [worker, coordinator]"),
        10,
        "nodes.rpi02.roles.1",
        "second coordinator",
        "keep one",
    ),
    "no parameter server": (("storage, ps,", "storage,"), 4, "nodes", "no parameter server", "role ps"),
    "no coordinator": ((", coordinator]", "]"), 4, "nodes", "no coordinator", "role coordinator"),
    "duplicate address": (("1.17", "1.16"), 9, "nodes.rpi02.address", "same address as rpi01", "of its own"),
    "duplicate name": (("name: rpi02", "name: rpi01"), 8, "nodes.rpi01.name", "node on line 5", "of its own"),
    "loopback": (("192.168.1.17", "127.0.0.1"), 9, "nodes.rpi02.address", "loopback", "write the IPv4"),
    "public": (("192.168.1.17", "8.8.8.8"), 9, "nodes.rpi02.address", "public", "allow_public"),
    "any address": (("192.168.1.17", "0.0.0.0"), 9, "nodes.rpi02.address", "one machine", "write"),
    "broadcast": (("192.168.1.17", "255.255.255.255"), 9, "nodes.rpi02.address", "one machine", "write"),
    "octet": (("192.168.1.17", "192.168.1.256"), 9, "nodes.rpi02.address", "not an IPv4 address", "0 to 255"),
    "IPv6": (("192.168.1.17", "'fe80::1'"), 9, "nodes.rpi02.address", "not an IPv4 address", "IPv6"),
    "port in address": (("192.168.1.17", "192.168.1.17:22"), 9, "nodes.rpi02.address", "not an IPv4", "ports"),
    "neither address nor interface": (
        ("    address: 192.168.1.17\n", ""),
        8,
        "nodes.rpi02",
        "neither `address` nor `interface`",
        "add `address:`",
    ),
    "text for a whole number": (("epochs: 30", "epochs: many"), 21, "jobs.train.epochs", "whole number", "quotes"),
    "fraction for a whole number": (("epochs: 30", "epochs: 3e1"), 21, "jobs.train.epochs", "whole", "write 30"),
    "truth for a number": (("0.002", "true"), 20, "jobs.train.optimizer.learning_rate", "a number", "2e-3"),
    "null for a number": (("epochs: 30", "epochs:"), 21, "jobs.train.epochs", "whole number", "quotes"),
    "number for text": (("cluster: bench", "cluster: 5"), 2, "cluster", "expected text", "quotes"),
    "word for truth": (("cluster:", "allow_public: yes\ncluster:"), 2, "allow_public", "true or false", "true"),
    "section for a value": (("epochs: 30", "epochs: {a: 1}"), 21, "jobs.train.epochs", "whole number", "quotes"),
    "value for a section": (("pi: {samples: 1000}", "pi: 7"), 17, "jobs.pi", "section with keys", "indented"),
    "value for a list": (("roles: [worker]", "roles: worker"), 10, "nodes.rpi02.roles", "a list", "`- `"),
    "infinite": (("0.002", ".inf"), 20, "jobs.train.optimizer.learning_rate", "finite", "ordinary"),
    "overflowing": (("0.002", "1e999"), 20, "jobs.train.optimizer.learning_rate", "finite", "ordinary"),
    "not a number": (("0.002", ".nan"), 20, "jobs.train.optimizer.learning_rate", "finite", "ordinary"),
    "out of range": (("hidden: 64", "hidden: 512"), 19, "jobs.train.model.hidden", "out of range", "at most 256"),
    "unknown variant": (("name: adamw", "name: adamm"), 20, "jobs.train.optimizer.name", "'adamw'", "`adam"),
    "knob of another model": (
        ("hidden: 64", "hidden: 64, filters: 64"),
        19,
        "jobs.train.model.filters",
        "unknown key",
        "`name: conv-lstm`",
    ),
    "odd width halved": (
        ("hidden: 64", "hidden: 33, bidirectional: true"),
        19,
        "jobs.train.model.hidden",
        "half of an even number",
        "write 34",
    ),
    "misspelt mode": (
        ("epochs: 30", "mode: synch"),
        21,
        "jobs.train.mode",
        "unknown mode, expected 'async'",
        "`sync`?",
    ),
    "misspelt codec": (("epochs: 30", "codec: {name: topc}"), 21, "jobs.train.codec.name", "'fp16'", "`topk`"),
    "codec that goes by the worker in a mode that must not": (
        ("epochs: 30", "mode: sync\n    codec: {name: topk}"),
        22,
        "jobs.train.codec",
        "result of sync would depend on who",
        "take fp32 or fp16",
    ),
    "no local steps": (("epochs: 30", "local: {steps: 0}"), 21, "jobs.train.local.steps", "out of range", "least 1"),
    "micro-batches": (
        ("epochs: 30", "batch_size: 2\n    micro_batches: 4"),
        22,
        "jobs.train.micro_batches",
        "cut into 4",
        "at most 2",
    ),
    "no micro-batch": (
        ("epochs: 30", "micro_batches: 0"),
        21,
        "jobs.train.micro_batches",
        "from 1 to 64",
        "write auto",
    ),
    "micro-batches in words": (
        ("epochs: 30", "micro_batches: some"),
        21,
        "jobs.train.micro_batches",
        "`auto` or a whole",
        "write auto",
    ),
    "schema of a later version": (("schema: 1", "schema: 2"), 1, "schema", "reads schema 1", "write"),
    "truth for the schema": (("schema: 1", "schema: true"), 1, "schema", "reads schema 1", "write"),
    "missing key": (("cluster: bench\n", ""), 1, "cluster", "missing", "add `cluster:`"),
    "name that makes no folder": (("cluster: bench", "cluster: a/b"), 2, "cluster", "not a name", "letters"),
    "two roles in an entry": (
        ("      - worker\n", "      - {worker: {}, ps: {}}\n"),
        14,
        "nodes.rpi03.roles.0",
        "one role in each entry",
        "its own `-`",
    ),
    "storage without section": (("storage: {server: rpi01}\n", ""), 7, "nodes.rpi01.roles.0", "no section", "add"),
    "other storage server": (("server: rpi01", "server: rpi02"), 15, "storage.server", "not the node", "rpi01"),
    "second storage server": (
        ("roles: [worker]", "roles: [worker, storage]"),
        10,
        "nodes.rpi02.roles.1",
        "second storage server",
        "keep one",
    ),
    "relative mount": (("rpi01}", "rpi01, mount: mnt}"), 15, "storage.mount", "absolute path", "/mnt/pscluster"),
    "privileged port": (("cluster:", "ports: {ps: 80}\ncluster:"), 2, "ports.ps", "out of range", "1024"),
    "key given twice": (("cluster: bench", "cluster: a\ncluster: b"), 3, "cluster", "first on line 2", "remove"),
    "subjects given twice": (
        ("epochs: 30", "validation_subjects: [3, 3]"),
        21,
        "jobs.train.validation_subjects",
        "each once",
        "[1, 7, 21]",
    ),
    "early stopping without validation": (
        ("epochs: 30", "validation_subjects: 0\n    early_stopping: {patience: 3}"),
        22,
        "jobs.train.early_stopping",
        "validation_subjects is 0",
        "validation_subjects: 3",
    ),
    "early stopping at once": (
        ("epochs: 30", "early_stopping: {patience: 0}"),
        21,
        "jobs.train.early_stopping.patience",
        "out of range",
        "at least 1",
    ),
    "patience left out": (
        ("epochs: 30", "early_stopping: {min_delta: 0.1}"),
        21,
        "jobs.train.early_stopping.patience",
        "missing",
        "add `patience:`",
    ),
    "class weights in words": (
        ("epochs: 30", "class_weights: balance"),
        21,
        "jobs.train.class_weights",
        "expected none, balanced, or a mapping",
        "{WALKING: 1.0",
    ),
    "class weight of nothing": (
        ("epochs: 30", "class_weights: {WALKING: 0}"),
        21,
        "jobs.train.class_weights",
        "for the label 'WALKING'",
        "labels left out have 1",
    ),
    "unknown job": (("pi: {samples: 1000}", "pie: {samples: 1000}"), 17, "jobs.pie", "unknown key", "`pi`"),
}


@pytest.mark.parametrize(("change", "line", "key", "problem", "remedy"), MISTAKES.values(), ids=MISTAKES)
def test_one_mistake_is_one_problem(change: tuple[str, str], line: int, key: str, problem: str, remedy: str) -> None:
    found = only(edited(change))

    assert (found.file, found.line, found.key) == ("mine.yaml", line, key)
    assert problem in found.problem
    assert remedy in found.remedy


def test_no_worker() -> None:
    text = edited(("roles: [worker]", "roles: [ps]"), ("- worker", "- ps"))

    assert "no worker" in only(text).problem


def test_two_roles_on_the_same_ports_of_a_node() -> None:
    found = problems(edited(("roles: [worker]", "roles: [worker, worker]")))

    assert [problem.key for problem in found] == ["nodes.rpi02.roles.1", "nodes.rpi02.roles.1"]
    assert "port 2223 on rpi02 is worker:0's port already" in found[0].problem
    assert "port 9201 on rpi02 is worker:0's metrics_port already" in found[1].problem


def test_a_port_of_one_role_that_is_anothers_metrics_port() -> None:
    found = only(edited(("roles: [worker]", "roles: [{worker: {port: 4000, metrics_port: 4000}}]")))

    assert found.key == "nodes.rpi02.roles.0.worker.metrics_port"
    assert found.value == "4000"


def test_the_page_has_a_port_of_its_own_unless_there_is_none() -> None:
    taken = edited(("coordinator]", "{coordinator: {metrics_port: 9203}}]"))
    found = only(taken)
    assert "port 9203 on rpi01 is coordinator:0's metrics_port already" in found.problem
    assert "page_port: 3003" in found.remedy
    assert not problems(taken, ["page.listen=off"])
    assert not problems(edited(("coordinator]", "{coordinator: {metrics_port: 9203, page_port: 9204}}]")))


def test_ports_of_their_own_make_room_for_two_workers_on_a_node() -> None:
    text = edited(("roles: [worker]", "roles: [worker, {worker: {port: 3001, metrics_port: 3002}}]"))

    assert not problems(text)


def test_everything_wrong_is_said_in_one_go_and_in_the_order_of_the_file() -> None:
    text = edited(
        ("cluster: bench", "cluster: my bench"),
        ("192.168.1.17", "8.8.8.8"),
        ("address: 192.168.1.18", "address: 192.168.1.16"),
        ("samples: 1000", "samples: 0"),
        ("hidden: 64", "hiden: 64"),
        ("epochs: 30", "epochs: .inf"),
    )

    found = problems(text)

    assert [problem.line for problem in found] == [2, 9, 12, 17, 19, 21]


def test_a_message_reads_file_line_key_value_problem_remedy() -> None:
    text = edited(("epochs: 30", "epochs: many"))

    assert str(only(text)) == (
        "mine.yaml:21: jobs.train.epochs: 'many': expected a whole number - write it without quotes and decimal point"
    )


def test_public_addresses_are_fine_when_allowed() -> None:
    text = edited(("192.168.1.17", "8.8.8.8"), ("cluster:", "allow_public: true\ncluster:"))

    assert not problems(text)


def test_a_broken_node_does_not_hide_the_others_nor_miss_its_roles() -> None:
    text = edited(("address: 192.168.1.16", "adress: 192.168.1.16"), ("192.168.1.17", "8.8.8.8"))

    found = problems(text)

    assert [problem.key for problem in found] == ["nodes.rpi01.adress", "nodes.rpi02.address"]


def test_a_section_with_every_key_commented_out_means_its_defaults() -> None:
    text = edited(("pi: {samples: 1000}", "pi: # {samples: 1000}"))

    assert not problems(text)


def test_the_reader_of_a_file_without_anything_is_told_where_to_start() -> None:
    assert "fab init" in only("# nothing yet\n").remedy


def test_a_list_is_not_an_inventory() -> None:
    assert "cluster" in only("- schema: 1\n").problem


def test_the_untouched_inventory_has_no_problem() -> None:
    assert not problems(THREE_NODES, on=machine())
