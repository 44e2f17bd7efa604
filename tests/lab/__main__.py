"""`python -m tests.lab VERB`: the lab by hand."""

import argparse
import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path

from tests.lab import cgroups, lab as labs, network, requirements
from tests.lab.commands import LabError, run
from tests.lab.image import image
from tests.lab.lab import MOST_NODES, Lab
from tests.lab.oddities import Oddity
from tests.lab.places import Places


def main() -> int:
    arguments = _parser().parse_args()
    try:
        return int(arguments.act(arguments) or 0)
    except LabError as error:
        print(f"lab: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.lab", description="An emulated Raspberry Pi cluster.")
    verbs = parser.add_subparsers(required=True, metavar="VERB")

    verb = verbs.add_parser("up", help="bring up nodes rpi01, rpi02 ... (16)")
    verb.add_argument("count", nargs="?", type=int, default=MOST_NODES)
    verb.add_argument("--quota", type=_percent, default=None, help="CPU of each node, percent of a core or max")
    verb.add_argument("--seed", action="append", default=[], metavar="FOLDER:NODE,NODE", help="read-only layer")
    for oddity in Oddity:
        verb.add_argument(f"--{oddity.value}", action="append", default=[], metavar="NODE")
    verb.set_defaults(act=_up)

    for name, act, text in (
        ("install", _install, "install the Debian packages that a lab needs here"),
        ("image", _image, "build the root image if it is not cached, and print where it is"),
        ("down", _down, "end the lab"),
        ("status", _status, "one line for each node"),
    ):
        verbs.add_parser(name, help=text).set_defaults(act=act)

    verb = verbs.add_parser("shape", help="limit cables, both ways")
    verb.add_argument("mbit", type=float)
    verb.add_argument("node", nargs="*")
    verb.set_defaults(act=lambda a: [node.shape(a.mbit) for node in _nodes(a)] and 0)

    verb = verbs.add_parser("quota", help="limit CPUs: percent of a core, or max")
    verb.add_argument("percent", type=_percent)
    verb.add_argument("node", nargs="*")
    verb.set_defaults(act=lambda a: [node.limit_cpu(a.percent) for node in _nodes(a)] and 0)

    verb = verbs.add_parser("memory", help="limit a node's memory: 900M, 1G, max")
    verb.add_argument("node", nargs=1)
    verb.add_argument("limit", type=_size)
    verb.set_defaults(act=lambda a: [node.limit_memory(a.limit) for node in _nodes(a)] and 0)

    verb = verbs.add_parser("crash", help="pull a node's plug")
    verb.add_argument("node", nargs="+")
    verb.set_defaults(act=lambda a: [node.crash() for node in _nodes(a)] and 0)

    verb = verbs.add_parser("boot", help="switch a node on again, and wait until it greets")
    verb.add_argument("node", nargs="+")
    verb.set_defaults(act=_boot)

    verb = verbs.add_parser("link", help="pull a node's network cable, or put it back")
    verb.add_argument("node", nargs=1)
    verb.add_argument("state", choices=("up", "down"))
    verb.set_defaults(act=lambda a: [node.link(a.state == "up") for node in _nodes(a)] and 0)

    verb = verbs.add_parser("snapshot", help="units and files that are not as on the image")
    verb.add_argument("node", nargs=1)
    verb.set_defaults(act=lambda a: print("\n".join(_nodes(a)[0].snapshot().lines())))

    verb = verbs.add_parser("exec", help="run a command on a node as root, not over the network")
    verb.add_argument("node", nargs=1)
    verb.add_argument("words", nargs=argparse.REMAINDER)
    verb.set_defaults(act=lambda a: subprocess.call(_nodes(a)[0].command(*a.words)))

    verb = verbs.add_parser("ssh", help="log in to a node as user pi, or run a command there")
    verb.add_argument("node", nargs=1)
    verb.add_argument("words", nargs=argparse.REMAINDER)
    verb.set_defaults(act=_ssh)

    verb = verbs.add_parser("outsider", help="run a command of this machine at 192.168.1.200")
    verb.add_argument("words", nargs=argparse.REMAINDER)
    verb.set_defaults(act=_outsider)

    verb = verbs.add_parser("apart", help="run a command where a lab of its own can be: in a network namespace")
    verb.add_argument("name")
    verb.add_argument("words", nargs=argparse.REMAINDER)
    verb.set_defaults(act=_apart)
    return parser


