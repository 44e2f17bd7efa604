"""TensorFlow's process-wide settings, which an app may change and which would reach our graphs."""

import logging
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any

from core.ground.errors import UsageError
from core.ground.lazy import tf

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ProcessSetting:
    """One setting: as a program writes it, how it is read, and how an earlier value is put back."""

    name: str
    read: Callable[[], Any]
    put: Callable[[Any], object]


def settings_now() -> Mapping[ProcessSetting, Any]:
    """Return what each setting is; none where TensorFlow is not loaded."""
    if "tensorflow" not in sys.modules:
        return {}
    return {setting: setting.read() for setting in SETTINGS}


def put_back(before: Mapping[ProcessSetting, Any], file: Path) -> None:
    """Put back what the app in `file` has changed, with a warning for each.

    Raises UsageError for what cannot be put back.
    """
    changed = [setting for setting, value in before.items() if setting.read() != value]
    for setting in changed:
        with suppress(
            RuntimeError, ValueError
        ):  # once TensorFlow computes, it refuses some of them
            setting.put(before[setting])
        if setting.read() != before[setting]:
            raise UsageError(
                f"{file}: changes {setting.name} to {setting.read()}: it holds for the whole"
                " process, so it would reach the cluster's own graphs, which need"
                f" {before[setting]}: leave it out"
            )
        log.warning(
            "%s: changes %s: it holds for the whole process, so it is put back and reaches no graph"
            " of the cluster",
            file,
            setting.name,
        )


def _private(name: str) -> Any:
    """A module of TensorFlow's that has a setting without a public name."""
    from importlib import import_module

    return import_module(f"tensorflow.python.{name}")


def _public(name: str, read: str) -> ProcessSetting:
    """Return the setting of a public function of that name, which another one reads."""

    def put(value: Any) -> None:
        attrgetter(name)(tf)(value)

    return ProcessSetting(f"tf.{name}", lambda: attrgetter(read)(tf)(), put)


def _switch(what: str, read: Callable[[], Any]) -> ProcessSetting:
    """Return the setting of a change of TensorFlow 2, which two functions switch on and off."""

    def put(value: Any) -> None:
        if value:
            getattr(tf.compat.v1, f"enable_{what}")()
        else:
            getattr(tf.compat.v1, f"disable_{what}")()

    return ProcessSetting(f"tf.compat.v1.disable_{what}", read, put)


def _put_determinism(on: bool) -> None:
    config = _private("framework.config")
    if on:
        config.enable_op_determinism()
    else:
        config.disable_op_determinism()


def _context() -> Any:
    return _private("eager.context").context()


def _put_options(options: Mapping[str, Any]) -> None:
    """The public function can add and change options, and take none away."""
    _context()._optimizer_experimental_options.clear()
    tf.config.optimizer.set_experimental_options(options)


def _callbacks() -> list[Any]:
    return [*_context().op_callbacks]


def _put_callbacks(callbacks: list[Any]) -> None:
    tf.debugging.disable_check_numerics()
    for callback in _callbacks():
        if callback not in callbacks:
            _private("framework.op_callbacks").remove_op_callback(callback)


def _put_nothing(value: Any) -> None:
    """There is no way back."""
    del value


def _put_strategy(had_strategy: bool) -> None:
    if not had_strategy:
        tf.distribute.experimental_set_strategy(None)


SETTINGS = (
    ProcessSetting(
        "eager execution (tf.compat.v1.disable_eager_execution, disable_v2_behavior)",
        lambda: tf.compat.v1.executing_eagerly_outside_functions(),
        _put_nothing,
    ),
    ProcessSetting(
        "tf.config.experimental.enable_op_determinism",
        lambda: bool(_private("framework.config").is_op_determinism_enabled()),
        _put_determinism,
    ),
    _public("config.run_functions_eagerly", "config.functions_run_eagerly"),
    ProcessSetting(
        "callbacks of all operations (tf.debugging.enable_check_numerics, enable_dump_debug_info)",
        _callbacks,
        _put_callbacks,
    ),
    _public(
        "config.threading.set_intra_op_parallelism_threads",
        "config.threading.get_intra_op_parallelism_threads",
    ),
    _public(
        "config.threading.set_inter_op_parallelism_threads",
        "config.threading.get_inter_op_parallelism_threads",
    ),
    _public("config.set_visible_devices", "config.get_visible_devices"),
    _public("config.set_soft_device_placement", "config.get_soft_device_placement"),
    ProcessSetting(
        "tf.config.optimizer.set_jit",
        lambda: tf.config.optimizer.get_jit(),
        lambda level: tf.config.optimizer.set_jit(level or False),
    ),
    ProcessSetting(
        "tf.config.optimizer.set_experimental_options",
        lambda: {**_context()._optimizer_experimental_options},
        _put_options,
    ),
    _public(
        "config.experimental.enable_tensor_float_32_execution",
        "config.experimental.tensor_float_32_execution_enabled",
    ),
    _public("debugging.set_log_device_placement", "debugging.get_log_device_placement"),
    ProcessSetting(
        "tf.distribute.experimental_set_strategy",
        lambda: tf.distribute.has_strategy(),
        _put_strategy,
    ),
    _switch("control_flow_v2", lambda: tf.compat.v1.control_flow_v2_enabled()),
    _switch("resource_variables", lambda: tf.compat.v1.resource_variables_enabled()),
    _switch(
        "v2_tensorshape",
        lambda: _private("framework.tensor_shape")._TENSORSHAPE_V2_OVERRIDE is not False,
    ),
    _switch("tensor_equality", lambda: bool(_private("framework.tensor").Tensor._USE_EQUALITY)),
)
