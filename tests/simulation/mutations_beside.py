"""Planted bugs in the parts of jobs beside the stream: dimension tables, correlations, and buffers of sources that listen."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import polars as pl
from headrace.foundation.errors import RetriableError
from headrace_detection.correlate import RunningCorrelate
from headrace_detection.silence import Silence
from headrace_dimension import loading
from headrace_dimension.loading import _LoadedRows
from headrace_dimension.parted_rows import PartedRows
from headrace_dimension.shared_table import SharedTable
from headrace_dimension.table import Table

from tests.simulation.planting import Mutation, in_place_of


def _as_far_as_it_came(read: Any) -> Any:
    """A queue of a table whose server does not answer counts as read."""

    def some(plan: Any, queue: Any) -> Any:
        with contextlib.suppress(RetriableError):
            yield from read(plan, queue)

    return some


def _empty_first(renew: Any) -> Any:
    """While a table is loaded again, there is an empty one."""

    def renewed(self: Any, load: Any, **options: Any) -> None:
        if self._table is not None:
            kept = self._table
            self._table = Table.of(pl.DataFrame(schema={"k": pl.String, "name": pl.String}), ("equal", ("k",)))
            try:
                renew(self, load, **options)
            except BaseException:
                self._table = kept
                raise
        else:
            renew(self, load, **options)

    return renewed


def _without_those_before(part: Any) -> Any:
    """Rows that were in memory when a table became large are not stored."""

    def parted(self: Any) -> None:
        self._frames.clear()
        part(self)

    return parted


def _without_last(add: Any) -> Any:
    """The last row of a batch is not written to its part of the mapped table."""
    return lambda self, queue, frame: add(self, queue, frame[:-1] if frame.height > 1 else frame)


def _without_waiting(frozen: Any) -> Any:
    """Events that wait for the watermark are not part of the changes that are stored."""

    def made(self: Any, *, whole: bool) -> Any:
        if not whole:
            self._waiting.frozen(whole=False)
        return frozen(self, whole=whole)

    return made


#: Those of histories of one instance, and of several.
BESIDE_STREAMS: Mapping[str, Mapping[str, Mutation]] = {
    "one": {
        "table: a load that failed half-way is used": in_place_of(loading, "_read", _as_far_as_it_came),
        "table: it is empty while it is loaded again": in_place_of(SharedTable, "_renew", _empty_first),
        "table: rows read before it became large are lost": in_place_of(_LoadedRows, "_part", _without_those_before),
        "mapped table: the last row of a batch is not written": in_place_of(PartedRows, "add", _without_last),
        "correlations: events that wait are not stored": in_place_of(RunningCorrelate, "frozen", _without_waiting),
        "correlations: the idle timeout is over at the second tick": in_place_of(
            Silence, "is_over", lambda over: lambda self, tick_us: over(self, tick_us) or self._length_us > 0
        ),
    },
    "instances": {
        "correlations: the idle timeout is never over": in_place_of(
            Silence, "is_over", lambda _: lambda self, tick_us: False
        ),
    },
}
