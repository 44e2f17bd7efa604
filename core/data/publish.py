"""`python -m core.data.publish`: prepares a data set on this machine for all nodes.

It is put where all nodes see it.

Prints one line of JSON: `key`, which names the content; `folder`, where the files lie here;
`files`, by name their `sha256` and `bytes`; `line`, which source it is and why. For `fab deploy`,
which copies the files into a folder named after the key and does not know this room. What cannot be
used is one line on standard error and exit code 2.
"""

import argparse
import hashlib
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from core.data.archive import file_digest
from core.data.prepare import prepare
from core.data.source import PROJECT_ROOT, find_source
from core.data.store import SHORT_KEY
from core.ground.errors import DataError
from core.ground.files import parsed_json, prepared_folder, user_cache
from core.logs import say, say_json


def publishable(
    source: str | None,
    window_steps: int,
    window_stride: int,
    seed: int,
    cache: Path,
    options: Mapping[str, Any] = MappingProxyType({}),
) -> dict[str, Any]:
    """The data set of `source` (the search order for None), prepared in `cache`, as it is printed.

    Raises DataError.
    """
    recordings = find_source(source, os.environ, PROJECT_ROOT, user_cache(), options.get("format"))
    dataset = prepare(
        recordings,
        window_steps=window_steps,
        window_stride=window_stride,
        seed=seed,
        cache=cache,
        options=options,
    )
    paths = [dataset.folder / name for name in dataset.files]
    files = {
        path.name: {"sha256": file_digest(path), "bytes": path.stat().st_size} for path in paths
    }
    described = json.dumps(sorted((name, entry["sha256"]) for name, entry in files.items()))
    key = hashlib.sha256(described.encode()).hexdigest()[:SHORT_KEY]
    return {
        "key": key,
        "folder": str(dataset.folder.absolute()),
        "files": files,
        "line": recordings.why,
    }


def add_settings(parser: argparse.ArgumentParser) -> None:
    """Add the flags that decide what is prepared of a source."""
    parser.add_argument("--window-steps", type=int, default=128)
    parser.add_argument("--window-stride", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0, help="matters to synthetic recordings only")
    parser.add_argument(
        "--options",
        type=parsed_json,
        default={},
        help="a JSON object: other keys of jobs.train.data",
    )


def main() -> int:
    """Prepare, and print what is there to be copied."""
    parser = argparse.ArgumentParser(prog="python -m core.data.publish", description=__doc__)
    parser.add_argument("--source", help="a path or `synthetic`; the search order without it")
    add_settings(parser)
    flags = parser.parse_args()
    cache = prepared_folder()
    try:
        publication = publishable(
            flags.source, flags.window_steps, flags.window_stride, flags.seed, cache, flags.options
        )
    except DataError as problem:
        say(problem, error=True)
        return int(problem.exit_code)
    say_json(publication)
    return 0


if __name__ == "__main__":
    sys.exit(main())
