"""What an export states of the channels that its model takes."""

from core.data.signals import Sensor, Signals
from core.exported.description import Description


def signals_of(description: Description) -> Signals:
    """Return what the export states of its channels."""
    given = description.input
    known = description.sampling_hz, description.filters
    sensors = tuple(Sensor(name, kind) for name, kind in given.sensors.items())
    return Signals(given.channels, given.units, *known, sensors, description.format_sha256)
