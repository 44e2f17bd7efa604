"""`python -m tests.lab_kernel VERB`: machines with kernels of their own, by hand."""

import subprocess
import sys
from argparse import Namespace

from tests.lab import verbs
from tests.lab.places import Places
from tests.lab.requirements import install, missing
from tests.lab_kernel import requirements
from tests.lab_kernel.kernel_lab import NAME, KernelLab
from tests.lab_kernel.seeded import seeded_disk


def _can_run() -> bool:
    if reason := requirements.why_not():
        print(f"no kernel lab here, skipped: {reason}")
    return not reason


def _prepare(_: Namespace) -> None:
    install(missing(requirements.PACKAGE_OF))
    if _can_run():
        print(seeded_disk())


def _apart(arguments: Namespace) -> int:
    if not _can_run():
        return 0
    return verbs.apart(Places.of(NAME), arguments.words)


def _prove(arguments: Namespace) -> int:
    _prepare(arguments)  # in the lab's namespace there is no route out
    if requirements.why_not():
        return 0
    code = verbs.apart(Places.of(NAME), [sys.executable, "-m", "tests.lab_kernel.prove"])
    return code or subprocess.call([sys.executable, "-m", "tests.lab_kernel.emulated"])


def _up(arguments: Namespace) -> None:
    lab = KernelLab.up(seeded_disk(), (arguments.memory,) * arguments.count)
    print(f"{len(lab.nodes)} machines up: ssh -F {lab.ssh_config} rpi01")


def _down(_: Namespace) -> None:
    KernelLab.attach().down()


def _crash(arguments: Namespace) -> None:
    lab = KernelLab.attach()
    for name in arguments.node:
        lab.node(name).crash()


def _boot(arguments: Namespace) -> None:
    lab = KernelLab.attach()
    for name in arguments.node:
        lab.node(name).boot()
        lab.node(name).wait_until_reachable()


def _ssh(arguments: Namespace) -> int:
    return subprocess.call(KernelLab.attach().ssh_command(arguments.node, *arguments.words))


if __name__ == "__main__":
    acts = (_prepare, _apart, _prove, _up, _down, _crash, _boot, _ssh)
    sys.exit(verbs.main("lab_kernel", acts))
