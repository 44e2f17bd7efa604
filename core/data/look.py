"""`python -m core.data.look [SOURCE]`: which recordings a job would take here, and why.

Prints one line of JSON, `{"holds": true, "line": why}`; where nothing usable is found `holds` is
false and `line` says why not. For `fab deploy check`, which looks on the node itself and does not
know this room.
"""

import argparse
import os
import sys

from core.data.source import PROJECT_ROOT, find_source
from core.ground.errors import DataError
from core.ground.files import user_cache
from core.logs import say_json


def main() -> int:
    """Look, and print what was found."""
    parser = argparse.ArgumentParser(prog="python -m core.data.look", description=__doc__)
    parser.add_argument(
        "source", nargs="?", help="a path or `synthetic`; the search order without it"
    )
    parser.add_argument("--format", help="how they are written: a known format, or a YAML file")
    flags = parser.parse_args()
    try:
        source = find_source(flags.source, os.environ, PROJECT_ROOT, user_cache(), flags.format)
        say_json({"holds": True, "line": source.why})
    except DataError as error:
        say_json({"holds": False, "line": str(error)})
    return 0


if __name__ == "__main__":
    sys.exit(main())
