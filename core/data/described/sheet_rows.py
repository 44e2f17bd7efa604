"""Readings in a file of Excel (.xls): a sheet a sensor, whose first row has the names."""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import IO

from core.data.described import workbook
from core.data.described.members import LARGEST_DOCUMENT_BYTES
from core.data.described.text_rows import TextRows
from core.ground.errors import DataError

BEGIN = b"\xd0\xcf\x11\xe0"
"""Begin of a compound document: an .xlsx is another, whose sheets may have 17 billion cells."""
DEADLINE_SECONDS = 300.0


class SheetRows(TextRows):
    """The readings of one sheet, which another process writes as text."""

    @contextmanager
    def _content(self) -> Iterator[IO[bytes]]:
        where = self._member.where
        if find_spec("python_calamine") is None:
            raise DataError(
                f"{where}: Excel's files need python-calamine, which is not installed; run `pip"
                " install python-calamine`, or export CSV"
            )
        content = self._member.read(LARGEST_DOCUMENT_BYTES)
        if not content.startswith(BEGIN):
            raise DataError(f"{where}: expected Excel's format .xls; export that, or CSV")
        command = [sys.executable, "-I", workbook.__file__, str(self._sensor)]
        with tempfile.TemporaryFile() as rows:
            try:
                done = subprocess.run(
                    command,
                    input=content,
                    stdout=rows,
                    stderr=subprocess.DEVNULL,
                    timeout=DEADLINE_SECONDS,
                )
            except subprocess.TimeoutExpired:
                raise DataError(
                    f"{where}: not read in {DEADLINE_SECONDS:g} s; export CSV"
                ) from None
            if done.returncode == workbook.NO_SHEET:
                rows.seek(0)
                sheet_names = " ".join(rows.read(160).decode("utf-8", "replace").split())
                raise DataError(
                    f"{where}: no sheet {self._sensor!r:.60}, got {sheet_names}; record with that"
                    " sensor, or describe other channels"
                )
            if done.returncode:
                raise DataError(f"{where}: not a whole file of Excel; export it again")
            rows.seek(0)
            yield rows
