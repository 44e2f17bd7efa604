"""Writes a sheet of an Excel file (.xls) as CSV: a program of its own, which reads standard input.

A damaged file can make the library ask for more memory than there is, which ends its process. It
ends this one, with bounds on memory, time and output.

    python -I workbook.py SHEET <walk.xls >sheet.csv

It stands on the standard library and python-calamine alone, and starts in some milliseconds.
"""

import csv
import io
import resource
import sys
from collections.abc import Sequence

MEMORY_BYTES = 2 * 2**30
"""A sheet has at most 65,536 rows of 256 columns, some 30 bytes a cell; then Python's values."""
OUTPUT_BYTES = 512 * 2**20
CPU_SECONDS = 120
NO_SHEET = 3
"""Exit status where there is no such sheet; it writes the names of all."""


def word(value: object) -> str:
    """Return a cell as a line of text has it; of what is no number or word, its kind."""
    if isinstance(value, int | float | str):
        return str(value)
    return f"a {type(value).__name__}"


def main(arguments: Sequence[str]) -> int:
    """Write the sheet."""
    from python_calamine import CalamineWorkbook

    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_FSIZE, (OUTPUT_BYTES, OUTPUT_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    [name] = arguments
    book = CalamineWorkbook.from_filelike(io.BytesIO(sys.stdin.buffer.read()))
    writer = csv.writer(sys.stdout)
    if name not in book.sheet_names:
        writer.writerow(book.sheet_names)
        return NO_SHEET
    for row in book.get_sheet_by_name(name).to_python(skip_empty_area=False):
        writer.writerow(map(word, row))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
