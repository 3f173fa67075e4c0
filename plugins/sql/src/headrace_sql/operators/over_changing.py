"""OVER aggregates in any order, as a changelog: ``SUM(x) OVER (PARTITION BY k ORDER BY price)``, also over results that change.

A new row may come before others in the order, so their results change. All rows are kept. With each batch the partitions that it
touches are computed again, and of their rows those are given whose result is another than before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

import numpy as np
import polars as pl
from headrace.flow import changelog
from headrace.flow.messages import WATERMARK, Batch, ChangeKind, watermark_times
from headrace.flow.schema import Schema
from headrace.interfaces.operator import Changes, RejectedRows, StatefulOperator
from headrace.interfaces.state_definition import StateDefinition, quoted
from headrace.interfaces.windows import Duration, microseconds
from headrace_stateful.joins.join_shape import Part, assembled
from headrace_stateful.keys import keyed_rows
from headrace_stateful.keys.columns import Places, equal_rows
from headrace_stateful.keys.kept_by_key import KeptByKey
from headrace_stateful.keys.kept_rows import TICK, KeptRowsWithTicks
from headrace_stateful.keys.row_log import RowLog
from headrace_stateful.keys.slots import KeySlots
from headrace_stateful.keys.state_columns import kept_columns

from headrace_sql.operators.over_functions import GROUP, ORDER, OverCall, over

_PLACE, _RANK = "__over_place", "__over_rank"


class OverChanging(KeptByKey):
    """Adds the results of OVER aggregates to each row. ``order`` holds (column, descending); NULL is the least value.

    Rows that are equal in the order stand as they came; RANGE frames end with the last of them. Without an order all rows are equal.
    ``ttl``: rows are forgotten so long (processing time) after they came.
    """

    name: ClassVar[str] = "over_changing"
    maps_state = True

    def __init__(
        self, keys: Sequence[str], order: Sequence[tuple[str, bool]], calls: Mapping[str, OverCall], *, ttl: Duration | None = None
    ) -> None:  # fmt: skip
        self.keys = tuple(keys)
        self.order = tuple(order)
        self.calls = dict(calls)
        self.ttl_us = None if ttl is None else microseconds(ttl, "ttl")

    def output_schema(self, schema: Schema | None, output: str = "") -> Schema | None:
        columns = keyed_rows.known(schema)
        added = {name: call.result_type(columns) for name, call in self.calls.items()}
        return Schema({**columns, **added}, json_columns=columns.json_columns)

    def changes(self, before: Changes | None) -> Changes | None:
        if before is None or before.key is None:
            return Changes(None)
        # With the columns of the partition: a row that goes to another one must not overtake itself under one name.
        return Changes(tuple(dict.fromkeys([*before.key, *self.keys])))

    def definition(self, schema: Schema | None) -> StateDefinition:
        order = [f"{quoted(name)}{' desc' if down else ''}" for name, down in self.order]
        settings = {"calls": sorted((call.setting() for call in self.calls.values()), key=repr), "order": order}
        columns = kept_columns(keyed_rows.known(schema))
        return StateDefinition(self.name, settings, self.keys, columns, adjustable={"ttl_us": self.ttl_us})

    def open(self, schema: Schema | None) -> StatefulOperator:
        return RunningOverChanging(self, keyed_rows.known(schema))

    def describe(self) -> str:
        calls = ", ".join(f"{name}={call.function}({call.argument or '*'})" for name, call in self.calls.items())
        order = ", ".join(f"{name}{' desc' if down else ''}" for name, down in self.order)
        return f"per {', '.join(self.keys) or 'all'} by {order or 'arrival'}: {calls}"


class RunningOverChanging(KeptRowsWithTicks):
    """The running operator: the rows of each partition."""

    def __init__(self, spec: OverChanging, schema: Schema) -> None:
        super().__init__(RowLog(dict(schema), spec.keys, (TICK,)), spec.ttl_us)
        self._spec = spec
        self._schema = dict(schema)
        self._key_types = keyed_rows.key_types(schema, spec.keys)

    def process(self, batch: Batch) -> Iterable[Batch | RejectedRows]:
        frame, log = batch.frame, self._log
        user = frame.select(list(self._schema))
        signs = changelog.signs(frame)
        keys, groups = self._keys_of(user)
        places, of_keys, before = self.take_in(user, signs, keys, groups, by_key=bool(self._spec.keys))
        old, new = self._results(places, of_keys, before)
        parts = self._changes(old, new, watermark_times(frame))
        result = assembled(parts, with_watermark=WATERMARK in frame.columns, with_change=True)
        log.tidy()
        if result is not None:
            yield batch.with_frame(result)

    def _keys_of(self, user: pl.DataFrame) -> tuple[pl.DataFrame, Places]:
        """Return the different keys of a batch in the order of their first rows, and which of them each row has."""
        keys = keyed_rows.keys_of(user, self._spec.keys)
        slots, _ = KeySlots(self._key_types).find_or_insert(keys)
        _, first, groups = np.unique(slots, return_index=True, return_inverse=True)
        places = np.argsort(first, kind="stable")
        return keys[first[places]], np.argsort(places, kind="stable")[groups]

    def _results(self, places: Places, groups: Places, old: int) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Return the results of the touched partitions before and after the batch: rank, place, results.

        The first ``old`` places are those of rows that were there before.
        """
        spec = self._spec
        rows = pl.DataFrame(
            {GROUP: groups, _PLACE: places, "__was": np.arange(places.size) < old, "__now": self._log.is_live(places)}
        ).with_columns(self._log.take(places).get_columns())
        order = [name for name, _ in spec.order]
        ordered = rows.sort(
            [GROUP, *order, _PLACE],
            descending=[False, *(down for _, down in spec.order), False],
            nulls_last=[False, *(down for _, down in spec.order), False],
        )
        # Rows of one group and place in the order have one number, which grows.
        peers = pl.struct([GROUP, *order]).rle_id().cast(pl.Int64) if order else pl.lit(0, dtype=pl.Int64)
        ordered = ordered.with_columns(peers.alias(ORDER))
        found = []
        for when in ("__was", "__now"):
            there = ordered.filter(pl.col(when))
            made = [
                over(call, there).alias(name).cast(call.result_type(self._schema)) for name, call in spec.calls.items()
            ]
            found.append(there.select(_PLACE).with_row_index(_RANK).with_columns(made))
        return found[0], found[1]

    def _changes(self, old: pl.DataFrame, new: pl.DataFrame, watermarks: Places) -> list[Part]:
        """Return what changes from the old results to the new ones. Rows still lie where they were, removed or not."""
        names = list(self._spec.calls)
        both = old.join(new, on=_PLACE, how="full", suffix="_new", coalesce=False, maintain_order="left_right")
        was, now = both[_PLACE].is_not_null().to_numpy(), both[f"{_PLACE}_new"].is_not_null().to_numpy()
        differs = np.ones(both.height, dtype=bool)
        pairs = np.flatnonzero(was & now)
        if pairs.size:
            one, other = (
                both[pairs].select(names),
                both[pairs].select([pl.col(f"{name}_new").alias(name) for name in names]),
            )
            differs[pairs] = ~equal_rows(one, other, names)
        parts = []
        latest = watermarks.max()  # what follows these rows takes changes, and so does not ask for the time
        # First all rows that go, then all that come. So a row that moves to another partition is not removed after it
        # was added there, and with equal rows nothing is taken back twice.
        for side, there, update, alone in (
            (0, was, ChangeKind.UPDATE_BEFORE, ChangeKind.DELETE),
            (1, now, ChangeKind.UPDATE_AFTER, ChangeKind.INSERT),
        ):
            given = both[np.flatnonzero(there & differs)]
            suffix = "_new" if side else ""
            place = given[f"{_PLACE}{suffix}"].to_numpy()
            frame = self._log.take(place).with_columns([given[f"{name}{suffix}"].alias(name) for name in names])
            kinds = np.where((was & now)[there & differs], update, alone)
            rank = given[f"{_RANK}{suffix}"].to_numpy().astype(np.int64) + side * old.height
            parts.append(Part(frame, rank, np.full(place.size, latest), kinds))
        return parts
