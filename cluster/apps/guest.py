"""An app is a guest in this process: what its code does to the process holds for its code alone.

Working folder, environment, signals, logging, Keras's configuration and TensorFlow's global
settings belong to a whole process. An app may set each of them. It finds its own again whenever its
code runs, and our code finds ours.
"""

import gc
import locale
import logging
import os
import signal
import socket
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from importlib import import_module
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
    return {setting: setting.read() for setting in TENSORFLOW_SETTINGS}


def put_settings_back(before: Mapping[ProcessSetting, Any], file: Path) -> None:
    """Put back what the app in `file` has changed, with a warning for each.

    Raises UsageError for what cannot be put back.
    """
    changed = [setting for setting, value in before.items() if setting.read() != value]
    for setting in changed:
        # Once TensorFlow computes, it refuses some of them.
        with suppress(RuntimeError, ValueError):
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


def _put_strategy(had_strategy: bool) -> None:
    if not had_strategy:
        tf.distribute.experimental_set_strategy(None)


TENSORFLOW_SETTINGS = (
    ProcessSetting(
        "eager execution (tf.compat.v1.disable_eager_execution, disable_v2_behavior)",
        lambda: tf.compat.v1.executing_eagerly_outside_functions(),
        lambda _: None,  # there is no way back
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


@dataclass(frozen=True)
class Trait:
    """One thing that all code of a process shares.

    With `returns_to_app` an app finds what it left there when it runs again.
    """

    read: Callable[[], Any]
    put: Callable[[Any], object]
    returns_to_app: bool = False


class Guest:
    """The standing of one app in this process: what it has changed, as it left it."""

    def __init__(self) -> None:
        self._app_values: dict[Trait, Any] = {KERAS: KERAS_BEGINS}

    @contextmanager
    def inside(self, file: Path) -> Iterator[None]:
        """Run the code of the app in `file` in here.

        The main thread alone changes what belongs to the whole process.

        Raises UsageError for a setting of TensorFlow that cannot be put back.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        values_before = {trait: trait.read() for trait in TRAITS}
        settings = settings_now()
        for trait, value in self._app_values.items():
            trait.put(value)
        sys.argv[:] = [str(file)]
        sys.stdout = sys.stderr  # standard output is for results
        try:
            with warnings.catch_warnings():
                yield
        finally:
            for trait, before in values_before.items():
                now = trait.read()
                if trait.returns_to_app:
                    self._app_values[trait] = now
                if now != before:
                    trait.put(before)
            put_settings_back(settings, file)


def _folder() -> str:
    try:
        return os.getcwd()
    except OSError:  # it was removed
        return ""


def _enter(folder: str) -> None:
    with suppress(OSError):
        os.chdir(folder)


def _put_environment(variables: dict[str, str]) -> None:
    for name in os.environ.keys() - variables.keys():
        del os.environ[name]
    for name, value in variables.items():
        if os.environ.get(name) != value:
            os.environ[name] = value


def _mask() -> int:
    with open("/proc/self/status", encoding="ascii", errors="replace") as lines:
        return next((int(line.split()[1], 8) for line in lines if line.startswith("Umask:")), 0o022)


def _put_arguments(arguments: list[str]) -> None:
    sys.argv[:] = arguments


_locale = partial(locale.setlocale, locale.LC_ALL)


def _handlers() -> dict[int, Any]:
    return {number: signal.getsignal(number) for number in signal.valid_signals()}


def _put_handlers(handlers: dict[int, Any]) -> None:
    for number, handler in handlers.items():
        if handler is not None and signal.getsignal(number) is not handler:
            with suppress(
                OSError, ValueError
            ):  # SIGKILL, SIGSTOP and the C library's own have none
                signal.signal(number, handler)


def _blocked() -> set[Any]:
    return set(signal.pthread_sigmask(signal.SIG_BLOCK, ()))


def _put_alarm(timer: tuple[float, float]) -> None:
    signal.setitimer(signal.ITIMER_REAL, *timer)


def _loggers() -> dict[logging.Logger, tuple[Any, ...]]:
    registered = [logging.root, *logging.root.manager.loggerDict.values()]
    loggers = [logger for logger in registered if isinstance(logger, logging.Logger)]
    return {
        logger: (logger.level, [*logger.handlers], logger.propagate, logger.disabled)
        for logger in loggers
    }


def _logging() -> tuple[int, dict[logging.Logger, tuple[Any, ...]]]:
    return logging.root.manager.disable, _loggers()


def _put_logging(settings: tuple[int, dict[logging.Logger, tuple[Any, ...]]]) -> None:
    """Put back the settings of the known loggers; new loggers stay as they are: the app's."""
    logging.disable(settings[0])
    for logger, (level, handlers, propagate, disabled) in settings[1].items():
        logger.setLevel(level)
        logger.handlers[:] = handlers
        logger.propagate = propagate
        logger.disabled = disabled


def _numpy_errors() -> Any:
    if "numpy" in sys.modules:
        return sys.modules["numpy"].geterr()
    return None


def _put_numpy_errors(modes: Any) -> None:
    if modes is not None:
        sys.modules["numpy"].seterr(**modes)


def _streams() -> tuple[Any, ...]:
    return sys.stdin, sys.stdout, sys.stderr, sys.excepthook, threading.excepthook


def _put_streams(streams: tuple[Any, ...]) -> None:
    sys.stdin, sys.stdout, sys.stderr, sys.excepthook, threading.excepthook = streams


def _keras_now() -> tuple[Any, ...]:
    """Keras's own configuration: of a process without Keras what it begins with."""
    keras = sys.modules.get("keras")
    config = getattr(keras, "config", None)
    if config is None:
        return KERAS_BEGINS
    from keras.src.backend.common import global_state

    policy = global_state.get_global_attribute("dtype_policy")
    return config.floatx(), config.epsilon(), config.image_data_format(), policy


def _put_keras(configuration: tuple[Any, ...]) -> None:
    config = getattr(sys.modules.get("keras"), "config", None)
    if config is None:
        return
    from keras.src.backend.common import global_state

    config.set_floatx(configuration[0])
    config.set_epsilon(configuration[1])
    config.set_image_data_format(configuration[2])
    global_state.set_global_attribute("dtype_policy", configuration[3])


def _numpy_behaviour() -> tuple[Any, ...]:
    """Return how tensors promote dtypes and are sliced.

    tf.experimental.numpy changes it for the whole process.
    """
    ops = sys.modules.get("tensorflow.python.framework.ops")
    names = sys.modules.get("tensorflow.python.ops.numpy_ops.np_dtypes")
    if ops is None or names is None:
        return ()
    return ops._numpy_style_slicing, ops._dtype_conversion_mode, names.is_prefer_float32()


def _put_numpy_behaviour(behaviour: tuple[Any, ...]) -> None:
    if not behaviour:
        return
    ops = sys.modules["tensorflow.python.framework.ops"]
    ops._numpy_style_slicing, ops._dtype_conversion_mode = behaviour[:2]  # type: ignore[attr-defined]
    sys.modules["tensorflow.python.ops.numpy_ops.np_dtypes"].set_prefer_float32(behaviour[2])


KERAS_BEGINS = ("float32", 1e-07, "channels_last", None)
"""floatx, epsilon, image_data_format and dtype policy, as Keras has them where no file of a person
says otherwise."""

KERAS = Trait(_keras_now, _put_keras, returns_to_app=True)
TRAITS = (
    Trait(_folder, _enter, returns_to_app=True),
    Trait(lambda: dict(os.environ), _put_environment, returns_to_app=True),
    KERAS,
    Trait(_numpy_behaviour, _put_numpy_behaviour, returns_to_app=True),
    Trait(_mask, os.umask),
    # Before the handlers: an alarm of the app's that finds our handler would end this process.
    Trait(lambda: signal.getitimer(signal.ITIMER_REAL), _put_alarm),
    Trait(_handlers, _put_handlers),
    Trait(_blocked, partial(signal.pthread_sigmask, signal.SIG_SETMASK)),
    Trait(_logging, _put_logging),
    Trait(_streams, _put_streams),
    Trait(lambda: [*sys.argv], _put_arguments),
    Trait(_locale, _locale),
    Trait(_numpy_errors, _put_numpy_errors),
    Trait(socket.getdefaulttimeout, socket.setdefaulttimeout),
    Trait(sys.getrecursionlimit, sys.setrecursionlimit),
    Trait(gc.isenabled, lambda on: gc.enable() if on else gc.disable()),
)
