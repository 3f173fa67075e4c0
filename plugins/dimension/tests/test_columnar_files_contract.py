"""The contract of sources, for Parquet, ORC and Arrow files."""

from __future__ import annotations

import polars as pl
from headrace_dimension.arrow import ArrowSource
from headrace_dimension.orc import OrcSource
from headrace_dimension.parquet import ParquetSource

from tests.columnar_files import ColumnarFileContract


class TestParquetSource(ColumnarFileContract):
    plugin = "parquet"
    source_class = ParquetSource

    def save(self, frame: pl.DataFrame, path: str) -> None:
        frame.write_parquet(path, row_group_size=30)


class TestOrcSource(ColumnarFileContract):
    plugin = "orc"
    source_class = OrcSource

    def save(self, frame: pl.DataFrame, path: str) -> None:
        import pyarrow as pa
        from pyarrow import orc

        # Types of Arrow's own beside those of ORC would be large strings.
        table = frame.to_arrow(compat_level=pl.CompatLevel.oldest())
        orc.write_table(table.cast(pa.schema([("number", pa.int64()), ("text", pa.string())])), path, stripe_size=1)


class TestArrowSource(ColumnarFileContract):
    plugin = "arrow"
    source_class = ArrowSource

    def save(self, frame: pl.DataFrame, path: str) -> None:
        import pyarrow as pa

        table = frame.to_arrow(compat_level=pl.CompatLevel.oldest())
        with pa.ipc.new_file(path, table.schema) as writer:
            writer.write_table(table, max_chunksize=30)
