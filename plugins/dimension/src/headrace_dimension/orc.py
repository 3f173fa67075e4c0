"""``from_orc``: the rows of ORC files, as they are when the job starts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from headrace_dimension.columnar_files import DECODED_ROWS, ColumnarFile, ColumnarFileSource

if TYPE_CHECKING:
    import pyarrow as pa


class OrcSource(ColumnarFileSource):
    """Reads ORC files, stripe by stripe."""

    plugin = "orc"
    ending = ".orc"

    @staticmethod
    def open_file(path: str) -> ColumnarFile:
        return _OrcFile(path)


class _OrcFile(ColumnarFile):
    def __init__(self, path: str) -> None:
        from pyarrow import orc

        self._file: Any = orc.ORCFile(path)

    @property
    def schema(self) -> pa.Schema:
        return self._file.schema

    @property
    def group_rows(self) -> Sequence[int]:
        count = self._file.nstripes
        if count <= 1:
            return [self._file.nrows] if count else []
        # pyarrow tells the rows of a stripe only with a column of it: the smallest one is read.
        names = self._file.schema.names
        sizes = {name: _bytes_of(self._file.schema.field(name).type) for name in names}
        name = min(names, key=sizes.__getitem__)
        return [self._file.read_stripe(stripe, columns=[name]).num_rows for stripe in range(count)]

    def read(self, group: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        stripe: pa.RecordBatch = self._file.read_stripe(group, columns=list(columns)).select(list(columns))
        for begin in range(0, stripe.num_rows, DECODED_ROWS):
            yield stripe.slice(begin, DECODED_ROWS)


def _bytes_of(kind: Any) -> int:
    """Return the bits of a value of a type; many for types of no fixed size."""
    try:
        return int(kind.bit_width)
    except ValueError:
        return 10_000
