"""`python -m cluster.data.look [SOURCE]`: which recordings a job would take here, and why.

Prints one line of JSON, `{"holds": true, "line": why}`; where nothing usable is found `holds` is false and `line` says
why not. For `fab deploy check`, which looks on the node itself and does not know this room.
"""

import argparse
import os
import sys

from cluster.data.source import PROJECT_ROOT, find_source
from cluster.errors import DataError
from cluster.logs.terminal import say_json
from cluster.user_cache import user_cache


def look(source: str | None) -> tuple[bool, str]:
    """Whether recordings are found for `source` (the search order for None), and one line about it."""
    try:
        return True, find_source(source, os.environ, PROJECT_ROOT, user_cache()).why
    except DataError as error:
        return False, str(error)


def main() -> int:
    """Look, and print what was found."""
    parser = argparse.ArgumentParser(prog="python -m cluster.data.look", description=__doc__)
    parser.add_argument("source", nargs="?", help="a path or `synthetic`; the search order without it")
    holds, line = look(parser.parse_args().source)
    say_json({"holds": holds, "line": line})
    return 0


if __name__ == "__main__":
    sys.exit(main())
