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
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from cluster.apps.tensorflow_settings import put_back, settings_now


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
            put_back(settings, file)


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
