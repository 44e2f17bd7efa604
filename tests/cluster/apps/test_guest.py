"""What an app's code does to the process holds for its code alone."""

import json
import locale
import logging
import os
import signal
import socket
import sys
import threading
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import core.engine.runtime  # noqa: F401
from cluster.apps.app import load
from core.ground.lazy import keras, tf
from deploy.common.project import environment_for_any_folder
from tests.cluster.apps.trees import write_tree
from tests.ran import python
from tests.tables import table

CHANGES = table("cluster/apps/guests")
APP = """
import keras, logging, os, signal, socket, sys, warnings
import tensorflow as tf
{import}
def model(input_shape, outputs):
    return {found}
def data(folder):
    {call}
    return {found}
"""


def shared() -> dict[str, Any]:
    """What all code of this process shares, read without the code under test."""
    from tensorflow.python.framework import config

    root = logging.getLogger()
    return {
        "folder": os.getcwd(),
        "environment": dict(os.environ),
        "mask": Path("/proc/self/status").read_text().partition("Umask:")[2].split()[0],
        "signals": [
            signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)
        ],
        "alarm": signal.getitimer(signal.ITIMER_REAL)[0] > 5000.0,
        "blocked": signal.pthread_sigmask(signal.SIG_BLOCK, ()),
        "logging": (
            root.level,
            [*root.handlers],
            root.manager.disable,
            logging.getLogger("core.engine").disabled,
        ),
        "warnings": [*warnings.filters],
        "streams": (sys.stdout, sys.stderr),
        "arguments": [*sys.argv],
        "locale": locale.setlocale(locale.LC_ALL),
        "numpy": np.geterr(),
        "sockets": socket.getdefaulttimeout(),
        "keras": (
            keras.config.floatx(),
            keras.config.epsilon(),
            keras.config.image_data_format(),
            keras.mixed_precision.global_policy().name,
        ),
        "determinism": config.is_op_determinism_enabled(),
        "eager functions": tf.config.functions_run_eagerly(),
        "compilation": tf.config.optimizer.get_jit(),
        "rewriter": tf.config.optimizer.get_experimental_options(),
        "placement": tf.config.get_soft_device_placement(),
        "strategy": tf.distribute.has_strategy(),
        "control flow": tf.compat.v1.control_flow_v2_enabled(),
        "checks": "Numeric"
        in str(
            tf.function(lambda: tf.constant(1.0) / tf.constant(2.0), autograph=False)
            .get_concrete_function()
            .graph.as_graph_def()
        ),
        "promotion": refused_promotion(),
    }


def refused_promotion() -> bool:
    try:
        tf.ones([], tf.int32) + tf.ones([], tf.float32)
    except tf.errors.InvalidArgumentError:
        return True
    return False


@pytest.mark.parametrize("what", CHANGES)
@pytest.mark.parametrize("where", ["import", "call"])
def test_what_an_app_changes_holds_for_its_own_code(what: str, where: str, tmp_path: Path) -> None:
    changes = {"import": "", "call": ""} | {where: CHANGES[what]["change"]}
    found = CHANGES[what].get("found", True)
    (tmp_path / "app.py").write_text(APP.format(found=found, **changes))
    before = shared()
    app = load(tmp_path)
    assert app.call("data", tmp_path) is True
    assert app.call("model", (1,), 1) is True
    assert shared() == before
    assert threading.active_count() < 100


DEFAULTS = """
import keras
def data(folder):
    return keras.config.image_data_format(), keras.config.floatx()
"""


def test_keras_begins_with_its_own_defaults_whatever_a_person_s_file_says(tmp_path: Path) -> None:
    write_tree(tmp_path, {"app.py": DEFAULTS})
    keras.config.set_image_data_format("channels_first")
    keras.config.set_floatx("float64")
    try:
        assert load(tmp_path).call("data", tmp_path) == ("channels_last", "float32")
    finally:
        keras.config.set_image_data_format("channels_last")
        keras.config.set_floatx("float32")


def printed(folder: Path) -> str:
    """What the program `main.py` in that folder prints, which it gets as its argument."""
    return python(folder / "main.py", folder, environment=environment_for_any_folder())


REFUSED = """
import sys, core.engine.graph_options
from pathlib import Path
from core.ground.errors import UsageError
from cluster.apps.app import load
try:
    load(Path(sys.argv[1]))
except UsageError as problem:
    print(problem)
"""
GRAPH = "import tensorflow as tf\ntf.compat.v1.{}()\ndef model(input_shape, outputs): ...\n"


@pytest.mark.parametrize("name", ["disable_eager_execution", "disable_v2_behavior"])
def test_what_cannot_be_put_back_is_refused_by_name(name: str, tmp_path: Path) -> None:
    write_tree(tmp_path, {"app.py": GRAPH.format(name), "main.py": REFUSED})
    found = printed(tmp_path)
    assert found.count("\n") == 1
    assert f"{tmp_path}/app.py" in found
    assert "tf.compat.v1.disable_eager_execution" in found
    assert "leave it out" in found


CHILDREN = """
def twice(x):
    return 2 * x

def data(folder):
    import multiprocessing
    with multiprocessing.get_context({how!r}).Pool(1) as pool:
        return pool.map(twice, [1, 2, 3])
"""


IN_MAIN = """
import json, sys
from pathlib import Path
from cluster.apps.app import load
if __name__ == '__main__':
    folder = Path(sys.argv[1])
    print(json.dumps(load(folder).call('data', folder)), file=sys.__stdout__)
"""


@pytest.mark.parametrize("how", ["spawn", "forkserver", "fork"])
def test_processes_of_an_app_import_its_module(how: str, tmp_path: Path) -> None:
    entry = "import helper\n" + CHILDREN.format(how=how)
    write_tree(tmp_path, {"app.py": entry, "helper.py": "", "main.py": IN_MAIN})
    assert json.loads(printed(tmp_path)) == [2, 4, 6]
