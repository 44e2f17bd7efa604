"""Invented recordings in HHAR's format: `python -m benchmarks.synthetic_hhar FILE.csv`.

For tests and figures where the published file cannot be had. A person does an activity with several
phones on the body at once, as in HHAR: every phone measures the same movement, turned as the phone
sits, at a rate of its own, with a gain, an offset, noise and a step between two values of its own.
Those are what the set is about (Stisen et al. 2015); the figures here are of the order of those
published, not measured. `null` is movement without a name: some seconds of anything.
"""

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

from core.data.recordings import Report, silent
from core.data.synthetic import Activity, Person, Samples, movement, person_of
from core.ground.errors import DataError
from core.logs import say

FIRST_LINE = "Index,Arrival_Time,Creation_Time,x,y,z,User,Model,Device,gt\n"
NULL = "null"
MOVEMENT_HZ = 200.0
STANDARD_GRAVITY = 9.80665
FIRST_MS = 1_424_696_633_908
"""When the published file begins: 23 February 2015."""
PAUSE_MS = 20_000
"""Between two bouts."""
BOUTS = 2
"""Times each person does each activity, all phones being put back in between."""
PIECE_SECONDS = (2.0, 5.0)
"""The seconds of one movement within `null`."""

ACTIVITIES = (
    Activity("bike", 0.62, vertical=0.13, forward=0.11, impact=0.35, swing=0.5, lean=24, sway=0.03),
    Activity("sit", lean=-23, lean_spread=8.0, sway=0.005),
    Activity("stand", lean=0, lean_spread=5.0, sway=0.009),
    Activity("walk", 1.00, vertical=0.26, forward=0.15, impact=0.45, swing=0.45, lean=2),
    Activity("stairsup", 0.87, vertical=0.23, forward=0.19, impact=0.30, swing=0.65, lean=12),
    Activity("stairsdown", 1.10, vertical=0.40, forward=0.17, impact=0.65, swing=0.55, lean=-2),
)


@dataclass(frozen=True)
class Phone:
    """A kind of phone: readings a second, noise and step between two values.

    Noise (a deviation) and step are in m/s2.
    """

    model: str
    rate_hz: float
    noise: float
    step: float


PHONES = (
    Phone("nexus4", 200.0, 0.03, 0.0012),
    Phone("s3", 150.0, 0.04, 0.0096),
    Phone("s3mini", 100.0, 0.06, 0.0383),
    Phone("samsungold", 50.0, 0.09, 0.1532),
)


@dataclass(frozen=True)
class Device:
    """One phone, with the errors and the place on the body that it keeps."""

    name: str
    phone: Phone
    gain: NDArray[np.float64]
    offset: NDArray[np.float64]
    place: Rotation


def write_hhar(
    path: Path,
    *,
    people: int = 9,
    devices: int = 8,
    seconds: float = 60.0,
    seed: int = 0,
    names: bool = True,
    report: Report = silent,
) -> int:
    """Write the file; the number of its rows. Equal arguments give equal bytes on one machine.

    Each of `people` (a, b, ...) does the six activities and `null`, `BOUTS` times `seconds` each,
    with `devices` phones, two of a kind. `names` writes the line of names. Raises DataError for
    numbers that cannot be.
    """
    if not (1 <= people <= 26 and 1 <= devices <= 2 * len(PHONES) and 1.0 <= seconds <= 3600.0):
        raise DataError(
            f"expected 1 to 26 people, 1 to {2 * len(PHONES)} devices and 1 to 3600 seconds, got"
            f" {people}, {devices} and {seconds:g}; choose others"
        )
    owned = [
        _device(number, np.random.Generator(np.random.Philox([seed, 1, number])))
        for number in range(devices)
    ]
    rows = 0
    with path.open("w", encoding="utf-8", newline="") as stream:
        if names:
            stream.write(FIRST_LINE)
        for number in range(people):
            random = np.random.Generator(np.random.Philox([seed, 0, number]))
            for lines in _recordings("abcdefghijklmnopqrstuvwxyz"[number], owned, seconds, random):
                stream.writelines(lines)
                rows += len(lines)
            report("writing", number + 1, people)
    return rows


