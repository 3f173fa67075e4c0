"""A broken operator for each check: it fails that check, and no other but those it names in ``also``."""

from __future__ import annotations

import threading
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, ClassVar

import headrace as hr
import polars as pl
from headrace.flow.messages import HEADER_COLUMNS, KEY
from headrace.flow.schema import Schema

from contract_samples.broken import Fault
from contract_samples.operator_contracts import EvenContract, RepeatContract, ScaleContract
from contract_samples.operators import Even, Repeat, RepeatOperator, Results, Scale, ScaleOperator


@dataclass(frozen=True)
class AnyScale(Scale):
    """A Scale that opens another operator."""

    kind: type[ScaleOperator] = ScaleOperator

    def open(self, schema: Schema | None) -> hr.Operator:
        return self.kind(self)


class Scales(Fault, ScaleContract):
    """The contract of a broken Scale; ``operator`` is what it opens."""

    operator: ClassVar[type[ScaleOperator]] = ScaleOperator

    def make_spec(self) -> hr.OperatorSpec:
        return AnyScale("price", kind=self.operator)


class BrokenFastPath(Scales):
    breaks = "test_output_does_not_depend_on_batch_cuts"

    class operator(ScaleOperator):
        def scaled(self, frame: pl.DataFrame) -> pl.DataFrame:
            if frame.height > 100:
                return frame.with_columns((pl.col("price").cast(pl.Float32) * 2.1).cast(pl.Float64))
            return frame.with_columns(pl.col("price") * 2.1)


class BrokenNumbersNothing(Fault, RepeatContract):
    breaks = "test_positions_grow"

    def make_spec(self) -> hr.OperatorSpec:
        class Renumbered(RepeatOperator):
            def process(self, batch: hr.Batch) -> Results:
                for result in super().process(batch):
                    assert isinstance(result, hr.Batch)
                    yield result.with_frame(result.frame.with_columns(pl.lit(0, dtype=pl.Int32).alias("__hr_index")))

        class Spec(Repeat):
            def open(self, schema: Schema | None) -> hr.Operator:
                return Renumbered()

        return Spec()


class BrokenDropsKeys(Scales):
    breaks = "test_header_is_kept"

    class operator(ScaleOperator):
        def scaled(self, frame: pl.DataFrame) -> pl.DataFrame:
            return super().scaled(frame).drop(KEY)


class BrokenForgetsTimes(Scales):
    breaks = "test_header_is_kept"

    class operator(ScaleOperator):
        def scaled(self, frame: pl.DataFrame) -> pl.DataFrame:
            return super().scaled(frame).with_columns(pl.lit(None, dtype=pl.Datetime("us", "UTC")).alias("__hr_time"))


class BrokenMarksInput(Scales):
    breaks = "test_input_is_not_changed"

    class operator(ScaleOperator):
        def process(self, batch: hr.Batch) -> Results:
            frame = batch.frame
            if "mark" not in frame.columns:
                frame.insert_column(frame.width, pl.Series("mark", [True] * frame.height))
            return super().process(batch.with_frame(frame.drop("mark")))


class BrokenWrongType(Scales):
    breaks = "test_output_schema_is_what_comes_out"

    def make_spec(self) -> hr.OperatorSpec:
        class Spec(Scale):
            def output_schema(self, schema: Schema | None, output: str = "") -> Schema | None:
                super().output_schema(schema, output)
                return Schema({**(schema or {}), "price": pl.Int64()})

        return Spec("price")


class BrokenUndeclaredOutput(Fault, EvenContract):
    breaks = "test_output_schema_is_what_comes_out"

    def make_spec(self) -> hr.OperatorSpec:
        class Spec(Even):
            outputs = ("even", "other")

        return Spec()


class BrokenAsksTooLittle(Scales):
    breaks = "test_required_columns_are_enough"

    def make_spec(self) -> hr.OperatorSpec:
        class Spec(Scale):
            def required_columns(self, wanted: Collection[str] | None, schema: Schema) -> Collection[str] | None:
                return wanted

        return Spec("price")


class BrokenNeedsARow(Scales):
    breaks = "test_empty_batch"

    class operator(ScaleOperator):
        def process(self, batch: hr.Batch) -> Results:
            batch.frame.row(0)
            return super().process(batch)


class BrokenStumblesOverNull(Scales):
    breaks = "test_null_values"

    class operator(ScaleOperator):
        def process(self, batch: hr.Batch) -> Results:
            empty = batch.frame.select(pl.all_horizontal(pl.exclude(HEADER_COLUMNS).is_null()).any()).item()
            if empty and {"name", "tags"} <= set(batch.frame.columns):
                raise ValueError("a row holds nothing")
            return super().process(batch)


