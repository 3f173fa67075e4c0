"""The lines before the records of each file, and the names of columns in the last of them."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace.foundation.errors import BrokenQueueError

from headrace_file.settings import FileSourceSettings
from headrace_file.streams import ByteStream, CompressedStream, PlainStream, open_stream

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from headrace_file.framing import Framing

_FIRST_BYTES = 4096
_BOM = b"\xef\xbb\xbf"


class FileHeader:
    """Skips the lines before the records of a file, and checks the column names in its header, if these are known and the file has one."""

    def __init__(
        self, settings: FileSourceSettings, columns: Sequence[str] | None, csv_options: tuple[str, str | None]
    ) -> None:
        """``columns``: the names with which the header is compared; None: it is not compared."""
        self._settings = settings
        self._columns = list(columns or ())
        self._checked = settings.header and columns is not None
        self._delimiter, self._quote = csv_options
        #: The number of records before those that are given.
        self.records = settings.skip_lines + settings.header
        #: Whether columns are taken by the names in the header.
        self.names_columns = self._checked and settings.columns_by == "header"

    def passed(
        self, name: str, stream: ByteStream | None, data: bytes, begin: int, ends: NDArray[np.int64]
    ) -> tuple[str, ...] | None:
        """Return the names in the header of a file, which begins at ``begin``, or None where they do not matter.

        Called when the records before the first are complete: ``ends`` are their ends. Raises BrokenQueueError when the names do not fit.
        """
        if isinstance(stream, CompressedStream) and stream.holds_several_files:
            raise BrokenQueueError(
                f"{stream.file.path} holds several files: the header of the first one would be recognized, but not the others",
                plugin="file",
                hint="put each file into its own archive, or read them without header and skip_lines",
            )
        if not self._checked:
            return None
        start = begin if self.records == 1 else int(ends[self.records - 2]) + 1
        return self._names(name, data[start : ends[self.records - 1]])

    def read_again(self, name: str, stream: ByteStream, framing: Framing, limit: int) -> tuple[str, ...] | None:
        """Return the names in the header of a file that is read from somewhere behind it. Raises FileMovedError, BrokenQueueError."""
        plain, size = isinstance(stream, PlainStream), _FIRST_BYTES
        # A decompressor that goes back would start from the beginning: it stays where it is.
        fresh = (
            stream
            if plain
            else open_stream(
                stream.file.path, self._settings.compression, stream.file.expected, files=stream.file.files
            )
        )
        try:
            while True:
                data = fresh.read_at(0, size)
                begin = len(_BOM) if data.startswith(_BOM) else 0
                ends = framing.ends(data, begin, final=False, limit=limit)
                if len(ends) >= self.records:
                    return self.passed(name, fresh, data, begin, ends)
                if len(data) < size:
                    return None
                size *= 4
        finally:
            if not plain:
                fresh.close()

    def _names(self, name: str, header: bytes) -> tuple[str, ...]:
        """Return the names. Raises BrokenQueueError when the job reads others, or by their order and they have another one."""
        text = header.decode("utf-8", "replace").rstrip("\r\n")
        lines = io.StringIO(text)
        if self._quote:
            rows = csv.reader(lines, delimiter=self._delimiter, quotechar=self._quote)
        else:
            rows = csv.reader(lines, delimiter=self._delimiter, quoting=csv.QUOTE_NONE)
        found = [field.strip() for field in next(rows, [])]
        if self.names_columns:
            self._check_names(name, found)
        elif found != self._columns:
            raise BrokenQueueError(
                f"the header of {name} names {', '.join(found)}; the job reads {', '.join(self._columns)}",
                plugin="file",
                queue=name,
                hint="give the schema in the order of the file's columns, or take them by their names: columns_by='header'; "
                "skip_lines=1 instead of header=True leaves the header unread",
            )
        return tuple(found)

    def _check_names(self, name: str, found: Sequence[str]) -> None:
        twice = [column for column in self._columns if found.count(column) > 1]
        if twice:
            raise BrokenQueueError(
                f"the header of {name} names {', '.join(twice)} more than once", plugin="file", queue=name,
                hint="rename the columns of the file, or read it by order: columns_by='order'",
            )  # fmt: skip
        missing = [column for column in self._columns if column not in found]
        if missing and self._settings.missing_columns == "fail":
            raise BrokenQueueError(
                f"the header of {name} does not name {', '.join(missing)}; it names {', '.join(found)}",
                plugin="file",
                queue=name,
                hint="with missing_columns='null' such columns are NULL in the rows of this file",
            )
