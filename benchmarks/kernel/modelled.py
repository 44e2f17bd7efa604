"""Cycles of the built library's loops on the processors of Pis, in LLVM's models of these.

`python -m benchmarks.kernel.modelled` measures nothing: `llvm-mca` counts how long a processor's
pipes would take for the instructions of a loop, as if every load hit the first cache. A turn is 24
multiply-adds, those of six rows with four vectors. Of the loops of one sort the slowest counts.
"""

import argparse
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.report import publish
from kernels.build import BUILT, LIBRARY

PROCESSORS = ("cortex-a53", "cortex-a55", "cortex-a72", "neoverse-n1")
"""Of a Pi 3, none, a Pi 4, and the sibling of a Pi 5's: LLVM has no model of the Cortex-A76."""
TURN = 24
TIMES = 200
PROGRAMS = ("llvm-objdump-19", "llvm-mca-19")
PACKAGE = "llvm-19"
LABEL = ".Lturn"
_INSTRUCTION = re.compile(r"^\s*([0-9a-f]+):\s+[0-9a-f]{8}\s+(.*?)(?:\s*<.*>)?$", re.MULTILINE)
_JUMP = re.compile(r"(b\.\w+|cbn?z|tbn?z)\t.*?0x([0-9a-f]+)$")
_LANE = re.compile(r"fmla\t.*\.s\[\d\]$")


@dataclass(frozen=True)
class Loop:
    """The instructions from a jump's target to the jump."""

    instructions: Sequence[str]

    @property
    def multiplications(self) -> int:
        """How many vectors are multiplied by a lane of another and added."""
        return sum(bool(_LANE.match(line)) for line in self.instructions)

    def count(self, prefix: str) -> int:
        """Return how many instructions begin so."""
        return sum(line.startswith(prefix) for line in self.instructions)

    @property
    def assembly(self) -> str:
        """The loop as an assembler reads it."""
        *body, jump = self.instructions
        return "\n".join([f"{LABEL}:", *body, re.sub(r"0x[0-9a-f]+$", LABEL, jump), ""])


SORTS: dict[str, Callable[[Loop], bool]] = {
    "products": lambda loop: loop.multiplications == 4 * TURN,
    "weights' gradient": lambda loop: loop.multiplications == TURN and loop.count("ld") <= 4,
}
"""Four steps of six rows that lie apart; one step of six neighbours."""


def loops(listing: str) -> Iterator[Loop]:
    """Yield the loops of a disassembled library that neither jump nor store within."""
    lines = [(int(place, 16), text) for place, text in _INSTRUCTION.findall(listing)]
    numbers = {place: number for number, (place, _) in enumerate(lines)}
    for number, (_, text) in enumerate(lines):
        jump = _JUMP.match(text)
        begin = numbers.get(int(jump[2], 16), number) if jump else number
        loop = Loop([line for _, line in lines[begin : number + 1]])
        if begin < number and not loop.count("st") and loop.count("b.") + loop.count("cb") <= 1:
            yield loop


def cycles(loop: Loop, processor: str) -> float:
    """Return the cycles of a turn in LLVM's model of a processor."""
    command = [PROGRAMS[1], "-mtriple=aarch64", f"-mcpu={processor}", f"-iterations={TIMES}"]
    printed = subprocess.run(
        command, input=loop.assembly, capture_output=True, text=True, check=True
    ).stdout
    (total,) = re.findall(r"^Total Cycles: +(\d+)$", printed, re.MULTILINE)
    return float(f"{int(total) / TIMES / loop.multiplications * TURN:.3g}")


def main() -> None:
    """Print the object; end with one line where a program or a sort of loops is missing."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.kernel.modelled", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--json", action="store_true", help="print the object on one line")
    options = parser.parse_args(namespace=argparse.Namespace(size="full"))
    for program in PROGRAMS:
        if shutil.which(program) is None:
            sys.exit(f"modelled: no {program}: install it (Debian: apt install {PACKAGE})")
    library = BUILT / "aarch64" / LIBRARY
    listing = subprocess.run(
        [PROGRAMS[0], "--disassemble", library], capture_output=True, text=True, check=True
    ).stdout
    rows: list[dict[str, Any]] = []
    for sort, belongs in SORTS.items():
        chosen = [loop for loop in loops(listing) if belongs(loop)]
        if not chosen:
            sys.exit(f"modelled: {library} has no loop of the {sort}: its compiler made others")
        slowest = {name: max(cycles(loop, name) for loop in chosen) for name in PROCESSORS}
        rows.append({"loop": sort, "loops": len(chosen), **slowest})
    summary = {name: max(row[name] for row in rows) for name in PROCESSORS}
    publish("kernel.modelled", rows, summary, options)


if __name__ == "__main__":
    main()
