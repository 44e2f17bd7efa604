"""A model and a stream: readings in, labels, changes and faults out."""

from collections.abc import Sequence
from time import perf_counter
from typing import Any

from numpy.typing import ArrayLike

from cluster.data.filters import CHANNELS, SAMPLE_RATE_HZ
from cluster.data.recordings import CAUSAL
from cluster.errors import UsageError
from cluster.exported import Description, Model
from cluster.exported.description import labels_of
from recognise.stream import Event, Settings, Smoothing, Stream, Window


def settings_of(description: Description, **asked: Any) -> Settings:
    """The settings of a stream for this model; `asked` are other settings by name, and `hop` is the model's stride.

    Raises UsageError for a model that no stream of readings can feed.
    """
    if description.input.channels != CHANNELS:
        shown = ", ".join(description.input.channels) or "no channels"
        raise UsageError(
            f"expected a model of the nine channels {CHANNELS[0]} to {CHANNELS[-1]}, got {shown:.200}; give it windows "
            f"that are cut already, in an .npz"
        )
    hop = asked.pop("hop", None)
    if hop is None:
        hop = description.stride or description.input.samples
    hertz = description.sampling_hz or SAMPLE_RATE_HZ
    return Settings(window_steps=description.input.samples, hop=hop, sampling_hz=hertz, **asked)


def filter_warning(description: Description) -> str | None:
    """One line for a model that was trained on other filters than a stream can have; None for one that fits."""
    if description.filters == CAUSAL:
        return None
    return (
        f"{description.run.folder}: trained with {description.filters or 'unknown'} filters, a stream is filtered "
        f"forwards only; train with jobs.train.data.filters {CAUSAL} to match it"
    )


class Recogniser:
    """One session. Each window is computed by itself, so that its bits depend on no other window."""

    def __init__(self, model: Model, settings: Settings) -> None:
        self._model = model
        self._stream = Stream(settings)
        self._smoothing = Smoothing(settings, labels_of(model.description))
        self.windows = 0
        self.model_seconds = 0.0

    def push(self, times: ArrayLike, acceleration: ArrayLike, angular_velocity: ArrayLike) -> Sequence[Event]:
        """Events of the next readings, in order, as `Stream.push` takes them. Raises UsageError as that does."""
        found: list[Event] = []
        for item in self._stream.push(times, acceleration, angular_velocity):
            if not isinstance(item, Window):
                found.append(item)
                continue
            began = perf_counter()
            logits = self._model.logits(item.channels[None])[0]
            self.model_seconds += perf_counter() - began
            self.windows += 1
            found += self._smoothing.take(item, logits)
        return found
