"""Changelogs: batches whose rows insert, update and delete rows of a result. Used by operators and sinks.

Rows carry their ``ChangeKind`` in the column ``CHANGE``. Applied in order they give a table: an insert or
update-after adds a row, and an update-before or delete removes an equal row (or, if the rows have a key, the row with
that key).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.flow.messages import CHANGE, ChangeKind

if TYPE_CHECKING:
    import numpy as np
    import polars as pl
    from numpy.typing import NDArray

#: How kinds are shown: as in Flink's changelogs.
KIND_MARKS: Mapping[int, str] = {
    ChangeKind.INSERT: "+I", ChangeKind.UPDATE_BEFORE: "-U", ChangeKind.UPDATE_AFTER: "+U", ChangeKind.DELETE: "-D",
}  # fmt: skip
#: How kinds are written where there is room for a word.
KIND_NAMES: Mapping[int, str] = {
    ChangeKind.INSERT: "insert", ChangeKind.UPDATE_BEFORE: "update_before",
    ChangeKind.UPDATE_AFTER: "update_after", ChangeKind.DELETE: "delete",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Collapsed:
    """The net result of rows of a changelog by key. No key is in both frames, or twice in one. Header columns are kept."""

    #: The rows that are there after, in the order of their last change.
    upserts: pl.DataFrame
    #: Rows that are gone after: only their keys matter.
    deletes: pl.DataFrame


def collapsed(frame: pl.DataFrame, key: Sequence[str]) -> Collapsed:
    """Return the net result of the rows of a batch: the last change of each key. For sinks that update by key.

    Rows without the column ``CHANGE`` are upserts. An update-before that is the last row of its key counts as a
    delete. So if a batch ends between the two rows of an update, the row is missing until the next batch.
    """
    import polars as pl

    last = frame.unique(subset=list(key), keep="last", maintain_order=True) if key else frame.tail(1)
    if CHANGE not in frame.columns:
        return Collapsed(last, last.clear())
    gone = pl.col(CHANGE).is_in([ChangeKind.UPDATE_BEFORE, ChangeKind.DELETE])
    return Collapsed(last.filter(~gone), last.filter(gone))


def replaced_keys(difference: Collapsed, key: Sequence[str]) -> pl.DataFrame:
    """Return the keys of the rows to delete before others are inserted: of rows that are gone, and of changed ones with a NULL in the key.

    A server takes no two NULLs for equal in a unique key, so that an insert would not find the row of before.
    """
    import polars as pl

    gone = difference.deletes.select(key)
    if not key:
        return gone
    return pl.concat([gone, difference.upserts.select(key).filter(pl.any_horizontal(pl.all().is_null()))])


def signs(frame: pl.DataFrame) -> NDArray[np.int64]:
    """Return 1 for rows that add a row, and -1 for rows that remove one."""
    import numpy as np

    result = np.ones(frame.height, dtype=np.int64)
    if CHANGE in frame.columns:
        kinds = frame[CHANGE].fill_null(ChangeKind.INSERT).to_numpy()
        result[(kinds == ChangeKind.UPDATE_BEFORE) | (kinds == ChangeKind.DELETE)] = -1
    return result


def netted(
    frame: pl.DataFrame, columns: Sequence[str], row_signs: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return (row of ``frame``, sign) of the difference that rows make, equal rows (in ``columns``) added up.

    What is left is taken away where it first was, and added where it last was; the result is in that order.
    """
    import numpy as np
    import polars as pl

    if not (row_signs < 0).any():
        return np.arange(frame.height), row_signs
    marked = frame.select(columns).with_columns(
        pl.Series("__hr_sign", row_signs), pl.int_range(frame.height, dtype=pl.Int64).alias("__hr_place")
    )
    sums = (
        marked.group_by(list(columns), maintain_order=True)
        .agg(
            pl.col("__hr_sign").sum().alias("__hr_net"),
            pl.col("__hr_place").first().alias("__hr_first"),
            pl.col("__hr_place").last().alias("__hr_last"),
        )
        .filter(pl.col("__hr_net") != 0)
    )
    net = sums["__hr_net"].to_numpy()
    places = np.where(net < 0, sums["__hr_first"].to_numpy(), sums["__hr_last"].to_numpy())
    order = np.argsort(places, kind="stable")
    times = np.abs(net[order])
    return np.repeat(places[order], times), np.repeat(np.sign(net[order]), times)
