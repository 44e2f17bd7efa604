"""`python -m recognise`: see `--help` and docs/recognise.md."""

import sys

from recognise.command import main

if __name__ == "__main__":
    sys.exit(main())
