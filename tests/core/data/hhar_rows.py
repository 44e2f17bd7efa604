"""Small files in the format of HHAR."""

from collections.abc import Iterable, Sequence

from benchmarks.synthetic_hhar import FIRST_LINE

STEPS = 20
STRIDE = 8
CUT = {"window_steps": STEPS, "window_stride": STRIDE}
HEAD = FIRST_LINE.strip()
NAME = "Phones_accelerometer.csv"
Row = list[str]


def row(user: str, device: str, activity: str, ms: int, x: float = 0.5) -> Row:
    times = ["0", str(ms), str(ms * 10**6)]
    return [*times, f"{x:g}", "0.25", "9.8", user, device.split("_")[0], device, activity]


def stretch(user: str, device: str, activity: str, count: int, ms: int = 0) -> list[Row]:
    return [row(user, device, activity, ms + 5 * place, place) for place in range(count)]


def people(users: str = "abcde", count: int = 60) -> list[Row]:
    """Everybody does two activities with two devices."""
    pairs = [(user, device) for user in users for device in ("s3_1", "nexus4_2")]
    stretches = [stretch(*pair, activity, count) for pair in pairs for activity in ("sit", "walk")]
    return [one for rows in stretches for one in rows]


def text(rows: Iterable[Sequence[str]], head: str = HEAD) -> str:
    """What the file holds: the line of names, where `head` has one, and a line for each row."""
    lines = [*([head] if head else []), *map(",".join, rows)]
    return "".join(f"{line}\n" for line in lines)
