"""The check whether readings fit a model, by what its training states of its channels.

The size of their values counts too.
"""

from collections.abc import Sequence

from core.data.filters import CHANNELS, NINE_UNITS, SAMPLE_RATE_HZ
from core.data.signals import UNFILTERED, Sensor, Signals
from core.ground.errors import UsageError
from recognise.plausibility import moments_problem

_NINE = f"the nine channels {CHANNELS[0]} to {CHANNELS[-1]}"
_STATE = (
    "state it with the recordings (an .npz has channels, units and sampling_hz) and train again"
)


def refuse_unfit(signals: Signals, mean: Sequence[float], std: Sequence[float]) -> None:
    """Raise UsageError for a model whose windows no stream can make.

    It makes the nine channels in g and rad/s at 50 Hz, and channels of stated names, units and rate
    that are not filtered. mean, std: the moments of each channel of the training, in its own unit.
    A fact that is not stated counts as unknown.
    """
    if not signals.channels:
        raise UsageError(
            f"expected a model of {_NINE}, got one whose training does not say its channels;"
            f" {_STATE}"
        )
    is_as_given = signals.filters == UNFILTERED and bool(signals.units)
    if signals.channels != CHANNELS and not is_as_given:
        shown = ", ".join(signals.channels)
        raise UsageError(
            f"expected a model of {_NINE} in this order, got {shown:.200}; give it windows that are"
            " cut already, in an .npz"
        )
    if signals.channels == CHANNELS and signals.units not in ((), NINE_UNITS):
        raise UsageError(
            f"expected a model of {_NINE} in {', '.join(NINE_UNITS)}, got"
            f" {', '.join(signals.units):.120}; give it windows that are cut already, in an .npz"
        )
    if signals.sampling_hz is None:
        raise UsageError(
            f"expected a model of {SAMPLE_RATE_HZ:g} Hz or another stated rate, got one whose"
            f" training does not say it; {_STATE}"
        )
    problem = moments_problem(mean, std, signals)
    if problem is not None:
        raise UsageError(
            f"the model was trained in other units than g and rad/s: {problem} Train it on those"
        )


def refuse_other_windows(name: str, windows: Signals, model: Signals) -> None:
    """Raise UsageError where windows and model state different facts."""
    for fact in ("channels", "units", "sampling_hz", "sensors"):
        stated = getattr(windows, fact)
        taken = getattr(model, fact)
        if stated and taken and stated != taken:
            raise UsageError(
                f"{name}: {fact}: expected those of the model, {_shown(taken)}, got"
                f" {_shown(stated)}; give it windows that are like its training's"
            )


def _shown(fact: object) -> str:
    if not isinstance(fact, tuple):
        return str(fact)
    words = [f"{one.name}: {one.kind}" if isinstance(one, Sensor) else str(one) for one in fact]
    return f"{', '.join(words):.120}"
