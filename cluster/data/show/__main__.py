"""`python -m cluster.data.show [SOURCE]`: classes, people, channels and a few windows of recordings; or what is wrong.

Reads them as a training would, into the same cache. For `fab data show`, which does not know this room.
"""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from cluster.atomic_write import atomic_write
from cluster.data.prepare import prepare
from cluster.data.show.page import page
from cluster.data.show.portrait import portrait_of
from cluster.data.show.terminal import lines
from cluster.data.show.wrong import named_lines
from cluster.data.source import PROJECT_ROOT, find_source
from cluster.errors import ClusterError, DataError, ExitCode
from cluster.logs.bars import bar
from cluster.logs.terminal import say, say_json
from cluster.user_cache import user_cache


def main(arguments: Sequence[str] | None = None) -> int:
    """Prepare, and show what was found."""
    parser = argparse.ArgumentParser(prog="python -m cluster.data.show", description=__doc__)
    parser.add_argument("source", nargs="?", help="a path or `synthetic`; the search order without it")
    parser.add_argument("--window-steps", type=int, default=128)
    parser.add_argument("--window-stride", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0, help="matters to synthetic recordings only")
    parser.add_argument("--options", type=json.loads, default={}, help="a JSON object: other keys of jobs.train.data")
    parser.add_argument(
        "--each", type=int, default=1, choices=range(10), metavar="N", help="windows of each class, 0-9"
    )
    parser.add_argument("--out", type=Path, help="write an HTML page to this file too")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of text")
    given = parser.parse_args(arguments)
    try:
        found = find_source(given.source, os.environ, PROJECT_ROOT, user_cache())
        with bar() as report:
            dataset = prepare(
                found, window_steps=given.window_steps, window_stride=given.window_stride, seed=given.seed,
                cache=user_cache() / "prepared", options=given.options, progress=report,
            )  # fmt: skip
        portrait = portrait_of(dataset, given.each)
        if given.out is not None:
            atomic_write(given.out, page(portrait).encode(), "give another --out")
    except DataError as problem:
        say(problem, error=True)
        for line in named_lines(str(problem)):
            say(line, error=True)
        return int(problem.exit_code)
    except ClusterError as problem:
        say(problem, error=True)
        return int(problem.exit_code)
    except KeyboardInterrupt:
        return ExitCode.CANCELLED
    if given.json:
        say_json(portrait.to_json())
        return ExitCode.DONE
    encoding = (getattr(sys.stdout, "encoding", None) or "ascii").lower()
    for line in lines(portrait, blocks=encoding.startswith("utf")):
        say(line)
    if given.out is not None:
        say(f"page: {given.out}")
    return ExitCode.DONE


if __name__ == "__main__":
    sys.exit(main())
