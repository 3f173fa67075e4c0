"""Decodes records of a source to rows with their header: the first step of the lane of a source."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from headrace.flow import dead_letters
from headrace.flow.messages import CHANGE, INDEX, KEY, OFFSET, TIME, Batch, ChangeKind, Queue, RawBatch
from headrace.foundation.errors import JobFailedError
from headrace.interfaces.operator import renumber
from headrace.plan.graph import METADATA_FIELDS, SourceNode

if TYPE_CHECKING:
    import numpy as np
    import polars as pl
    from numpy.typing import NDArray

    from headrace.interfaces.codec import Decoded, Decoder


class SourceDecoder:
    """Turns raw batches of one source into batches with header, and bad bodies into dead letters."""

    def __init__(self, source_id: str, node: SourceNode, columns: Sequence[str]) -> None:
        self._source_id = source_id
        wanted = {name: what for name, what in node.metadata.items() if name in columns}
        self._metadata = {name: what for name, what in wanted.items() if what in METADATA_FIELDS}
        self._columns = [name for name in columns if name not in wanted]
        self._order = list(columns)
        self._changes = node.changes is not None
        self._decoder: Decoder | None = None
        self._of_codec: dict[str, str] = {}
        self._body_filter = node.body_filter
        if node.codec is not None:
            assert node.body_schema is not None
            self._of_codec = {name: what for name, what in wanted.items() if what not in METADATA_FIELDS}
            self._decoder = node.codec.record_decoder(node.body_schema, self._columns, self._of_codec)

    def decode(self, queue: Queue, raw: RawBatch) -> tuple[Batch, Batch | None]:
        """Return the good rows, and the dead letters if there are any."""
        rows, bad = None, None
        if self._body_filter is not None and raw.bodies is not None:
            wanted = self._body_filter.rows(queue, raw)
            raw = raw if wanted is None else raw.of_rows(wanted)
        if raw.frame is not None:
            given = raw.frame
            frame = given.select(self._columns)
        else:
            decoded = self._decoded(raw)
            given, rows, bad = decoded.frame, decoded.rows, self._bad_bodies(queue, raw, decoded)
            frame = given.drop(CHANGE) if CHANGE in given.columns else given
        header = self._header(raw)
        if rows is not None:
            header = header[rows]
        if self._changes:
            header = header.with_columns(_kinds(given, header.height))
        if _several_of_a_record(raw.offsets if rows is None else header[OFFSET].to_numpy()):
            header = renumber(header)
        if self._metadata:
            frame = self._with_metadata(queue, raw, rows, header, frame)
        elif frame.columns != self._order:
            frame = frame.select(self._order)
        return Batch(queue, header.hstack(frame.get_columns())), bad

    def _decoded(self, raw: RawBatch) -> Decoded:
        if self._decoder is None:
            raise JobFailedError(
                "the source returns bodies, but the job names no format to decode them", plugin=self._source_id
            )
        if raw.decoding is not None and not self._of_codec:
            found: Decoded = raw.decoding.decoded(raw, self._columns, self._decoder)
            return found
        return self._decoder.decode_records(raw)

    def _bad_bodies(self, queue: Queue, raw: RawBatch, decoded: Decoded) -> Batch | None:
        if not decoded.bad:
            return None
        assert raw.bodies is not None
        return dead_letters.of_bodies(
            queue,
            self._source_id,
            [int(raw.offsets[b.row]) for b in decoded.bad],
            [raw.bodies[b.row] for b in decoded.bad],
            [b.reason for b in decoded.bad],
        )

    @staticmethod
    def _header(raw: RawBatch) -> pl.DataFrame:
        import polars as pl

        columns = [pl.Series(OFFSET, raw.offsets), _zeros(len(raw.offsets))]
        if raw.times is not None:
            columns.append(pl.Series(TIME, raw.times).cast(pl.Datetime("us", "UTC")))
        if raw.keys is not None:
            columns.append(pl.Series(KEY, raw.keys, dtype=pl.Binary))
        return pl.DataFrame(columns)

    def _with_metadata(
        self, queue: Queue, raw: RawBatch, rows: Any, header: pl.DataFrame, frame: pl.DataFrame
    ) -> pl.DataFrame:
        import polars as pl

        count = header.height
        made: list[pl.Series] = []
        for name, what in self._metadata.items():
            if what in ("queue", "source"):
                made.append(pl.Series(name, [queue.name if what == "queue" else queue.source] * count, dtype=pl.String))
            elif what == "offset":
                made.append(header[OFFSET].alias(name))
            elif what in ("time", "key"):
                column, kind = (TIME, pl.Datetime("us", "UTC")) if what == "time" else (KEY, pl.Binary())
                found = header[column] if column in header.columns else pl.Series([None] * count, dtype=kind)
                made.append(found.alias(name))
            else:
                taken = raw.headers or [{}] * len(raw)
                taken = taken if rows is None else [taken[row] for row in rows.tolist()]
                texts = [{k: v.decode("utf-8", "replace") for k, v in entry.items()} for entry in taken]
                from msgspec import json

                made.append(pl.Series(name, [json.encode(t).decode() for t in texts], dtype=pl.String))
        return frame.with_columns(made).select(self._order) if frame.width else pl.DataFrame(made).select(self._order)


def _zeros(count: int) -> pl.Series:
    """Return the indexes of rows of which each is the only one of its record."""
    import numpy as np
    import polars as pl

    global _known_zeros
    known = _known_zeros
    if known is None or len(known) < count:
        known = _known_zeros = pl.Series(INDEX, np.zeros(max(count, _ZEROS_MIN), dtype=np.int32))
    return known.slice(0, count)


#: The longest column of zeros that was needed: frames share it, as columns never change.
_known_zeros: pl.Series | None = None
_ZEROS_MIN = 1024


def _kinds(frame: pl.DataFrame, count: int) -> pl.Series:
    """Return the change kinds of rows. A row without a kind is an insert."""
    import polars as pl

    if CHANGE in frame.columns:
        return frame[CHANGE].cast(pl.Int8)
    return pl.repeat(ChangeKind.INSERT, count, dtype=pl.Int8, eager=True).alias(CHANGE)


def _several_of_a_record(offsets: NDArray[np.int64]) -> bool:
    return bool((offsets[1:] == offsets[:-1]).any())
