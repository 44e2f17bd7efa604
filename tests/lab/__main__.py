"""`python -m tests.lab VERB`: the lab by hand."""

import subprocess
import sys
import time
from argparse import Namespace

from tests.lab import cgroups, requirements, verbs
from tests.lab.environment import environment_seed
from tests.lab.image import image
from tests.lab.lab import Lab, remove
from tests.lab.node import LabNode
from tests.lab.oddities import Oddity
from tests.lab.places import Places


def _prepare(_: Namespace) -> None:
    requirements.install(requirements.wanted())
    if reason := requirements.why_not():
        print(f"no lab here, its tests are skipped: {reason}")
    else:
        image()


def _up(arguments: Namespace) -> None:
    asked = vars(arguments)
    wrong = {node: oddity for oddity in Oddity for node in asked[oddity.value.replace("-", "_")]}
    requirements.check()
    seeds = {node: environment_seed() for node in arguments.seed}
    image()
    began = time.monotonic()
    lab = Lab.up(arguments.count, oddities_of=wrong, seeds=seeds)
    seconds = time.monotonic() - began
    print(f"{len(lab.nodes)} nodes up in {seconds:.1f} s: ssh -F {lab.ssh_config} rpi01")


def _down(_: Namespace) -> None:
    remove(Places.of())


def _status(_: Namespace) -> None:
    lab = Lab.attach()
    for node in lab.nodes.values():
        if not node.running:
            state = "off"
        elif node.reachable():
            state = "up"
        else:
            state = "silent"
        used = cgroups.usage(lab.places, node.name)
        print(node.name, node.address, state, *(f"{name} {used[name]}" for name in used))


def _nodes(arguments: Namespace) -> list[LabNode]:
    lab = Lab.attach()
    return [lab.node(name) for name in arguments.node] or list(lab.nodes.values())


def _shape(arguments: Namespace) -> None:
    for node in _nodes(arguments):
        node.shape(arguments.value)


def _quota(arguments: Namespace) -> None:
    for node in _nodes(arguments):
        node.limit_cpu(arguments.value)


def _memory(arguments: Namespace) -> None:
    for node in _nodes(arguments):
        node.limit_memory(arguments.value)


def _link(arguments: Namespace) -> None:
    _nodes(arguments)[0].link(arguments.value == "up")


def _crash(arguments: Namespace) -> None:
    for node in _nodes(arguments):
        node.crash()


def _boot(arguments: Namespace) -> None:
    nodes = _nodes(arguments)
    for node in nodes:
        node.boot()
    for node in nodes:
        node.wait_until_reachable()


def _exec(arguments: Namespace) -> int:
    return subprocess.call(_nodes(arguments)[0].command(*arguments.words))


def _ssh(arguments: Namespace) -> int:
    return subprocess.call(Lab.attach().ssh_command(*arguments.node, *arguments.words))


def _outsider(arguments: Namespace) -> int:
    return subprocess.call(Lab.attach().outsider_command(*arguments.words))


def _apart(arguments: Namespace) -> int:
    requirements.check()
    image()  # in there is no route out
    return verbs.apart(Places.of(arguments.lab), arguments.words)


if __name__ == "__main__":
    acts = (_prepare, _up, _down, _status, _shape, _quota, _memory, _link, _crash, _boot, _exec)
    sys.exit(verbs.main("lab", (*acts, _ssh, _outsider, _apart)))
