"""Lookups of rows that change: a row is retracted together with the rows with which it was joined.

A table in which rows are looked up may be another one by the time at which a row is taken back. ``TagRows`` names the rows before the
lookup, which gives all of them (a left join, with a column that says whether there was a partner); ``LookedUpRows`` behind it keeps
what was given for each row.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

import numpy as np
import polars as pl
from headrace.flow import changelog
from headrace.flow.messages import CHANGE, INDEX, OFFSET, WATERMARK, Batch, ChangeKind
from headrace.flow.schema import Schema
from headrace.interfaces.operator import Changes, Operator, OperatorSpec, RejectedRows, StatefulOperator
from headrace.interfaces.state_definition import StateDefinition
from headrace_stateful.keys import keyed_rows
from headrace_stateful.keys.columns import Places, equal_rows
from headrace_stateful.keys.kept_rows import KeptRows
from headrace_stateful.keys.row_log import RowLog
from headrace_stateful.keys.state_columns import StateInColumns, kept_columns

#: The column of a row's name, and the one that says of the table's rows that they are there.
TAG, FOUND = "__lookup_tag", "__lookup_found"


class TagRows(OperatorSpec):
    """Adds the column ``TAG``: another text for each row of the input."""

    name: ClassVar[str] = "tag_rows"
    maps_state = True

    def output_schema(self, schema: Schema | None, output: str = "") -> Schema | None:
        columns = keyed_rows.known(schema)
        return Schema({**columns, TAG: pl.String()}, json_columns=columns.json_columns)

    def open(self, schema: Schema | None) -> Operator:
        return _Tagged()


class _Tagged(Operator):
    def process(self, batch: Batch) -> Iterable[Batch]:
        name = pl.format("{}/{}/{}", pl.lit(batch.queue.id), pl.col(OFFSET), pl.col(INDEX))
        yield batch.with_frame(batch.frame.with_columns(name.alias(TAG)))


class LookedUpRows(StateInColumns):
    """Takes tagged rows with their lookup results, and returns each result with the kind of change of its row.

    ``left``: the columns that the rows had before the lookup; ``keys``: some of them. ``inner``: rows without a partner are left out.
    ``unique``: a row has at most one partner.
    """

    name: ClassVar[str] = "looked_up_rows"

    def __init__(self, keys: Sequence[str], left: Sequence[str], *, inner: bool, unique: bool = False) -> None:
        self.keys = tuple(keys)
        self.left = tuple(left)
        self.inner = inner
        self.unique = unique

    def output_schema(self, schema: Schema | None, output: str = "") -> Schema | None:
        columns = keyed_rows.known(schema)
        return Schema(
            {n: kind for n, kind in columns.items() if n not in (TAG, FOUND)}, json_columns=columns.json_columns
        )

    def changes(self, before: Changes | None) -> Changes | None:
        if before is None:
            return None
        # Rows of one key may be looked up by several values, so that these tell them apart while one goes to another shard.
        key = before.key if self.unique else None
        return Changes(None if key is None else tuple(dict.fromkeys([*key, *self.keys])))

    def definition(self, schema: Schema | None) -> StateDefinition:
        columns = kept_columns(keyed_rows.known(schema))
        return StateDefinition(self.name, {"inner": self.inner, "left": sorted(self.left)}, self.keys, columns)

    def open(self, schema: Schema | None) -> StatefulOperator:
        return RunningLookedUpRows(self, keyed_rows.known(schema))

    def describe(self) -> str:
        return f"{'inner' if self.inner else 'left'} per {', '.join(self.keys) or 'all'}"


class RunningLookedUpRows(KeptRows):
    """The running operator: it keeps the results of each row that has not been retracted."""

    def __init__(self, spec: LookedUpRows, schema: Schema) -> None:
        super().__init__(RowLog(dict(schema), spec.keys))
        self._spec = spec
        self._columns = list(schema)
        self._given = [name for name in schema if name not in (TAG, FOUND)]

    def process(self, batch: Batch) -> Iterable[Batch | RejectedRows]:
        frame, log = batch.frame, self._log
        signs = changelog.signs(frame)
        more = np.flatnonzero(signs > 0)
        user = frame.select(self._columns)
        before = log.places().size and int(log.numbers(log.places())[-1]) + 1
        added = log.append(user[more])
        gone = self._taken_back(user.filter(pl.Series(signs < 0)).unique(TAG, keep="first", maintain_order=True))
        old = gone[log.numbers(gone) < before]  # others come and go in this batch
        log.remove(gone)
        new = added[log.is_live(added)]
        parts = [self._rows(old, ChangeKind.DELETE), self._rows(new, ChangeKind.INSERT)]
        result = pl.concat(parts)
        log.tidy()
        if result.height:
            if WATERMARK in frame.columns:
                result = result.with_columns(pl.lit(frame[WATERMARK].max(), dtype=pl.Int64).alias(WATERMARK))
            yield batch.with_frame(result)

    def _taken_back(self, rows: pl.DataFrame) -> Places:
        """Return the places of the results of rows; of equal rows, those of the oldest."""
        log, left = self._log, list(self._spec.left)
        owners, places = log.find(rows, self._spec.keys)
        if not owners.size:
            return places
        same = equal_rows(rows[owners], log.take(places, left), left)
        known = pl.DataFrame({"owner": owners[same], "place": places[same]}).with_columns(
            log.take(places[same], [TAG]).get_columns()
        )
        # Equal rows that are taken back at once take the oldest, the next, …
        turns = rows.select(pl.int_range(pl.len()).over(left))
        tags = known.group_by("owner", maintain_order=True).agg(pl.col(TAG).unique(maintain_order=True))
        wanted = tags.with_columns(turns.to_series()[tags["owner"].to_numpy()].alias("turn"))
        chosen = wanted.select("owner", pl.col(TAG).list.get(pl.col("turn"), null_on_oob=True)).drop_nulls()
        return known.join(chosen, on=["owner", TAG], maintain_order="left")["place"].to_numpy()

    def _rows(self, places: Places, kind: int) -> pl.DataFrame:
        rows = self._log.take(places)
        if self._spec.inner:
            rows = rows.filter(pl.col(FOUND).is_not_null())
        return rows.select(*self._given, pl.lit(kind, dtype=pl.Int8).alias(CHANGE))