def _device(number: int, random: np.random.Generator) -> Device:
    phone = PHONES[number // 2 % len(PHONES)]
    return Device(
        name=f"{phone.model}_{number % 2 + 1}",
        phone=phone,
        gain=random.normal(1, 0.02, size=3),
        offset=random.normal(0, 0.2, size=3),
        place=Rotation.from_rotvec(np.radians(random.normal(0, (35, 6, 6)))),
    )


def _recordings(
    user: str, devices: list[Device], seconds: float, random: np.random.Generator
) -> Iterator[list[str]]:
    """Rows of one person, a device after the other."""
    person = person_of(random, ACTIVITIES)
    begin_ms = FIRST_MS + 86_400_000 * (ord(user) - ord("a"))
    bouts = [
        (name, *_bout(person, name, seconds, random))
        for _ in range(BOUTS)
        for name in _order(random)
    ]
    for device in devices:
        index = 0
        for place, (name, acceleration, sitting) in enumerate(bouts):
            at_ms = begin_ms + place * (1000.0 * seconds + PAUSE_MS)
            lines = list(_rows(user, device, name, acceleration, sitting, at_ms, index, random))
            index += len(lines)
            yield lines


def _order(random: np.random.Generator) -> list[str]:
    names = [*(activity.name for activity in ACTIVITIES), NULL]
    return [names[place] for place in random.permutation(len(names))]


def _bout(
    person: Person, name: str, seconds: float, random: np.random.Generator
) -> tuple[Samples, Rotation]:
    """Return acceleration in g with gravity, (steps, 3), at `MOVEMENT_HZ`.

    The second value is how the phones were put back.
    """
    steps = int(seconds * MOVEMENT_HZ)
    if name == NULL:
        pieces: list[Samples] = []
        while sum(map(len, pieces)) < steps:
            chosen = int(random.integers(len(ACTIVITIES)))
            pieces.append(
                _moving(person, chosen, int(random.uniform(*PIECE_SECONDS) * MOVEMENT_HZ), random)
            )
        moved = np.concatenate(pieces)[:steps]
    else:
        moved = _moving(
            person, [activity.name for activity in ACTIVITIES].index(name), steps, random
        )
    return moved, Rotation.from_rotvec(np.radians(random.normal(0, 6, size=3)))


def _moving(person: Person, number: int, steps: int, random: np.random.Generator) -> Samples:
    acceleration, _ = movement(person, ACTIVITIES[number], random, steps, MOVEMENT_HZ)
    acceleration[:, 0] += 1.0
    trunk = Rotation.from_euler("y", person.leans[number] + random.normal(0, 5), degrees=True)
    turned: Samples = (person.phone * trunk).apply(acceleration)
    return turned


def _rows(
    user: str,
    device: Device,
    name: str,
    acceleration: Samples,
    sitting: Rotation,
    at_ms: float,
    first: int,
    random: np.random.Generator,
) -> Iterator[str]:
    phone = device.phone
    count = int(len(acceleration) / MOVEMENT_HZ * phone.rate_hz)
    seconds = np.sort(
        np.arange(count) / phone.rate_hz + random.normal(0, 0.05 / phone.rate_hz, size=count)
    )
    here = (sitting * device.place).apply(acceleration) * STANDARD_GRAVITY
    grid = np.arange(len(here)) / MOVEMENT_HZ
    felt = np.stack([np.interp(seconds, grid, here[:, axis]) for axis in range(3)], axis=1)
    read = felt * device.gain + device.offset + random.normal(0, phone.noise, size=felt.shape)
    values = np.round(read / phone.step) * phone.step
    creation_ns = (at_ms * 1e6 + seconds * 1e9).astype(np.int64)
    arrival_ms = (at_ms + seconds * 1e3 + random.exponential(2.0, size=count)).astype(np.int64)
    arrival_ms = np.maximum.accumulate(arrival_ms)
    words = f"{user},{phone.model},{device.name},{name}\n"
    for row in range(count):
        x, y, z = values[row].tolist()
        yield f"{first + row},{arrival_ms[row]},{creation_ns[row]},{x:.8g},{y:.8g},{z:.8g},{words}"


def main() -> int:
    """Write a file."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.synthetic_hhar", description=__doc__
    )
    parser.add_argument("file", type=Path, help="where to write, such as Phones_accelerometer.csv")
    parser.add_argument("--people", type=int, default=9)
    parser.add_argument("--devices", type=int, default=8)
    parser.add_argument(
        "--seconds", type=float, default=60.0, help=f"of a bout; each activity has {BOUTS} a person"
    )
    parser.add_argument("--seed", type=int, default=0)
    flags = parser.parse_args()
    try:
        rows = write_hhar(
            flags.file,
            people=flags.people,
            devices=flags.devices,
            seconds=flags.seconds,
            seed=flags.seed,
        )
    except (DataError, OSError) as problem:
        say(problem, error=True)
        return int(getattr(problem, "exit_code", 1))
    say(f"wrote {flags.file}: {rows:,} invented readings")
    return 0


if __name__ == "__main__":
    sys.exit(main())
