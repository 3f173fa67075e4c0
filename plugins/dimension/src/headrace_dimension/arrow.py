"""``from_arrow``: the rows of Arrow files (the IPC file format, also called Feather), as they are when the job starts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from headrace_dimension.columnar_files import DECODED_ROWS, ColumnarFile, ColumnarFileSource

if TYPE_CHECKING:
    import pyarrow as pa


class ArrowSource(ColumnarFileSource):
    """Reads Arrow files, record batch by record batch."""

    plugin = "arrow"
    ending = ".arrow"

    @staticmethod
    def open_file(path: str) -> ColumnarFile:
        return _ArrowFile(path)


class _ArrowFile(ColumnarFile):
    def __init__(self, path: str) -> None:
        import pyarrow as pa

        self._bytes: Any = pa.memory_map(path)
        self._columns: tuple[str, ...] | None = None
        self._reader: Any = pa.ipc.open_file(self._bytes)
        self._schema: pa.Schema = self._reader.schema

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    @property
    def group_rows(self) -> Sequence[int]:
        bare = self._opened([])
        return [bare.get_batch(number).num_rows for number in range(bare.num_record_batches)]

    def _opened(self, fields: Sequence[int]) -> Any:
        """Return a reader that looks at some fields only: the others are not even decompressed."""
        import pyarrow as pa

        return pa.ipc.open_file(self._bytes, options=pa.ipc.IpcReadOptions(included_fields=list(fields)))

    def read(self, group: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        if self._columns != tuple(columns):
            self._reader = self._opened([self._schema.get_field_index(name) for name in columns])
            self._columns = tuple(columns)
        batch: pa.RecordBatch = self._reader.get_batch(group)
        for begin in range(0, batch.num_rows, DECODED_ROWS):
            yield batch.slice(begin, DECODED_ROWS)

    def close(self) -> None:
        self._bytes.close()
