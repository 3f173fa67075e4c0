"""Rows to the bytes of a part file."""

from __future__ import annotations

import gzip
import io
from typing import TYPE_CHECKING, Literal

from headrace.flow.changelog import KIND_NAMES
from headrace.flow.messages import CHANGE, ROW, ChangeKind
from headrace.foundation.errors import OptionError
from headrace.interfaces.codec import encodes_changes
from headrace.interfaces.registry import default_registry
from headrace.interfaces.sink import SinkBatch

if TYPE_CHECKING:
    import polars as pl
    from headrace.flow.schema import Schema
    from headrace.interfaces.codec import Codec

    from headrace_file.settings import FileSinkSettings

PARQUET = "parquet"
_SUFFIXES = {"none": "", "gzip": ".gz", "zstd": ".zst"}
_ZSTD_LEVEL = 3
_GZIP_LEVEL = 6


class PartEncoder:
    """Encodes batches as whole files. Used by one thread at a time."""

    def __init__(self, settings: FileSinkSettings, schema: Schema | None) -> None:
        """Find the format. Raises MissingPluginError or OptionError when it does not exist or does not fit ``schema``."""
        self._format = settings.format
        self._header = settings.header and settings.format == "csv"
        self._change_column = settings.change_column if settings.changes == "column" else None
        self._encodes_changes = self._change_column is None and encodes_changes(settings.format)
        self._schema = schema = self._with_change_column(schema)
        self._codec: Codec | None = None
        if settings.format == PARQUET:
            if settings.format_options:
                name = next(iter(settings.format_options))
                raise OptionError(f"parquet has no option {name!r}", plugin="file", option="format_options")
            self._compression = settings.compression or "zstd"
            return
        self._compression = settings.compression or "none"
        codec_class = default_registry().find("codec", settings.format)
        self._codec = codec_class(codec_class.Settings.of(settings.format_options, plugin=settings.format))
        self._encoder = self._codec.encoder(schema)

    @property
    def extension(self) -> str:
        """What the names of parts end with, after the dot."""
        if self._format == PARQUET:
            return PARQUET
        return self._format + _SUFFIXES[self._compression]

    def encode(self, batch: SinkBatch) -> bytes:
        """Return the content of a file with the batch's rows. Raises whatever is wrong with the rows."""
        if self._codec is None:
            return self._parquet(batch)
        frame = batch.frame.select(ROW) if batch.dynamic else self._columns(batch)
        lines = self._encoder.encode_lines(frame)
        if self._header:
            lines = self._header_line(frame) + lines
        return _compressed(lines, self._compression)

    def _with_change_column(self, schema: Schema | None) -> Schema | None:
        """Return the columns of the files. Raises OptionError when the column of changes cannot be added."""
        import polars as pl
        from headrace.flow.schema import Schema

        if self._change_column is None:
            return schema
        if schema is None:
            raise OptionError(
                "a column cannot be added to rows whose columns are not known when the job is built", plugin="file",
                option="changes", hint="give the map() before it an option schema={...}",
            )  # fmt: skip
        if self._change_column in schema:
            raise OptionError(
                f"the stream has a column {self._change_column!r} itself", plugin="file", option="change_column",
                hint="give the column of changes another name",
            )  # fmt: skip
        return Schema({self._change_column: pl.String(), **schema}, json_columns=schema.json_columns)

    def _columns(self, batch: SinkBatch) -> pl.DataFrame:
        import polars as pl

        frame = batch.to_polars()
        if self._encodes_changes and CHANGE in batch.frame.columns:
            return frame.with_columns(batch.frame[CHANGE])
        if self._change_column is None:
            return frame
        kinds = batch.frame[CHANGE].to_list() if CHANGE in batch.frame.columns else [ChangeKind.INSERT] * len(batch)
        names = pl.Series(self._change_column, [KIND_NAMES[kind] for kind in kinds], dtype=pl.String)
        return frame.insert_column(0, names)

    def _header_line(self, frame: pl.DataFrame) -> bytes:
        import polars as pl
        from headrace.flow.schema import Schema

        assert self._codec is not None
        names = list(self._codec.framing().fields) or frame.columns
        row = pl.DataFrame({name: [name] for name in names}, schema=dict.fromkeys(names, pl.String))
        return self._codec.encoder(Schema(dict(row.schema))).encode_lines(row)

    def _parquet(self, batch: SinkBatch) -> bytes:
        compression: dict[str, Literal["uncompressed", "gzip", "zstd"]] = {
            "none": "uncompressed",
            "gzip": "gzip",
            "zstd": "zstd",
        }
        written = io.BytesIO()
        self._columns(batch).write_parquet(written, compression=compression[self._compression])
        return written.getvalue()


def _compressed(data: bytes, kind: str) -> bytes:
    if kind == "gzip":
        return gzip.compress(data, _GZIP_LEVEL, mtime=0)
    if kind == "zstd":
        import zstandard

        return zstandard.ZstdCompressor(level=_ZSTD_LEVEL, write_checksum=True).compress(data)
    return data
