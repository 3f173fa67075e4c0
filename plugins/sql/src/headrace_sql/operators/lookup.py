"""Lookups: each row joined with the rows of a dimension table, which is read as a whole when the job starts."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import timedelta
from typing import Any, ClassVar

import polars as pl
from headrace.flow.messages import HEADER_COLUMNS, Batch
from headrace.flow.schema import Schema
from headrace.interfaces.operator import Operator, OperatorSpec, RejectedRows, renumber
from headrace.interfaces.sink import Sink, SinkBatch
from headrace.interfaces.source import EARLIEST
from headrace.plan.graph import Input, Plan, SinkNode
from headrace.runtime.lane import Lane
from headrace_columnar.evaluation import evaluate
from headrace_columnar.expressions import compile_predicate
from headrace_stateful.keys import keyed_rows

_ROW = "__hr_row_number"
_POLL_RECORDS = 100_000


class _Rows(Sink):
    """Stands at the end of the plan that reads the table; rows are taken from the lane."""

    def batch_insert(self, batch: SinkBatch) -> None:
        raise AssertionError("rows of a lookup are taken from the lane")


class Lookup(OperatorSpec):
    """Joins with a table that is read once by each process, when the first row comes. Changes of the table after that are not seen."""

    name: ClassVar[str] = "lookup_join"
    takes_functions = True

    def __init__(
        self, table: Input, schema: Schema, keys: tuple[tuple[str, str], ...], how: str, condition: str | None, *,
        functions: Mapping[str, Any] | None = None,
    ) -> None:  # fmt: skip
        self.table = table
        self.schema = schema
        self.keys = keys
        self.how = how
        self.condition = condition
        self.functions = functions

    def output_schema(self, schema: Schema | None, output: str = "") -> Schema | None:
        return Schema({**keyed_rows.known(schema), **self.schema})

    def required_columns(self, wanted: Collection[str] | None, schema: Schema) -> Collection[str] | None:
        if wanted is None or self.condition is not None:
            return None
        return {*(name for name in wanted if name in schema), *(left for left, _ in self.keys)}

    def open(self, schema: Schema | None) -> Operator:
        assert schema is not None
        return _RunningLookup(self, schema)

    def describe(self) -> str:
        pairs = ", ".join(f"{left} = {right}" for left, right in self.keys)
        return f"{self.how} on {pairs or 'every row'}" + (f", where {self.condition}" if self.condition else "")


def read_all(table: Input, schema: Schema) -> pl.DataFrame:
    """Return all rows that a stateless stream gives now. Raises what its source and operators raise."""
    sink = SinkNode(label="lookup", schema=schema, sink=_Rows(), input=table)
    plan = Plan("lookup", "table", [sink])
    columns = plan.decode_columns()
    frames = []
    for source_id, node in plan.sources.items():
        node.source.use_run(until="end")
        for queue in node.source.queues():
            lane = Lane(plan, node, queue, decode_columns=columns[source_id])
            reader = node.source.open(queue, EARLIEST)
            try:
                while reader.position.offset < reader.latest:
                    raw = reader.poll(_POLL_RECORDS, timedelta(seconds=1))
                    if raw is None:
                        break
                    frames += [
                        delivery.batch.frame.drop(HEADER_COLUMNS, strict=False) for delivery in lane.process(raw)
                    ]
            finally:
                reader.close()
                lane.close()
    return pl.concat(frames) if frames else pl.DataFrame(schema=dict(schema))


class _RunningLookup(Operator):
    def __init__(self, spec: Lookup, schema: Schema) -> None:
        self._spec = spec
        self._schema = schema
        self._table: pl.DataFrame | None = None
        self._predicate = None
        if spec.condition is not None:
            self._predicate = compile_predicate(spec.condition, Schema({**schema, **spec.schema}), spec.functions)

    def _dimension(self) -> pl.DataFrame:
        if self._table is None:
            table = read_all(self._spec.table, self._spec.schema).select(list(self._spec.schema))
            # A join takes its right key away: it is there twice.
            copies = [pl.col(right).alias(f"__key_{index}") for index, (_, right) in enumerate(self._spec.keys)]
            self._table = table.with_columns(copies)
        return self._table

    def process(self, batch: Batch) -> Iterable[Batch | RejectedRows]:
        frame = batch.frame.with_row_index(_ROW)
        table = self._dimension()
        if self._spec.keys:
            pairs = frame.join(
                table, left_on=[left for left, _ in self._spec.keys], right_on=[f"__key_{i}" for i in range(len(self._spec.keys))],
                how="inner", maintain_order="left_right",
            )  # fmt: skip
        else:
            pairs = frame.join(table, how="cross", maintain_order="left_right")
        if self._predicate is not None and pairs.height:
            result, failures = evaluate(self._predicate, pairs)
            if failures:
                bad = {int(pairs[_ROW][row]): error for row, error in reversed(failures)}
                places = sorted(bad)
                yield RejectedRows(
                    batch.frame[places], [str(bad[p]) for p in places], [type(bad[p]).__name__ for p in places]
                )
                pairs, result = pairs.filter(~pl.col(_ROW).is_in(places)), result.filter(~pairs[_ROW].is_in(places))
                frame = frame.filter(~pl.col(_ROW).is_in(places))
            pairs = pairs.filter(result)
        if self._spec.how == "left":
            alone = frame.join(pairs.select(_ROW).unique(), on=_ROW, how="anti")
            padding = [pl.lit(None, dtype=kind).alias(name) for name, kind in self._spec.schema.items()]
            pairs = pl.concat([pairs.select([*frame.columns, *self._spec.schema]), alone.with_columns(padding)]).sort(
                _ROW, maintain_order=True
            )
        if pairs.height:
            yield batch.with_frame(renumber(pairs.select([*batch.frame.columns, *self._spec.schema])))
