"""The flags of a program of recognition, from the JSON file that lists them."""

import argparse
from pathlib import Path
from typing import Any

from core.ground.files import read_json

_TYPES = {"int": int, "float": float, "path": Path}


def parser_of(listed: Path, program: str, purpose: str, **defaults: Any) -> argparse.ArgumentParser:
    """Return the parser of a program's flags, each with the arguments of `add_argument`.

    `listed` has them by program; those of `all` are of each. `defaults` are values of the code.
    """
    parser = argparse.ArgumentParser(prog=f"python -m {program}", description=purpose)
    flags = read_json(listed)
    for flag, arguments in {**flags.get("all", {}), **flags[program]}.items():
        if "type" in arguments:
            arguments["type"] = _TYPES[arguments["type"]]
        parser.add_argument(flag, **arguments)
    parser.set_defaults(**defaults)
    return parser
