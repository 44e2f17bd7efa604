"""Reports in one line whether the Python that runs this file suits the project.

`make .venv` tries every Python it finds, some of them older than the project: this file keeps to
Python 3.7's syntax. It prints `VERSION EXECUTABLE` and exits 0 for a suitable one, else it prints
the problem and exits with its code.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import sys
import sysconfig

USABLE = 0
NO_VENV = 3
WRONG_MACHINE = 4
WRONG_VERSION = 5

OLDEST = (3, 11)
NEWEST = (3, 13)
MACHINES = ("aarch64", "x86_64")


def verdict(
    *,
    version: tuple[int, int],
    implementation: str,
    system: str,
    machine: str,
    bits: int,
    libc: str,
    free_threaded: bool,
    has_ensurepip: bool,
) -> tuple[int, str]:
    """The code and, unless it is USABLE, problem and remedy.

    A wrong machine comes before a wrong version.
    """
    if system != "linux":
        return (
            WRONG_MACHINE,
            f"pscluster runs on Linux, this is {system}: use a Linux machine, container or VM",
        )
    if bits != 64:
        return (
            WRONG_MACHINE,
            (
                "a 32-bit Python, and TensorFlow has 64-bit wheels only: "
                "install the 64-bit system (Raspberry Pi OS 64-bit; a Pi 3 or later runs it)"
            ),
        )
    if machine not in MACHINES:
        return (
            WRONG_MACHINE,
            f"TensorFlow has no wheel for {machine}: use a machine with {' or '.join(MACHINES)}",
        )
    if libc == "musl":
        return (
            WRONG_MACHINE,
            (
                "TensorFlow has no wheel for musl libc (Alpine): use a distribution with glibc"
                " (Debian)"
            ),
        )
    name = f"Python {version[0]}.{version[1]}"
    remedy = "install Python 3.11, 3.12 or 3.13"
    if implementation != "cpython":
        return (
            WRONG_VERSION,
            f"{name} of {implementation}, and TensorFlow's wheels are for CPython: {remedy}",
        )
    if version < OLDEST:
        return WRONG_VERSION, f"{name}, too old: {remedy}"
    if version > NEWEST:
        return WRONG_VERSION, f"{name}, too new, TensorFlow has no wheel for it: {remedy}"
    if free_threaded:
        return (
            WRONG_VERSION,
            f"{name} without the GIL, TensorFlow has no wheel for it: {remedy} with the GIL",
        )
    if not has_ensurepip:
        return (
            NO_VENV,
            (
                f"{name} cannot make environments: sudo apt install"
                f" python{version[0]}.{version[1]}-venv"
            ),
        )
    return USABLE, ""


def main() -> int:
    """Judge the running interpreter."""
    code, reason = verdict(
        version=sys.version_info[:2],
        implementation=sys.implementation.name,
        system=sys.platform,
        machine=platform.machine(),
        bits=64 if sys.maxsize > 2**32 else 32,
        libc="musl" if "musl" in str(sysconfig.get_config_var("HOST_GNU_TYPE")) else "glibc",
        free_threaded=bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
        has_ensurepip=importlib.util.find_spec("ensurepip") is not None,
    )
    # Inside an environment the Python that made it counts: an environment made from .venv would die
    # with it. One and the same Python goes by several names (python3, python3.11), and by another
    # one seen from inside.
    executable = os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)
    print(reason or f"{platform.python_version()} {executable}")
    return code


if __name__ == "__main__":
    sys.exit(main())
