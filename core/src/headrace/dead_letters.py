"""Bad records: what is kept of them, and where they go when the job does not say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace.messages import INDEX, OFFSET, TIME, Batch, Queue

if TYPE_CHECKING:
    import polars as pl

    from headrace.schema import Schema

#: Characters of the body that are shown as text.
PREVIEW_LENGTH = 200


def dead_letter_schema() -> Schema:
    """Return the columns of a dead letter.

    ``queue`` and ``offset`` say where the record came from, ``origin`` which node of the plan refused it, ``error`` the
    kind of error and ``reason`` its text. ``body`` holds the raw bytes when the record was not decoded yet, ``row`` the
    row as JSON when it was; ``preview`` is the begin of either as text.
    """
    from headrace.schema import Schema

    return Schema.of(
        {
            "queue": "string",
            "offset": "int64",
            "index": "int32",
            "origin": "string",
            "error": "string",
            "reason": "string",
            "preview": "string",
            "row": "string",
            "body": "binary",
        }
    )


def of_bodies(
    queue: Queue, origin: str, offsets: Sequence[int], bodies: Sequence[bytes], reasons: Sequence[str]
) -> Batch:
    """Make dead letters of bodies that could not be decoded."""
    import polars as pl

    count = len(offsets)
    frame = pl.DataFrame(
        {
            "queue": [queue.id] * count,
            "offset": list(offsets),
            "index": [0] * count,
            "origin": [origin] * count,
            "error": ["DecodeError"] * count,
            "reason": list(reasons),
            "preview": [body[: 4 * PREVIEW_LENGTH].decode("utf-8", "replace")[:PREVIEW_LENGTH] for body in bodies],
            "row": [None] * count,
            "body": list(bodies),
        },
        schema=dict(dead_letter_schema()),
    )
    return _with_header(queue, origin, frame)


def of_rows(queue: Queue, origin: str, rows: pl.DataFrame, reasons: Sequence[str], errors: Sequence[str]) -> Batch:
    """Make dead letters of rows (with header columns) that an operator or sink refused."""
    import polars as pl

    from headrace.messages import HEADER_COLUMNS, ROW
    from headrace.rows import unpack_rows

    user = rows.drop(HEADER_COLUMNS, strict=False)
    values = unpack_rows(rows[ROW]) if ROW in rows.columns else user.to_dicts()
    texts = [_row_as_json(row) for row in values]
    frame = pl.DataFrame(
        {
            "queue": [queue.id] * rows.height,
            "offset": rows[OFFSET],
            "index": rows[INDEX],
            "origin": [origin] * rows.height,
            "error": list(errors),
            "reason": list(reasons),
            "preview": [text[:PREVIEW_LENGTH] for text in texts],
            "row": texts,
            "body": [None] * rows.height,
        },
        schema=dict(dead_letter_schema()),
    )
    return _with_header(queue, origin, frame)


def _row_as_json(row: dict[str, object]) -> str:
    import msgspec

    return msgspec.json.encode(row, enc_hook=repr).decode("utf-8", "replace")


def _with_header(queue: Queue, origin: str, frame: pl.DataFrame) -> Batch:
    import polars as pl

    frame = frame.with_columns(
        pl.col("offset").alias(OFFSET),
        pl.col("index").alias(INDEX),
        pl.lit(None, dtype=pl.Datetime("us", "UTC")).alias(TIME),
    )
    # Each origin refuses records in the order of their offsets, but two origins need not agree: a branch of the queue
    # for each keeps positions growing, which is what sinks deduplicate by.
    return Batch(queue.branched(f"dead-letters-{origin}"), frame)
