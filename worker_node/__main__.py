"""`python -m worker_node`: see `--help` and docs/engine.md."""

import sys

from core.server.role import main

if __name__ == "__main__":
    sys.exit(main("worker"))
