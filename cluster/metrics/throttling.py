"""Whether a Raspberry Pi's firmware holds the node back: a weak power supply, heat.

https://www.raspberrypi.com/documentation/computers/os.html#get_throttled
"""

import re
import shutil
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

from cluster.metrics.process_entries import CONDITIONS, SINCE

SYSFS = Path("/sys/devices/platform")
PATTERN = "soc*/soc*:firmware/get_throttled"
"""`soc/soc:firmware` up to the Pi 4; the Pi 5 has its SoC's address in both."""

VCIO = Path("/dev/vcio")
ANSWER_SECONDS = 1.0
STICKY_SHIFT = 16
ANSWER = re.compile(r"^(?:throttled=)?(?:0x)?([0-9a-fA-F]{1,8})\s*$")


def conditions(bits: int) -> dict[tuple[str, str], bool]:
    """What the firmware's word says, by condition and since when: bits 0 to 3 are now, 16 to 19 once since the boot."""
    return {
        (condition, since): bool(bits >> (shift + place) & 1)
        for since, shift in zip(SINCE, (0, STICKY_SHIFT), strict=True)
        for place, condition in enumerate(CONDITIONS)
    }


def parse(answer: str) -> int | None:
    """The word in `throttled=0x50005`, as vcgencmd prints it, or `50005`, as sysfs has it; None if it is neither."""
    found = ANSWER.match(answer)
    return int(found[1], 16) if found else None


class Throttling:
    """Asks the firmware, and keeps what once was for as long as this process lives.

    The kernel's own voltage monitor has the firmware forget it every two seconds (drivers/hwmon/raspberrypi-hwmon.c).
    """

    def __init__(self, ask: Callable[[], str | None]) -> None:
        self._ask = ask
        self._seen = 0

    def __call__(self) -> dict[tuple[str, str], bool]:
        """See `conditions`; nothing if the firmware does not answer."""
        answer = self._ask()
        bits = parse(answer) if answer is not None else None
        if bits is None:
            return {}
        self._seen |= bits | (bits & ((1 << STICKY_SHIFT) - 1)) << STICKY_SHIFT
        return conditions(bits | self._seen >> STICKY_SHIFT << STICKY_SHIFT)


def firmware(sysfs: Path = SYSFS, vcio: Path = VCIO) -> Throttling | None:
    """What asks this node's firmware, through the kernel or else through `vcgencmd`; None where there is none."""
    path = next(sysfs.glob(PATTERN), None)
    if path is not None:
        return Throttling(partial(_read, path))
    program = shutil.which("vcgencmd")
    if program is None or not vcio.exists():
        return None
    return Throttling(partial(_run, program))


def _read(path: Path) -> str | None:
    try:
        return path.read_text()
    except OSError:
        return None


def _run(program: str) -> str | None:
    try:
        return subprocess.run(
            [program, "get_throttled"], capture_output=True, text=True, timeout=ANSWER_SECONDS, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return None
