"""Row ids in message keys: written by the sink, and read by the source to leave out messages that were written again.

The first key of each message that the sink writes is ``hr:<writer>/<queue>:<offset>:<index>``: the sink's name in its job,
the queue that the row comes from and the row's position in it. Names are percent-encoded, as in URLs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import polars as pl

_ID = r"^hr:([^ :]+):(\d+):(\d+)(?: |$)"
_ID_BEFORE = r"^hr:[^ :]+:\d+:\d+(?: |$)"


def upstream_name(writer: str, queue_id: str) -> str:
    """Return the start of the row ids of one queue: the same in every run of the job."""
    return f"hr:{quote(writer, safe='._-~')}/{quote(queue_id, safe='/._-~')}"


def without_row_ids(keys: pl.Series) -> pl.Series:
    """Return message keys without row ids; None if no key is left."""
    rest = keys.str.replace(_ID_BEFORE, "")
    return rest.set(rest == "", None)


class SeenRows:
    """The greatest position seen of each upstream queue, within one message queue. Used by one thread."""

    def __init__(self) -> None:
        self._greatest: dict[str, tuple[int, int]] = {}

    def fresh(self, keys: Sequence[str | None]) -> NDArray[np.bool_]:
        """Return which messages are not repetitions, and remember them. Messages without row id never are."""
        import polars as pl

        column = pl.Series("keys", keys, dtype=pl.String)
        parts = column.str.extract_groups(_ID).struct.unnest()
        ids = (
            parts.select(
                pl.col("1").alias("upstream"),
                pl.col("2").cast(pl.Int64, strict=False).alias("offset"),
                pl.col("3").cast(pl.Int64, strict=False).alias("index"),
            )
            .with_row_index("row")
            .drop_nulls()
        )
        fresh = np.ones(len(keys), dtype=np.bool_)
        for (upstream,), group in ids.group_by("upstream", maintain_order=True):
            offsets, indexes = group["offset"].to_numpy(), group["index"].to_numpy()
            last = self._greatest.get(str(upstream), (-1, -1))
            if not _all_grow(offsets, indexes, last):
                fresh[group["row"].to_numpy()] = _that_grow(offsets, indexes, last)
            at = np.lexsort((indexes, offsets))[-1]
            self._greatest[str(upstream)] = max(last, (int(offsets[at]), int(indexes[at])))
        return fresh


def _all_grow(offsets: NDArray[np.int64], indexes: NDArray[np.int64], last: tuple[int, int]) -> bool:
    grows = (offsets[1:] > offsets[:-1]) | ((offsets[1:] == offsets[:-1]) & (indexes[1:] > indexes[:-1]))
    return (int(offsets[0]), int(indexes[0])) > last and bool(grows.all())


def _that_grow(offsets: NDArray[np.int64], indexes: NDArray[np.int64], last: tuple[int, int]) -> list[bool]:
    """Row by row: only for batches that hold repetitions, which are rare."""
    kept = []
    for place in zip(offsets.tolist(), indexes.tolist(), strict=True):
        kept.append(place > last)
        last = max(last, place)
    return kept
