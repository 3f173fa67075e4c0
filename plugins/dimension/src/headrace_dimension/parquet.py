"""``from_parquet``: the rows of Parquet files, as they are when the job starts. For dimension tables and for other jobs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from headrace_dimension.columnar_files import DECODED_ROWS, ColumnarFile, ColumnarFileSettings, ColumnarFileSource

if TYPE_CHECKING:
    import pyarrow as pa

ParquetSettings = ColumnarFileSettings


class ParquetSource(ColumnarFileSource):
    """Reads Parquet files, row group by row group."""

    plugin = "parquet"
    ending = ".parquet"

    @staticmethod
    def open_file(path: str) -> ColumnarFile:
        return _ParquetFile(path)


class _ParquetFile(ColumnarFile):
    def __init__(self, path: str) -> None:
        import pyarrow.parquet as pq

        self._file: Any = pq.ParquetFile(path, memory_map=True)

    @property
    def schema(self) -> pa.Schema:
        return self._file.schema_arrow

    @property
    def group_rows(self) -> Sequence[int]:
        metadata = self._file.metadata
        return [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]

    def read(self, group: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        rows: Iterator[pa.RecordBatch] = self._file.iter_batches(
            DECODED_ROWS, row_groups=[group], columns=list(columns)
        )
        return rows

    def close(self) -> None:
        self._file.close()
