"""Compares the header of csv files with the columns that the job reads."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from headrace.foundation.errors import BrokenQueueError


class HeaderCheck:
    """Called with each file's header. The columns are read by their place, so names in another order are an error."""

    def __init__(self, columns: Sequence[str], csv_options: tuple[str, str | None]) -> None:
        self._columns = list(columns)
        self._delimiter, self._quote = csv_options

    def __call__(self, name: str, header: bytes) -> None:
        """Raise BrokenQueueError when the header names other columns, or the same in another order."""
        text = header.decode("utf-8", "replace").rstrip("\r\n")
        lines = io.StringIO(text)
        if self._quote:
            rows = csv.reader(lines, delimiter=self._delimiter, quotechar=self._quote)
        else:
            rows = csv.reader(lines, delimiter=self._delimiter, quoting=csv.QUOTE_NONE)
        found = [field.strip() for field in next(rows, [])]
        if found != self._columns:
            raise BrokenQueueError(
                f"the header of {name} names {', '.join(found)}; the job reads {', '.join(self._columns)}",
                plugin="file",
                queue=name,
                hint="give the schema in the order of the file's columns; "
                "skip_lines=1 instead of header=True leaves the header unread",
            )
