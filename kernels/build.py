"""Builds the library for x86_64 and aarch64 on any one machine, the same bytes each time.

`make kernels` runs this with the compiler of `kernels/requirements.txt`, PyPI's `ziglang`. It
writes `kernels/built/MACHINE/_kernels.so`, and `SHA256SUMS` with the sums of the libraries and of
the files that they are made of; with `--check` it compares instead. A build needs no TensorFlow: a
stub with the right name stands for its library, whose symbols the loader finds in the process that
loads ours.
"""

import argparse
import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
SOURCES = HERE / "native"
BUILT = HERE / "built"
LIBRARY = "_kernels.so"
FRAMEWORK = "libtensorflow_framework.so.2"
SUMS = BUILT / "SHA256SUMS"
GLIBC = "2.27"
"""TensorFlow's own wheels need this one (manylinux_2_27)."""
KINDS = {
    "x86_64": {
        "scalar": ["-mcpu=x86_64", "-DSCALAR"],
        "avx2": ["-mcpu=haswell"],
        "avx512": ["-mcpu=skylake_avx512", "-mprefer-vector-width=512"],
    },
    "aarch64": {"scalar": ["-DSCALAR"], "neon": []},
}
"""The kinds of processor of each machine, with their flags."""
SHARED = ("program", "library", "updates", "augment", "figures", "proof", "call", "recall")
FLAGS = (
    "-std=c++17",
    "-O3",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fPIC",
    "-fno-exceptions",
    "-fno-rtti",
    "-fvisibility=hidden",
    "-fno-sanitize=undefined",
    "-Wall",
    "-Wextra",
    "-Wno-unused-const-variable",
    "-Wno-unused-function",
    "-Werror",
)


class Builder:
    """Compiles for one machine into a folder of its own."""

    def __init__(self, machine: str, folder: Path) -> None:
        self._machine = machine
        self._folder = folder
        self._target = ["-target", f"{machine}-linux-gnu.{GLIBC}"]

    def _zig(self, *arguments: str | Path) -> None:
        subprocess.run([sys.executable, "-m", "ziglang", *arguments], check=True, cwd=self._folder)

    def _compiled(self, source: str, name: str, flags: Sequence[str] = ()) -> Path:
        compiled = self._folder / f"{name}.o"
        # A relative name, so that no folder of this machine gets into the file.
        sources = self._folder / "native"
        if not sources.exists():
            sources.symlink_to(SOURCES)
        self._zig("c++", *self._target, *FLAGS, *flags, "-c", f"native/{source}.cc", "-o", compiled)
        return compiled

    def objects(self) -> list[Path]:
        """Return the object files of everything but TensorFlow's operations."""
        kinds = [
            self._compiled("kind", kind, [*flags, f"-DKIND={kind}"])
            for kind, flags in KINDS[self._machine].items()
        ]
        return kinds + [self._compiled(name, name) for name in SHARED]

    def library(self, to: Path) -> None:
        """Link the library with TensorFlow's operations."""
        objects = [*self.objects(), self._compiled("tensorflow", "tensorflow")]
        stub = self._folder / FRAMEWORK
        (self._folder / "stub.c").write_text("", encoding="utf-8")
        self._zig(
            "cc", *self._target, "-shared", f"-Wl,-soname,{FRAMEWORK}", "stub.c", "-o", stub.name
        )
        linked = ["-Wl,-z,undefs", f"-Wl,-soname,{LIBRARY}", "-Wl,--no-as-needed", stub.name]
        linked += ["-Wl,--allow-shlib-undefined", "-lpthread", "-lm"]
        names = [compiled.name for compiled in objects]
        self._zig("cc", *self._target, "-shared", "-s", *names, *linked, "-o", to)

    def program(self, to: Path) -> None:
        """Link `check`, which runs cases from a file without TensorFlow."""
        names = [compiled.name for compiled in [*self.objects(), self._compiled("check", "check")]]
        self._zig("cc", *self._target, *names, "-lpthread", "-lm", "-o", to)


def build(machine: str, to: Path, *, program: bool = False) -> None:
    """Write the library of a machine, or with `program` the one that runs cases, to `to`.

    Raises subprocess.CalledProcessError where the compiler fails.
    """
    with tempfile.TemporaryDirectory() as folder:
        builder = Builder(machine, Path(folder))
        output = Path(folder) / "made"
        if program:
            builder.program(output)
        else:
            builder.library(output)
        to.parent.mkdir(parents=True, exist_ok=True)
        to.write_bytes(output.read_bytes())
        to.chmod(0o755)


def sources() -> list[Path]:
    """Return every file that the libraries' bytes follow from."""
    native = [file for file in SOURCES.iterdir() if file.suffix in (".cc", ".h")]
    return [*sorted(native), HERE / "build.py", HERE / "requirements.txt"]


def sums(built: Path) -> str:
    """Return the lines of SHA256SUMS, as `sha256sum --check` reads them in `kernels/built`."""
    libraries = [built / machine / LIBRARY for machine in sorted(KINDS)]
    lines = []
    for file, root in [(file, built) for file in libraries] + [(file, BUILT) for file in sources()]:
        name = Path(os.path.relpath(file, root)).as_posix()
        lines.append(f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {name}\n")
    return "".join(lines)


def main() -> None:
    """Builds for both machines, or shows that what is there is what a build makes."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="build elsewhere and compare")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        built = Path(folder) if options.check else BUILT
        for machine in sorted(KINDS):
            build(machine, built / machine / LIBRARY)
        if not options.check:
            SUMS.write_text(sums(built), encoding="utf-8")
        elif sums(built) != SUMS.read_text(encoding="utf-8"):
            sys.exit("kernels: a build makes other bytes than kernels/built: run `make kernels`")


if __name__ == "__main__":
    main()
