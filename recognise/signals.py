"""What an export states of the channels that its model takes."""

from core.data.signals import Sensor, Signals
from core.exported.description import Description


def signals_of(description: Description) -> Signals:
    """Return what the export states of its channels."""
    model_input = description.input
    rate_and_filters = description.sampling_hz, description.filters
    sensors = tuple(Sensor(name, kind) for name, kind in model_input.sensors.items())
    return Signals(
        model_input.channels,
        model_input.units,
        *rate_and_filters,
        sensors,
        description.format_sha256,
    )
