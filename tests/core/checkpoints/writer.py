"""A process that writes checkpoints until it is killed.

Started by the tests: `python -m tests.core.checkpoints.writer FOLDER KEEP FIRST-VERSION SIZE`. Two
versions in a row are of the same update, so that replacing is interrupted too.
"""

import itertools
import sys
from pathlib import Path
from typing import Any

from core.checkpoints import CheckpointStore
from tests.core.checkpoints.contents import numbered

WATCHED = ("open", "os.rename", "os.remove", "os.truncate")


def main(folder: str, keep: str, first: str, size: str) -> None:
    with CheckpointStore(Path(folder), int(keep)) as store:

        def about_to(event: str, arguments: tuple[Any, ...]) -> None:
            if event in WATCHED and str(arguments[0]).startswith(folder):
                print(event, flush=True)

        sys.addaudithook(about_to)
        for version in itertools.count(int(first)):
            store.write(numbered(version, update=version // 2, size=int(size)))
            print(f"written {version}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