class BrokenHeedsCheckpoints(Scales):
    breaks = "test_system_messages_change_nothing"

    class operator(ScaleOperator):
        seen = 0

        def on_system(self, message: hr.Checkpoint | Any) -> Results:
            self.seen += isinstance(message, hr.Checkpoint)
            return ()

        def scaled(self, frame: pl.DataFrame) -> pl.DataFrame:
            return super().scaled(frame).with_columns(pl.col("price") + self.seen)


class BrokenSharesState(Scales):
    breaks = "test_lanes_are_independent"

    class operator(ScaleOperator):
        lanes: ClassVar[dict[int, set[str]]] = {}

        def process(self, batch: hr.Batch) -> Results:
            self.lanes.setdefault(id(self.spec), set()).add(batch.queue.name)
            return super().process(batch)

        def scaled(self, frame: pl.DataFrame) -> pl.DataFrame:
            return super().scaled(frame).with_columns(pl.col("price") * len(self.lanes[id(self.spec)]))


class BrokenHoldsLock(Scales):
    breaks = "test_survives_pickle"
    also = frozenset({"test_same_output_elsewhere"})

    def make_spec(self) -> hr.OperatorSpec:
        spec = super().make_spec()
        object.__setattr__(spec, "lock", threading.Lock())
        return spec


class BrokenHashes(Scales):
    breaks = "test_same_output_elsewhere"

    class operator(ScaleOperator):
        def scaled(self, frame: pl.DataFrame) -> pl.DataFrame:
            marks = [hash(name) % 1000 / 7 for name in frame["name"].to_list()]
            return super().scaled(frame).with_columns(pl.col("price") + pl.Series(marks, dtype=pl.Float64))

    def make_spec(self) -> hr.OperatorSpec:
        class Spec(AnyScale):
            def required_columns(self, wanted: Collection[str] | None, schema: Schema) -> Collection[str] | None:
                return None

        return Spec("price", kind=self.operator)


class BrokenLosesRows(Scales):
    breaks = "test_every_row_is_accounted_for"
    also = frozenset({"test_many_records"})

    class operator(ScaleOperator):
        def scaled(self, frame: pl.DataFrame) -> pl.DataFrame:
            return super().scaled(frame).filter(pl.col("price").is_not_null())


class BrokenRejectsMutely(Scales):
    breaks = "test_bad_row_is_rejected"

    class operator(ScaleOperator):
        def process(self, batch: hr.Batch) -> Results:
            for result in super().process(batch):
                if isinstance(result, hr.RejectedRows):
                    yield hr.RejectedRows(result.frame, [""] * result.frame.height)
                else:
                    yield result


class BrokenRejectsInPart(Scales):
    breaks = "test_bad_row_is_rejected"

    class operator(ScaleOperator):
        def process(self, batch: hr.Batch) -> Results:
            for result in super().process(batch):
                if isinstance(result, hr.RejectedRows):
                    yield hr.RejectedRows(result.frame.drop("tags", strict=False), result.reasons)
                else:
                    yield result


class BrokenChecksNothing(Scales):
    breaks = "test_columns_are_checked"

    def make_spec(self) -> hr.OperatorSpec:
        class Spec(Scale):
            def output_schema(self, schema: Schema | None, output: str = "") -> Schema | None:
                return schema

        return Spec("price")


class BrokenKeepsSums(Scales):
    """Remembers in a lane: the sum of all prices so far, which a restart forgets."""

    breaks = "test_output_does_not_depend_on_what_came_before"

    class operator(ScaleOperator):
        total = 0.0

        def scaled(self, frame: pl.DataFrame) -> pl.DataFrame:
            sums = frame["price"].fill_null(0.0).cum_sum() + self.total
            self.total = sums[-1] if frame.height else self.total
            return frame.with_columns(sums.alias("price"))


class BrokenDropsThousandth(Scales):
    """Works in blocks of 1,000 rows, and loses the one between two."""

    breaks = "test_many_records"

    class operator(ScaleOperator):
        def scaled(self, frame: pl.DataFrame) -> pl.DataFrame:
            blocks = [super(BrokenDropsThousandth.operator, self).scaled(frame.slice(begin, 1_000))
                      for begin in range(0, max(1, frame.height), 1_001)]  # fmt: skip
            return pl.concat(blocks)
