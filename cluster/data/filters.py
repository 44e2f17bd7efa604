"""Nine channels from raw accelerometer and gyroscope readings, as the classic UCI HAR set describes them.

Source: Reyes-Ortiz et al., README and features_info of "Smartphone-Based Recognition of Human Activities and Postural
Transitions" (UCI): median filter, then a 3rd-order Butterworth low-pass at 20 Hz against noise; gravity is what a
3rd-order Butterworth low-pass at 0.3 Hz leaves, body acceleration the rest.
"""

import functools

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage, signal

SAMPLE_RATE_HZ = 50.0
NOISE_CUTOFF_HZ = 20.0
GRAVITY_CUTOFF_HZ = 0.3
MEDIAN_STEPS = 3
FILTER_ORDER = 3

CHANNELS = tuple(f"{signal_name}_{axis}" for signal_name in ("body_acc", "body_gyro", "total_acc") for axis in "xyz")
"""Order of the channels: body acceleration (g), angular velocity (rad/s), total acceleration (g), each x, y, z."""

SHORTEST_RECORDING_STEPS = 32
"""Both filters run forwards and backwards over padded ends, which shorter recordings cannot provide."""

Samples = NDArray[np.float64]


def nine_channels(acceleration: Samples, angular_velocity: Samples) -> NDArray[np.float32]:
    """Channels, float32 (steps, 9), from raw readings in g and rad/s, each (steps, 3), at 50 Hz."""
    total = remove_noise(acceleration)
    body = total - gravity(total)
    return np.concatenate([body, remove_noise(angular_velocity), total], axis=1).astype(np.float32)


def remove_noise(samples: Samples) -> Samples:
    """Median filter of 3 steps, then the 20 Hz low-pass without phase shift; shape (steps, channels)."""
    return _low_pass(ndimage.median_filter(samples, size=(MEDIAN_STEPS, 1), mode="nearest"), NOISE_CUTOFF_HZ)


def gravity(acceleration: Samples) -> Samples:
    """The part below 0.3 Hz, same shape and unit."""
    return _low_pass(acceleration, GRAVITY_CUTOFF_HZ)


def _low_pass(samples: Samples, cutoff_hz: float) -> Samples:
    filtered: Samples = signal.sosfiltfilt(_sections(cutoff_hz), samples, axis=0)
    return filtered


@functools.cache
def _sections(cutoff_hz: float) -> Samples:
    """The filter's second-order sections (sections, 6)."""
    sections: Samples = signal.butter(FILTER_ORDER, cutoff_hz, btype="lowpass", fs=SAMPLE_RATE_HZ, output="sos")
    return sections
