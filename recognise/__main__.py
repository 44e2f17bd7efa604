"""`python -m recognise`: `--help` and docs/recognise.md say how to use it."""

import sys

from recognise.command import main

if __name__ == "__main__":
    sys.exit(main())
