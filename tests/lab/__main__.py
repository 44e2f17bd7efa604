"""`python -m tests.lab VERB`: the lab by hand."""

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.lab import cgroups, network, requirements
from tests.lab.commands import LabError, run
from tests.lab.image import image
from tests.lab.lab import MOST_NODES, Lab, remove
from tests.lab.node import LabNode
from tests.lab.oddities import Oddity
from tests.lab.places import Places
from tests.lab.seed import seed, seed_from

Act = Callable[[argparse.Namespace], int | None]


def main() -> int:
    arguments = _parser().parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # cleans up like Ctrl-C
    try:
        return int(arguments.act(arguments) or 0)
    except LabError as error:
        print(f"lab: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


_ONE: dict[str, Any] = {"nargs": 1, "metavar": "node"}
_SOME: dict[str, Any] = {"nargs": "+", "metavar": "node"}
_ANY: dict[str, Any] = {"nargs": "*", "metavar": "node", "help": "all if none is named"}
_COMMAND: dict[str, Any] = {"nargs": argparse.REMAINDER, "metavar": "command"}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.lab", description="An emulated Raspberry Pi cluster."
    )
    verbs = parser.add_subparsers(required=True, metavar="VERB")
    for act, (text, values) in _verbs().items():
        verb = verbs.add_parser(act.__name__.lstrip("_"), help=text)
        verb.set_defaults(act=act)
        for value, options in values.items():
            verb.add_argument(value, **options)
        if act is _up:
            for oddity in Oddity:
                verb.add_argument(f"--{oddity.value}", action="append", default=[], metavar="NODE")
    return parser


def _verbs() -> dict[Act, tuple[str, dict[str, dict[str, Any]]]]:
    """What each verb is for, and its arguments."""
    outsider = f"run a command at {network.OUTSIDER_ADDRESS}, which is no node's"
    quota = {"type": _percent, "help": "CPU of each node, percent of a core or max"}
    seed = {"action": "append", "default": [], "metavar": "KEY:NODE,NODE"}
    count = {"nargs": "?", "type": int, "default": MOST_NODES}
    of_up: dict[str, dict[str, Any]] = {
        "count": count,
        "--quota": quota,
        "--seed": seed | {"help": "environments, see seed"},
    }
    percent = {"value": {"type": _percent}, "node": _ANY}
    mbits = {"value": {"type": float}, "node": _ANY}
    there = {"node": _ONE, "words": _COMMAND}
    cable = {"node": _ONE, "value": {"choices": ("up", "down")}}
    return {
        _prepare: ("install what a lab needs and build the image; say whether a lab can run", {}),
        _image: ("build the root image if it is not cached, and print its path", {}),
        _up: ("bring up nodes rpi01, rpi02 ...", of_up),
        _down: ("end the lab", {}),
        _status: ("one line for each node", {}),
        _shape: ("limit cables, Mbit/s both ways, until a boot", mbits),
        _quota: ("limit CPUs: percent of a core, or max", percent),
        _memory: ("limit a node's memory: 900M, 1G, max", {"node": _ONE, "value": {"type": _size}}),
        _link: ("pull a node's cable, or put it back", cable),
        _crash: ("pull a node's plug", {"node": _SOME}),
        _boot: ("switch a node on again, and wait until its sshd answers", {"node": _SOME}),
        _exec: ("run a command on a node as root, not over the network", there),
        _ssh: ("log in to a node as user pi, or run a command there", there),
        _outsider: (outsider, {"words": _COMMAND}),
        _snapshot: ("units, and files that differ from the image", {"node": _ONE}),
        _seed: (
            "keep the environment that a node has installed, for `up --seed`",
            {"node": _ONE, "key": {}},
        ),
        _apart: (
            "run a command in a network namespace for another lab",
            {"lab": {}, "words": _COMMAND},
        ),
    }


def _prepare(_: argparse.Namespace) -> None:
    requirements.install()
    if reason := requirements.why_not():
        print(f"no lab here, its tests are skipped: {reason}")
    else:
        image()


def _image(_: argparse.Namespace) -> None:
    requirements.check()
    print(image())


