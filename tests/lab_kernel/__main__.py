"""`python -m tests.lab_kernel VERB`: machines with kernels of their own, by hand."""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.lab.commands import LabError, run
from tests.lab.places import Places
from tests.lab_kernel import requirements
from tests.lab_kernel.kernel_lab import NAME, KernelLab
from tests.lab_kernel.machine import MEMORY_MIB

Act = Callable[[argparse.Namespace], int | None]
SPACE = f"{NAME}-operator"


def main() -> int:
    arguments = _parser().parse_args()
    try:
        return int(arguments.act(arguments) or 0)
    except LabError as error:
        print(f"kernel lab: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.lab_kernel", description=__doc__)
    verbs = parser.add_subparsers(required=True, metavar="VERB")

    def verb(name: str, act: Act, text: str, **values: dict[str, Any]) -> argparse.ArgumentParser:
        added = verbs.add_parser(name, help=text)
        added.set_defaults(act=act)
        for value, options in values.items():
            added.add_argument(value, **options)
        return added

    some: dict[str, Any] = {"nargs": "+", "metavar": "machine"}
    rest: dict[str, Any] = {"nargs": argparse.REMAINDER, "metavar": "command"}
    verb(
        "prepare",
        _prepare,
        "install the packages and build the disk; report whether a machine can run",
    )
    verb("apart", _apart, "run a command in the lab's network namespace", words=rest)
    verb("prove", _prove, "deploy onto three machines and check them: `make lab-kernel`")
    up = verb(
        "up",
        _up,
        "bring up machines rpi01, rpi02 ...",
        count={"nargs": "?", "type": int, "default": 3},
    )
    up.add_argument("--memory", type=int, default=MEMORY_MIB, help="MiB of each")
    verb("down", _down, "end the lab")
    verb("crash", _crash, "pull machines' plugs", machine=some)
    verb("boot", _boot, "switch machines on again, and wait until their sshd answers", machine=some)
    verb(
        "ssh",
        _ssh,
        "log in to a machine as user pi, or run a command there",
        machine={},
        words=rest,
    )
    return parser


def _prepare(_: argparse.Namespace) -> None:
    from tests.lab_kernel.seeded import seeded_disk

    requirements.install()
    if reason := requirements.why_not():
        print(f"no kernel lab here, its tests are skipped: {reason}")
    else:
        print(seeded_disk())


def _apart(arguments: argparse.Namespace) -> int:
    """The namespace stays as long as it holds a lab, so that a later call finds the lab again."""
    if reason := requirements.why_not():
        print(f"no kernel lab here, skipped: {reason}")
        return 0
    if not Path("/run/netns", SPACE).exists():
        run("ip", "netns", "add", SPACE)
        run("ip", "-n", SPACE, "link", "set", "lo", "up")
    try:
        return subprocess.call(
            ["nsenter", f"--net=/run/netns/{SPACE}", *arguments.words], env=dict(os.environ)
        )
    finally:
        if not Places.of(NAME).run.exists():
            run("ip", "netns", "delete", SPACE, check=False)


def _prove(_: argparse.Namespace) -> int:
    requirements.install()
    if reason := requirements.why_not():
        print(f"no kernel lab here, skipped: {reason}")
        return 0
    _prepare(argparse.Namespace())  # in the lab's namespace there is no route out
    code = _apart(argparse.Namespace(words=[sys.executable, "-m", "tests.lab_kernel.prove"]))
    return code or subprocess.call([sys.executable, "-m", "tests.lab_kernel.emulated"])


def _up(arguments: argparse.Namespace) -> None:
    from tests.lab_kernel.seeded import seeded_disk

    disk = seeded_disk()
    began = time.monotonic()
    lab = KernelLab.up(disk, (arguments.memory,) * arguments.count)
    print(
        f"{len(lab.machines)} machines up in {time.monotonic() - began:.1f} s: ssh -F"
        f" {lab.ssh_config} rpi01"
    )


def _down(_: argparse.Namespace) -> None:
    KernelLab.attach().down()


def _crash(arguments: argparse.Namespace) -> None:
    lab = KernelLab.attach()
    for name in arguments.machine:
        lab.machine(name).crash()


def _boot(arguments: argparse.Namespace) -> None:
    lab = KernelLab.attach()
    for name in arguments.machine:
        lab.machine(name).boot()
        lab.machine(name).wait_until_reachable()


def _ssh(arguments: argparse.Namespace) -> int:
    return subprocess.call(
        ["ssh", "-F", str(KernelLab.attach().ssh_config), arguments.machine, *arguments.words]
    )


if __name__ == "__main__":
    sys.exit(main())
