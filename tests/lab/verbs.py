"""The command line of a lab by hand: the verbs of a table, each done by the function of its name.

The table `verbs.yaml` of a lab's folder has the help and the arguments of each verb, as argparse
takes them.
"""

import argparse
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.lab import network
from tests.lab.commands import LabError, run
from tests.lab.places import Places
from tests.tables import table

Act = Callable[[argparse.Namespace], int | None]


def main(lab: str, acts: Sequence[Act]) -> int:
    """Do what the command line asks of the lab in this folder of the tests; its exit code."""
    parser = argparse.ArgumentParser(prog=f"python -m tests.{lab}")
    verbs = parser.add_subparsers(required=True, metavar="VERB")
    rows = table(f"{lab}/verbs")
    for act in acts:
        name = act.__name__.lstrip("_")
        verb = verbs.add_parser(name, help=rows[name].pop("help"))
        verb.set_defaults(act=act)
        for kind in (int, float, percent, size):
            verb.register("type", kind.__name__, kind)
        for argument, options in rows[name].items():
            verb.add_argument(argument, **options)
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # cleans up like Ctrl-C
    try:
        return int(arguments.act(arguments) or 0)
    except LabError as error:
        print(f"{lab}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def apart(places: Places, words: Sequence[str]) -> int:
    """Run a command in a network namespace for this lab.

    The namespace stays while it holds the lab, so that a later call finds the lab again.
    """
    space = places.namespace(network.OPERATOR)
    if not Path("/run/netns", space).exists():
        run("ip", "netns", "add", space)
        run("ip", "-n", space, "link", "set", "lo", "up")
    try:
        return subprocess.call(
            ["nsenter", f"--net=/run/netns/{space}", *words],
            env={**os.environ, "PSCLUSTER_LAB": places.lab},
        )
    finally:
        if not places.run.exists():
            run("ip", "netns", "delete", space, check=False)


def percent(text: str) -> float | None:
    """A number, or no limit."""
    if text == "max":
        return None
    return float(text.rstrip("%"))


def size(text: str) -> int | None:
    """Bytes, or no limit."""
    if text == "max":
        return None
    units = {"K": 10, "M": 20, "G": 30}
    with contextlib.suppress(ValueError):
        if text[-1:] in units:
            return int(text[:-1]) << units[text[-1]]
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r}: expected bytes, 900M, 1G or max")
