"""Synthetic recordings of six activities by thirty invented people.

They are for when there are no real ones.

A phone at the waist is modelled: gravity in the phone's own axes, steps as a few harmonics of a
drifting cadence, sway, sensor noise, then the same filters as for real recordings. What separates
people (cadence, strength, how the phone sits, how they slouch) overlaps what separates activities:
sitting resembles standing, and the three walks each other, so that a network must generalize to
people it has not seen. No figure here claims to be physiology.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

from core.data.arrays import Singles
from core.data.filters import NINE_CHANNELS, SAMPLE_RATE_HZ, channels_by
from core.data.recordings import Cutting, Recordings, Report, check_window
from core.data.source import Reader
from core.ground.errors import DataError

TRAIN_SUBJECTS = 21
TEST_SUBJECTS = 9
BOUTS = 4
"""Times each person does each activity, the phone being put back in between."""
BOUT_STEPS = 128 + 7 * 64
"""Eleven and a half seconds: eight windows of 128 steps at stride 64."""
ACCELERATION_NOISE = 0.04
ANGULAR_NOISE = 0.06
"""Standard deviation of the sensors' noise in g and rad/s, before the filters."""

Samples = NDArray[np.float64]


@dataclass(frozen=True)
class Activity:
    """One activity: its steps (none for postures) and how the trunk leans.

    cadence is relative to the person's own; vertical and forward in g; impact is the share of each
    next harmonic; swing in rad/s; lean and lean_spread (between people) in degrees; sway in g.
    """

    name: str
    cadence: float = 0.0
    vertical: float = 0.0
    forward: float = 0.0
    impact: float = 0.0
    swing: float = 0.0
    lean: float = 0.0
    lean_spread: float = 4.0
    sway: float = 0.006


ACTIVITIES = (
    Activity("WALKING", 1.00, vertical=0.26, forward=0.15, impact=0.45, swing=0.45, lean=2),
    Activity(
        "WALKING_UPSTAIRS", 0.87, vertical=0.23, forward=0.19, impact=0.30, swing=0.65, lean=12
    ),
    Activity(
        "WALKING_DOWNSTAIRS", 1.10, vertical=0.40, forward=0.17, impact=0.65, swing=0.55, lean=-2
    ),
    Activity("SITTING", lean=-23, lean_spread=4.0, sway=0.005),
    Activity("STANDING", lean=0, lean_spread=3.0, sway=0.009),
    Activity("LAYING", lean=-85, lean_spread=10.0, sway=0.004),
)


@dataclass(frozen=True)
class Person:
    """What stays the same whatever a person does."""

    cadence_hz: float
    strength: float
    impact: float
    swing: float
    sway: float
    phone: Rotation
    leans: tuple[float, ...]


def read_synthetic(opened: None, cutting: Cutting, report: Report) -> Recordings:
    """Return windows, float32 (windows, window_steps, 9) in g and rad/s.

    Subjects 1 to 21 are for training, 22 to 30 for the test.

    The same arguments give the same windows on one machine. Raises DataError when a window is
    longer than a bout.
    """
    check_window(cutting)
    if cutting.window_steps > BOUT_STEPS:
        raise DataError(
            f"synthetic recordings last {BOUT_STEPS} steps, got windows of {cutting.window_steps};"
            " use shorter ones"
        )
    pieces: list[Singles] = []
    people = TRAIN_SUBJECTS + TEST_SUBJECTS
    for subject in range(1, people + 1):
        random = np.random.Generator(np.random.Philox([cutting.seed, subject]))
        person = person_of(random, ACTIVITIES)
        for index, activity in enumerate(ACTIVITIES):
            for _ in range(BOUTS):
                readings = _bout(person, activity, person.leans[index], random)
                channels = channels_by(cutting.filters, *readings)
                views = sliding_window_view(channels, cutting.window_steps, axis=0)
                pieces.append(views[:: cutting.window_stride].transpose(0, 2, 1))
        report("reading", subject, people)
    windows_per_bout = len(pieces[0])
    windows_per_person = windows_per_bout * BOUTS * len(ACTIVITIES)
    return Recordings(
        windows=np.concatenate(pieces),
        classes=np.tile(
            np.repeat(np.arange(len(ACTIVITIES), dtype=np.int32), windows_per_bout * BOUTS), people
        ),
        subjects=np.repeat(np.arange(1, people + 1, dtype=np.int32), windows_per_person),
        train_windows=TRAIN_SUBJECTS * windows_per_person,
        labels=tuple(activity.name for activity in ACTIVITIES),
        signals=NINE_CHANNELS,
    )


