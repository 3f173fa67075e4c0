"""What the author of an operator implements, and how the checks run it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import polars as pl
from headrace.flow.messages import (
    HEADER_COLUMNS,
    INDEX,
    KEY,
    OFFSET,
    TIME,
    Batch,
    Checkpoint,
    Queue,
    QueueAdded,
    SystemMessage,
    Watermark,
)
from headrace.flow.schema import Schema
from headrace.interfaces.operator import Operator, OperatorSpec, RejectedRows

from headrace_contract.contract import Contract, expect, optional_hook, shortened, violated
from headrace_contract.values import mixed_rows

QUEUE = Queue("q", "source")
#: Number of records in the input of most checks. Record n has 1 + n % 2 rows.
RECORDS = 120

HEADER_TYPES: Mapping[str, pl.DataType] = {
    OFFSET: pl.Int64(), INDEX: pl.Int32(), TIME: pl.Datetime("us", "UTC"), KEY: pl.Binary(),
}  # fmt: skip


@dataclass
class Outcome:
    """What an operator gave for an input: rows per output (with header), and rejected rows."""

    batches: list[Batch] = field(default_factory=list)
    rejected: list[RejectedRows] = field(default_factory=list)

    def frame(self, output: str = "") -> pl.DataFrame | None:
        """Return all rows of an output, or None when it gave no batch."""
        frames = [batch.frame for batch in self.batches if batch.output == output]
        if not frames:
            return None
        full = [frame for frame in frames if frame.height] or frames[:1]
        return pl.concat(full, how="vertical")

    def outputs(self) -> list[str]:
        """Return the outputs that gave rows."""
        return sorted({batch.output for batch in self.batches if batch.frame.height})

    def after(self, begin: int) -> Outcome:
        """Return the part of the outcome whose records have this offset or a greater one."""
        from_here = pl.col(OFFSET) >= begin
        rejected = []
        for each in self.rejected:
            kept = (each.frame[OFFSET] >= begin).to_list()
            reasons = [reason for reason, keep in zip(each.reasons, kept, strict=True) if keep]
            rejected.append(RejectedRows(each.frame.filter(from_here), reasons))
        return Outcome(
            [batch.with_frame(batch.frame.filter(from_here), batch.output) for batch in self.batches], rejected
        )

    def refused(self) -> list[tuple[int, int, str]]:
        """Return (offset, index, reason) of the rejected rows."""
        return [
            (offset, index, reason)
            for rejected in self.rejected
            for (offset, index), reason in zip(
                rejected.frame.select(OFFSET, INDEX).iter_rows(), rejected.reasons, strict=True
            )
        ]


class OperatorHarness(Contract):
    """The part of ``OperatorContract`` that an author fills in."""

    #: The columns of the input.
    schema: ClassVar[Mapping[str, Any]]
    #: How many rows the operator makes of one: "one" (or a rejection), "at most one", or "any" number.
    rows_out: ClassVar[Literal["one", "at most one", "any"]] = "any"

    # ------------------------------------------------------------------------------------------- the author gives

    def make_spec(self) -> OperatorSpec:
        """Return the operator's spec, as a verb of the DSL makes it."""
        raise NotImplementedError

    def make_rows(self, first: int, count: int) -> list[dict[str, Any]]:
        """Return rows of ``schema``. The default has ordinary values of each type, with NULLs in between.

        Override it so that the operator has something to do: rows that it keeps, drops and changes.
        """
        return mixed_rows(Schema.of(self.schema), first, count)

    @optional_hook
    def bad_row(self) -> dict[str, Any]:
        """Return a row of ``schema`` that the operator must reject."""
        raise NotImplementedError

    @optional_hook
    def unfit_schema(self) -> Mapping[str, Any]:
        """Return input columns that the operator cannot work with."""
        raise NotImplementedError

    # ------------------------------------------------------------------------------------------- the checks use

    @property
    def input_schema(self) -> Schema:
        """The columns of the input."""
        return Schema.of(self.schema)

    def input(self, *, records: int = RECORDS, rows: Sequence[dict[str, Any]] | None = None) -> pl.DataFrame:
        """Return the input with header columns: ``records`` records, or one record for each of the ``rows``."""
        places = [(offset * 3, index) for offset in range(records) for index in range(1 + offset % 2)]
        if rows is not None:
            places = [(offset, 0) for offset in range(len(rows))]
        made = list(rows) if rows is not None else self.make_rows(0, len(places))
        offsets = pl.Series(OFFSET, [offset for offset, _ in places], dtype=pl.Int64)
        header = pl.DataFrame(
            [
                offsets,
                pl.Series(INDEX, [index for _, index in places], dtype=pl.Int32),
                (offsets * 1_000_000 + 1_700_000_000_000_000).cast(pl.Datetime("us", "UTC")).alias(TIME),
                pl.Series(KEY, [key_of(offset) for offset, _ in places], dtype=pl.Binary),
            ]
        )
        user = pl.DataFrame(made, schema=dict(self.input_schema), orient="row")
        return pl.concat([header, user], how="horizontal")

    def open(self, spec: OperatorSpec) -> Operator:
        """Return a running operator, as a lane opens it."""
        return spec.open(self.input_schema)

    def run(
        self,
        frames: Iterable[pl.DataFrame],
        *,
        spec: OperatorSpec | None = None,
        between: Sequence[SystemMessage] = (),
    ) -> Outcome:
        """Run a new operator over batches, as a lane does; after each batch it gets the messages of ``between``."""
        __tracebackhide__ = True
        operator = self.open(spec if spec is not None else self.make_spec())
        outcome = Outcome()
        for frame in frames:
            collect(outcome, operator.process(Batch(QUEUE, frame)))
            for message in between:
                collect(outcome, operator.on_system(message))
        operator.close()
        return outcome

    def expect_same(self, found: Outcome, wanted: Outcome, *, what: str, mend: str) -> None:
        """Fail the check unless two outcomes have the same rows at the same positions, in the same order."""
        __tracebackhide__ = True
        expect(
            found.outputs() == wanted.outputs(),
            expected=f"{what}: rows in the outputs {wanted.outputs()}",
            found=f"{found.outputs()}",
            mend=mend,
        )
        for output in wanted.outputs():
            expect_same_frame(found.frame(output), wanted.frame(output), what=what, mend=mend)
        expect(
            found.refused() == wanted.refused(),
            expected=f"{what}: the same rejected rows, with the same reasons: {shortened(wanted.refused())}",
            found=shortened(found.refused()),
            mend=mend,
        )


