"""The native library's bits beside those of other builds: `python -m tools.compare_kernels VERB`.

`sanitized` is GCC's build under the address and undefined-behaviour sanitizers, with every kind of
this processor; `emulated` is the build for aarch64 under qemu. Both run `kernels/native/check.cc`.
"""

import argparse
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from kernels.build import FLAGS, KINDS, SHARED, SOURCES
from kernels.library import loaded
from tests.kernels.calls import Called, damaged, sound
from tests.kernels.networks import kinds_of_this_processor

ROOT = Path(__file__).resolve().parents[1]
Given = TypeVar("Given")
Made = TypeVar("Made")
SANITIZERS = (
    "-O1",
    "-g1",
    "-fsanitize=address,undefined,float-cast-overflow",
    "-fno-sanitize-recover=all",
)
OPTIONS = {
    # Too much memory is refused, and what is read before it is written changes the digest.
    "ASAN_OPTIONS": "allocator_may_return_null=1:max_malloc_fill_size=1000000000",
    "UBSAN_OPTIONS": "print_stacktrace=1",
}
LIBRARIES = os.environ.get("QEMU_LD_PREFIX", "/usr/aarch64-linux-gnu")
EMULATED = ("qemu-aarch64-static", f"{LIBRARIES}/lib/ld-linux-aarch64.so.1")
BUILD = """
import sys, pathlib, kernels.build
kernels.build.build("aarch64", pathlib.Path(sys.argv[1]), program=True)
"""


class OtherBitsError(Exception):
    """A build computes other bits or refuses other programs, or a sanitizer ended it."""


@dataclass(frozen=True)
class Run:
    """Calls by one kind of processor and so many threads."""

    kind: str
    threads: int
    calls: Sequence[Called]

    @property
    def expected(self) -> bytes:
        """What the committed library has for `check` to write."""
        return loaded().proof().tobytes() + b"".join(call.answer for call in self.calls)


def compare(command: Sequence[str | Path], run: Run, folder: Path) -> str:
    """Return a line with the digest of a run of `check`. Raises OtherBitsError."""
    name = f"{run.kind}, threads: {run.threads}"
    cases = folder / f"{name}.cases"
    cases.write_bytes(b"".join(call.record for call in run.calls))
    done = subprocess.run(
        [*command, cases, run.kind, str(run.threads)],
        capture_output=True,
        env=os.environ | OPTIONS,
    )
    if done.returncode:
        said = done.stderr.decode(errors="replace")
        raise OtherBitsError(f"{name}: ended with {done.returncode}: {said}")
    digests = [hashlib.sha256(bits).hexdigest() for bits in (done.stdout, run.expected)]
    if digests[0] != digests[1]:
        raise OtherBitsError(f"{name}: SHA-256 {digests[0]}, that of kernels/built is {digests[1]}")
    return f"{name}: {len(run.calls)} calls, SHA-256 {digests[0][:16]}, as kernels/built"


def sanitized(folder: Path) -> Iterable[str]:
    """Compare every kind of this processor with one to five threads."""
    program = compiled(folder)
    few = list(sound())
    many = [*few, *damaged(50)]
    runs = [Run(kind, 1, many) for kind in kinds_of_this_processor()]
    runs += [Run(run.kind, threads, few) for run in runs for threads in range(2, 6)]
    return both(lambda run: compare([program], run, folder), runs)


def compiled(folder: Path) -> Path:
    """Compile `check` with GCC and the sanitizers; return the program."""
    flags = [flag for flag in FLAGS if not flag.startswith(("-O", "-W", "-fno-sanitize"))]
    # GCC has other names of the same processors.
    kinds = {
        kind: [flag.replace("-mcpu=", "-march=").replace("_", "-") for flag in own]
        for kind, own in KINDS[platform.machine()].items()
    }

    def made(name: str) -> Path:
        words: list[str | Path] = [SOURCES / f"{name}.cc"]
        if name in kinds:
            words = [SOURCES / "kind.cc", f"-DKIND={name}", *kinds[name]]
        to = folder / f"{name}.o"
        subprocess.run(["g++", *flags, *SANITIZERS, "-c", *words, "-o", to], check=True)
        return to

    objects = both(made, [*kinds, *SHARED, "check"])
    program = folder / "check"
    subprocess.run(["g++", *SANITIZERS, *objects, "-lpthread", "-o", program], check=True)
    return program


def emulated(folder: Path) -> Iterable[str]:
    """Compare NEON's and scalar code for aarch64."""
    program = folder / "check"
    subprocess.run([ROOT / ".cache/zig/bin/python", "-c", BUILD, program], cwd=ROOT, check=True)
    calls = [*sound(), *damaged(10)]
    runs = [Run(kind, threads, calls) for kind in KINDS["aarch64"] for threads in (1, 3)]
    return both(lambda run: compare([EMULATED[0], "-L", LIBRARIES, program], run, folder), runs)


def both(made: Callable[[Given], Made], given: Iterable[Given]) -> Sequence[Made]:
    """Work on two at a time, as CI's machines have two cores."""
    with ThreadPoolExecutor(2) as workers:
        return list(workers.map(made, given))


VERBS: dict[str, tuple[Callable[[Path], Iterable[str]], Sequence[str], str]] = {
    "sanitized": (sanitized, ["g++"], "g++"),
    "emulated": (emulated, EMULATED, "qemu-user-static libc6-arm64-cross"),
}
"""What compares, with what it starts and Debian's packages of that."""


def main(words: Sequence[str] | None = None) -> None:
    """Compare, and end with one line of the reason where that fails."""
    parser = argparse.ArgumentParser(prog="python -m tools.compare_kernels", description=__doc__)
    parser.add_argument("verb", choices=VERBS)
    verb = parser.parse_args(words).verb
    comparison, needs, packages = VERBS[verb]
    for need in needs:
        if shutil.which(need) is None:
            sys.exit(f"kernels: {verb}: no {need}: install it (Debian: apt install {packages})")
    with tempfile.TemporaryDirectory() as folder:
        try:
            print(*comparison(Path(folder)), sep="\n")
        except (OtherBitsError, subprocess.CalledProcessError) as problem:
            sys.exit(f"kernels: {verb}: {problem}")


if __name__ == "__main__":
    main()