def person_of(random: np.random.Generator, activities: Sequence[Activity]) -> Person:
    """A person, who leans in a way of their own in each of these activities."""
    return Person(
        cadence_hz=float(random.normal(1.85, 0.10)),
        strength=float(random.lognormal(0, 0.12)),
        impact=float(random.lognormal(0, 0.16)),
        swing=float(random.lognormal(0, 0.16)),
        sway=float(random.lognormal(0, 0.35)),
        phone=Rotation.from_rotvec(np.radians(random.normal(0, (14, 4, 4)))),
        leans=tuple(
            float(random.normal(activity.lean, activity.lean_spread)) for activity in activities
        ),
    )


def _bout(
    person: Person, activity: Activity, lean: float, random: np.random.Generator
) -> tuple[Samples, Samples]:
    """Acceleration in g and rotation in rad/s, each (BOUT_STEPS, 3), with noise.

    x is up, y to the left and z forward of the wearer, turned by lean and phone.
    """
    acceleration, angular_velocity = movement(person, activity, random)
    acceleration[:, 0] += 1.0
    trunk = Rotation.from_euler("y", lean + random.normal(0, 5), degrees=True)
    put_back = Rotation.from_rotvec(np.radians(random.normal(0, 3, size=3)))
    turned = put_back * person.phone * trunk
    return (
        turned.apply(acceleration) + random.normal(0, ACCELERATION_NOISE, size=acceleration.shape),
        turned.apply(angular_velocity) + random.normal(0, ANGULAR_NOISE, size=acceleration.shape),
    )


def movement(
    person: Person,
    activity: Activity,
    random: np.random.Generator,
    steps: int = BOUT_STEPS,
    rate_hz: float = SAMPLE_RATE_HZ,
) -> tuple[Samples, Samples]:
    """Return acceleration without gravity in g and angular velocity in rad/s, (steps, 3) each.

    They are in the wearer's axes.
    """

    def smooth(channels: int) -> Samples:
        return _smooth(random, channels, steps, rate_hz)

    sway = smooth(3) * activity.sway * person.sway
    turning = smooth(3) * activity.sway * person.sway * 4
    if not activity.cadence:
        return sway, turning
    cadence_hz = person.cadence_hz * activity.cadence * random.normal(1, 0.05)
    drift = 1 + 0.04 * smooth(2)
    phase = random.uniform(0, 2 * np.pi) + 2 * np.pi * np.cumsum(cadence_hz * drift[:, 0]) / rate_hz
    strength = person.strength * random.lognormal(0, 0.12) * (1 + 0.15 * drift[:, 1])
    impact = min(0.95, activity.impact * person.impact * random.lognormal(0, 0.14))
    shape = random.normal(0, 0.4, size=4)
    up = sum(impact**k * np.cos((k + 1) * phase + shape[k]) for k in range(4))
    ahead = sum(impact**k * np.sin((k + 1) * phase + shape[k]) for k in range(3))
    side = np.cos(phase / 2 + shape[3])
    swing = activity.swing * person.swing * random.lognormal(0, 0.14)
    strides = (
        np.stack([activity.vertical * up, 0.08 * side, activity.forward * ahead], axis=1)
        * strength[:, None]
    )
    turns = np.stack(
        [0.8 * np.sin(phase / 2), 0.7 * np.cos(phase + shape[0]), 0.5 * np.sin(phase / 2 + 1)],
        axis=1,
    )
    return strides + sway, swing * turns + turning


def _smooth(random: np.random.Generator, channels: int, steps: int, rate_hz: float) -> Samples:
    """Return slow noise of about unit deviation, (steps, channels).

    It is white noise averaged over half a second.
    """
    width = int(rate_hz / 2)
    white = random.normal(0, 1, size=(steps + width, channels))
    summed = np.cumsum(white, axis=0)
    slow: Samples = (summed[width:] - summed[:-width]) / np.sqrt(width)
    return slow


class Synthetic(Reader):
    """Recordings that are made here."""

    name = "synthetic"
    accepted = "'synthetic'"
    is_what = "six activities of thirty invented people, seeded"
    windows_are_cut = "here"
    marker = None
    suffix = None
    usual_names = ()
    settings = ("window_steps", "window_stride", "seed", "filters")
    read = staticmethod(read_synthetic)