def key_of(offset: int) -> bytes | None:
    """Return the key of a record in the input."""
    return None if offset % 5 == 0 else b"key %d" % offset


def messages() -> tuple[SystemMessage, ...]:
    """Return system messages as they come between batches."""
    return (
        QueueAdded(Queue("other", "source")),
        Watermark(QUEUE, 1_704_067_200_000_000),
        Checkpoint(1),
    )


def collect(outcome: Outcome, results: Iterable[Batch | RejectedRows | Watermark]) -> None:
    """Add the results of an operator to the outcome. Fails the check if an operator may not return them."""
    __tracebackhide__ = True
    for result in results:
        if isinstance(result, Watermark):
            continue
        if isinstance(result, RejectedRows):
            outcome.rejected.append(result)
        elif isinstance(result, Batch):
            expect(
                result.queue == QUEUE,
                expected=f"batches of the input's queue, {QUEUE}",
                found=f"{result.queue}",
                mend="make results with batch.with_frame(frame)",
            )
            outcome.batches.append(result)
        else:
            violated(
                expected="Batch or RejectedRows",
                found=shortened(result),
                mend="return batch.with_frame(frame) and RejectedRows(frame, reasons)",
            )


def cut(frame: pl.DataFrame, records: int) -> list[pl.DataFrame]:
    """Divide rows into batches of so many records; all rows of a record stay together."""
    offsets = frame[OFFSET].unique(maintain_order=True).to_list()
    parts = []
    for begin in range(0, len(offsets), records):
        these = offsets[begin : begin + records]
        parts.append(frame.filter(pl.col(OFFSET).is_between(these[0], these[-1])))
    return parts


def expect_same_frame(found: pl.DataFrame | None, wanted: pl.DataFrame | None, *, what: str, mend: str) -> None:
    """Fail the check unless two frames have the same columns, types and rows."""
    __tracebackhide__ = True
    if found is None or wanted is None:
        expect(found is wanted, expected=f"{what}: {wanted}", found=f"{found}", mend=mend)
        return
    expect(
        dict(found.schema) == dict(wanted.schema),
        expected=f"{what}: columns {dict(wanted.schema)}",
        found=f"{dict(found.schema)}",
        mend=mend,
    )
    found = found.select(wanted.columns)
    if found.equals(wanted):
        return
    rows, others = found.rows(), wanted.rows()
    at = next(
        (i for i, (a, b) in enumerate(zip(rows, others, strict=False)) if repr(a) != repr(b)),
        min(len(rows), len(others)),
    )
    shown = [shortened(side[at], 160) if at < len(side) else "no row" for side in (rows, others)]
    violated(
        expected=f"{what}: the same {len(others)} rows",
        found=f"{len(rows)} rows; the first difference is row {at}: {shown[0]} instead of {shown[1]}",
        mend=mend,
    )


def user_columns(frame: pl.DataFrame) -> dict[str, pl.DataType]:
    """Return the types of the columns that are not header columns."""
    return {name: kind for name, kind in frame.schema.items() if name not in HEADER_COLUMNS}