def _up(arguments: argparse.Namespace) -> None:
    wrong = {node: oddity for oddity in Oddity for node in getattr(arguments, oddity.value.replace("-", "_"))}
    seeds = {}
    for seed in arguments.seed:
        folder, _, nodes = seed.partition(":")
        seeds.update(dict.fromkeys(nodes.split(","), Path(folder).resolve()))
    requirements.check()
    image()
    began = time.monotonic()
    lab = Lab.up(arguments.count, oddities_of=wrong, seeds=seeds)
    for node in lab.nodes.values():
        node.limit_cpu(arguments.quota)
    print(f"{len(lab.nodes)} nodes up in {time.monotonic() - began:.1f} s: ssh -F {lab.ssh_config} rpi01")


def _down(_: argparse.Namespace) -> None:
    began = time.monotonic()
    labs.remove(Places.of())
    print(f"down in {time.monotonic() - began:.1f} s")


def _install(_: argparse.Namespace) -> None:
    requirements.install()


def _image(_: argparse.Namespace) -> None:
    requirements.check()
    print(image())


def _status(_: argparse.Namespace) -> None:
    lab = Lab.attach()
    for node in lab.nodes.values():
        state = "up" if node.running and node.reachable() else "booting" if node.running else "off"
        used = cgroups.usage(lab.places, node.name)
        print(
            f"{node.name} {node.address:14s} {state:7s} memory {used['memory_bytes'] >> 20} MiB "
            f"(peak {used['peak_bytes'] >> 20}, limit {used['limit_bytes'] >> 20}), "
            f"{used['processes']} processes, killed for memory {used['killed_for_memory']}, throttled {used['throttled']}"
        )


def _boot(arguments: argparse.Namespace) -> None:
    nodes = _nodes(arguments)
    for node in nodes:
        node.boot()
    for node in nodes:
        node.wait_until_reachable()


def _ssh(arguments: argparse.Namespace) -> int:
    lab = Lab.attach()
    return subprocess.call(["ssh", "-F", str(lab.ssh_config), *arguments.node, *arguments.words])


def _outsider(arguments: argparse.Namespace) -> int:
    space = Lab.attach().places.namespace(network.OUTSIDER)
    return subprocess.call(["nsenter", f"--net=/run/netns/{space}", *arguments.words])


def _apart(arguments: argparse.Namespace) -> int:
    """The namespace stays for the next call with the same name until its lab is down and nothing runs in it."""
    places = Places.of(arguments.name)
    requirements.check()
    image()  # in there is no route out
    space = f"{places.lab}-operator"
    if not Path("/run/netns", space).exists():
        run("ip", "netns", "add", space)
        run("ip", "-n", space, "link", "set", "lo", "up")
    environment = {**os.environ, "PSCLUSTER_LAB": places.lab}
    return subprocess.call(["nsenter", f"--net=/run/netns/{space}", *arguments.words], env=environment)


def _nodes(arguments: argparse.Namespace) -> list[labs.LabNode]:
    lab = Lab.attach()
    return [lab.node(name) for name in arguments.node] or list(lab.nodes.values())


def _percent(text: str) -> float | None:
    return None if text == "max" else float(text.rstrip("%"))


def _size(text: str) -> int | None:
    if text == "max":
        return None
    units = {"K": 10, "M": 20, "G": 30}
    with contextlib.suppress(ValueError):
        return int(text[:-1]) << units[text[-1]] if text[-1:] in units else int(text)
    raise argparse.ArgumentTypeError(f"{text!r}: expected bytes, 900M, 1G or max")


if __name__ == "__main__":
    sys.exit(main())
