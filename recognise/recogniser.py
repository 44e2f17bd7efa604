"""A model and a stream: readings in, labels, changes and faults out."""

from collections.abc import Sequence
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from core.data.intake import Samples
from core.data.signals import CAUSAL, UNFILTERED
from core.exported import Description, Model
from core.exported.description import labels_of
from recognise.plausibility import refuse_unfit, signals_of
from recognise.stream import Event, Settings, Smoothing, Stream, Window


def settings_of(description: Description, **settings: Any) -> Settings:
    """Return the settings of a stream for this model.

    `settings` are settings by name; without a `hop` it is the stride of the training.

    Raises UsageError for a model that no stream of readings can feed.
    """
    model_input = description.input
    moments = description.standardization
    refuse_unfit(signals_of(description), moments.mean, moments.std)
    hop = settings.pop("hop", None)
    if hop is None:
        hop = description.stride or description.input.samples
    return Settings(
        window_steps=model_input.samples, hop=hop, signals=signals_of(description), **settings
    )


def filter_warning(description: Description) -> str | None:
    """Return a warning for a model that was trained on filters that no stream has, or None."""
    if description.filters in (CAUSAL, UNFILTERED):
        return None
    return (
        f"{description.run.folder}: trained with {description.filters or 'unknown'} filters, a"
        f" stream is filtered forwards only; train with jobs.train.data.filters {CAUSAL} to"
        " match it"
    )


class Recogniser:
    """A model that labels one stream.

    Each window is computed by itself, so that its bits depend on no other window.
    """

    def __init__(self, model: Model, settings: Settings) -> None:
        self._model = model
        self._stream = Stream(settings)
        self._smoothing = Smoothing(settings, labels_of(model.description))
        self.windows = 0
        self.model_seconds = 0.0

    def push(
        self, times: ArrayLike, acceleration: ArrayLike, angular_velocity: ArrayLike
    ) -> Sequence[Event]:
        """Return the events of the next readings, in order.

        times: seconds, (n,); acceleration, angular_velocity: (n, 3). Raises UsageError for other
        shapes, or more readings than `Stream.push_values` takes, and ValueError where they differ.
        """
        values = np.hstack([acceleration, angular_velocity])
        return self.push_values(np.asarray(times, np.float64), values)

    def push_values(self, seconds: Samples, values: Samples) -> Sequence[Event]:
        """Return the events of the next readings, in order.

        `Stream.push_values` describes the arguments, and what it raises.
        """
        events: list[Event] = []
        for item in self._stream.push_values(seconds, values):
            if not isinstance(item, Window):
                events.append(item)
                continue
            began = perf_counter()
            logits = self._model.logits(item.channels[None])[0]
            self.model_seconds += perf_counter() - began
            self.windows += 1
            events += self._smoothing.take(item, logits)
        return events