def _up(arguments: argparse.Namespace) -> None:
    wrong = {
        node: oddity
        for oddity in Oddity
        for node in getattr(arguments, oddity.value.replace("-", "_"))
    }
    seeds: dict[str, Path] = {}
    for given in arguments.seed:
        key, _, nodes = given.partition(":")
        seeds.update(dict.fromkeys(nodes.split(","), seed(key)))
    requirements.check()
    image()
    began = time.monotonic()
    lab = Lab.up(arguments.count, oddities_of=wrong, seeds=seeds)
    for node in lab.nodes.values():
        node.limit_cpu(arguments.quota)
    print(
        f"{len(lab.nodes)} nodes up in {time.monotonic() - began:.1f} s: ssh -F {lab.ssh_config}"
        " rpi01"
    )


def _down(_: argparse.Namespace) -> None:
    began = time.monotonic()
    remove(Places.of())
    print(f"down in {time.monotonic() - began:.1f} s")


def _status(_: argparse.Namespace) -> None:
    lab = Lab.attach()
    for node in lab.nodes.values():
        if not node.running:
            state = "off"
        elif node.reachable():
            state = "up"
        else:
            state = "silent"
        used = cgroups.usage(lab.places, node.name)
        print(
            f"{node.name} {node.address:14s} {state:7s} memory {used['memory_bytes'] >> 20} MiB"
            f" (peak {used['peak_bytes'] >> 20}, limit {used['limit_bytes'] >> 20}),"
            f" {used['processes']} processes, killed for memory {used['killed_for_memory']},"
            f" throttled {used['throttled']}"
        )


def _nodes(arguments: argparse.Namespace) -> list[LabNode]:
    lab = Lab.attach()
    return [lab.node(name) for name in arguments.node] or list(lab.nodes.values())


def _shape(arguments: argparse.Namespace) -> None:
    for node in _nodes(arguments):
        node.shape(arguments.value)


def _quota(arguments: argparse.Namespace) -> None:
    for node in _nodes(arguments):
        node.limit_cpu(arguments.value)


def _memory(arguments: argparse.Namespace) -> None:
    _nodes(arguments)[0].limit_memory(arguments.value)


def _link(arguments: argparse.Namespace) -> None:
    _nodes(arguments)[0].link(arguments.value == "up")


def _crash(arguments: argparse.Namespace) -> None:
    for node in _nodes(arguments):
        node.crash()


def _boot(arguments: argparse.Namespace) -> None:
    nodes = _nodes(arguments)
    for node in nodes:
        node.boot()
    for node in nodes:
        node.wait_until_reachable()


def _exec(arguments: argparse.Namespace) -> int:
    return subprocess.call(_nodes(arguments)[0].command(*arguments.words))


def _ssh(arguments: argparse.Namespace) -> int:
    lab = Lab.attach()
    return subprocess.call(["ssh", "-F", str(lab.ssh_config), *arguments.node, *arguments.words])


def _outsider(arguments: argparse.Namespace) -> int:
    return subprocess.call(Lab.attach().outsider_command(*arguments.words))


def _snapshot(arguments: argparse.Namespace) -> None:
    print("\n".join(_nodes(arguments)[0].snapshot().lines()))


def _seed(arguments: argparse.Namespace) -> None:
    print(seed_from(_nodes(arguments)[0], arguments.key))


def _apart(arguments: argparse.Namespace) -> int:
    """The namespace stays while it holds a lab: a later call with the same name finds the lab."""
    requirements.check()
    image()  # in there is no route out
    places = Places.of(arguments.lab)
    space = places.namespace(network.OPERATOR)
    if not Path("/run/netns", space).exists():
        run("ip", "netns", "add", space)
        run("ip", "-n", space, "link", "set", "lo", "up")
    environment = {**os.environ, "PSCLUSTER_LAB": places.lab}
    try:
        return subprocess.call(
            ["nsenter", f"--net=/run/netns/{space}", *arguments.words], env=environment
        )
    finally:
        if not places.registered.exists():
            run("ip", "netns", "delete", space, check=False)


def _percent(text: str) -> float | None:
    if text == "max":
        return None
    return float(text.rstrip("%"))


def _size(text: str) -> int | None:
    if text == "max":
        return None
    units = {"K": 10, "M": 20, "G": 30}
    with contextlib.suppress(ValueError):
        if text[-1:] in units:
            return int(text[:-1]) << units[text[-1]]
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r}: expected bytes, 900M, 1G or max")


if __name__ == "__main__":
    sys.exit(main())
