"""Checks of a sink that concern the rows themselves: a reader must see the rows that were written."""

from __future__ import annotations

from typing import Any

import polars as pl
from headrace.flow.messages import INDEX, OFFSET, ROW, Batch, Checkpoint, Queue
from headrace.flow.rows import pack_rows
from headrace.flow.schema import Schema
from headrace.foundation.errors import JobError

from headrace_contract.contract import expect, for_each, shortened, violated
from headrace_contract.sink_harness import SinkHarness, batch_of


class SinkValueChecks(SinkHarness):
    """Rows of every kind."""

    def test_all_rows_are_stored(self) -> None:
        """A reader sees exactly the rows that were written.

        Steps: write 25 rows in 3 batches of one queue, close. Passes when a reader sees each once, and no others.
        """
        batches = self.batches("q", 0, 25, 10)
        with self.writing() as writer:
            for batch in batches:
                writer.write(batch)
        self.expect_stored(batches, mend="insert every row of batch.rows() (or .to_arrow(), .to_polars()) exactly once")

    def test_checkpoint_stores_what_waits(self) -> None:
        """When ``batch_insert`` returns, its rows are stored: after a checkpoint they are not replayed.

        Steps: write 10 rows, send a checkpoint, read *before* the sink is closed. Passes when all rows are seen.
        """
        batches = self.batches("q", 0, 10)
        with self.writing() as writer:
            writer.write(batches[0])
            writer.on_system(Checkpoint(1))
            self.expect_stored(
                batches,
                mend="do not cache rows in the sink, because the writer has a cache already; flush and commit in each call",
            )

    def test_full_batch_is_stored(self) -> None:
        """A call may have up to ``batch_size`` rows, and no row may be lost.

        Steps: write 3 rows more than the sink's own ``batch_size`` (at most 20,000) at once. Passes when a reader sees all.
        """
        sink = self.prepared_sink()
        size = min(sink.settings.batch_size, 20_000)
        batches = self.batches("q", 0, size + 3, size + 3)
        with self.writing(sink) as writer:
            writer.write(batches[0])
        self.expect_stored(
            batches,
            mend="if the target accepts fewer rows per request, split the batch in batch_insert or lower the default "
            "batch_size",
        )

    def test_null_values(self) -> None:
        """NULL is stored as NULL, not as an empty text, zero or 'None'.

        Steps: write a row without NULL, and for each column but the first a row in which it is NULL. Passes when a reader
        sees exactly these rows.
        """
        if not self.nullable:
            pytest_skip("the target cannot hold NULL (nullable = False)")
        schema = Schema.of(self.schema)
        rows = [self.make_row(number) for number in range(len(schema))]
        for name, row in list(zip(schema, rows, strict=True))[1:]:
            row[name] = None
        self._write_rows(rows, schema)
        self.expect_rows(rows, mend="store None as the target's NULL, not as a text")

    @for_each("type_name", "types")
    def test_values_of_type(self, type_name: str) -> None:
        """Every type that the sink supports keeps its values, also those at its edges, and NULL.

        Steps: write rows with an int64 column and one of the type, with its edge values and NULL. Passes when a reader
        sees the same values.
        """
        schema = Schema.of({"id": "int64", "value": type_name})
        values: list[Any] = [*self.edge_values(type_name), *([None] if self.nullable else [])]
        rows = [{"id": number, "value": value} for number, value in enumerate(values)]
        self._write_rows(rows, schema)
        self.expect_rows(
            rows, mend=f"convert {type_name} without loss and with parameters (not text), or leave it out of `types`"
        )

    def test_longest_text(self) -> None:
        """A long text is neither cut nor refused.

        Steps: write a text of ``longest_text`` characters between two short ones. Passes when a reader sees all texts unchanged.
        """
        if not self.longest_text:
            pytest_skip("the length of texts cannot be checked (longest_text = 0)")
        schema = Schema.of({"id": "int64", "value": "string"})
        texts = ["short", ("0123456789" * (self.longest_text // 10 + 1))[: self.longest_text], "end"]
        rows = [{"id": number, "value": text} for number, text in enumerate(texts)]
        self._write_rows(rows, schema)
        self.expect_rows(rows, mend="widen the target's column, or declare longest_text")

    def test_rows_of_unknown_columns(self) -> None:
        """Rows whose columns are not known when the job is built are stored, or refused when the job is built.

        Steps: call ``check(None)``; if it raises nothing, write three rows with different columns. Passes when ``check``
        raises a JobError with a hint, or a reader sees the rows.
        """
        sink = self.make_sink()
        try:
            sink.check(None)
        except JobError as error:
            expect(
                error.hint is not None,
                expected="check(None) says how to give the columns",
                found=f"no hint: {shortened(str(error))}",
                mend="pass hint='declare the columns: map(function, schema={...})' to the error",
            )
            return
        first = next(iter(self.schema))
        rows: list[dict[str, Any]] = [self.make_row(number) for number in range(3)]
        rows[1] = {first: rows[1][first]}
        batch = Batch(
            Queue("q"),
            pl.DataFrame(
                {OFFSET: [0, 1, 2], INDEX: [0, 0, 0], ROW: pack_rows(rows)},
                schema={OFFSET: pl.Int64, INDEX: pl.Int32, ROW: pl.Binary},
            ),
        )
        if self.provides("create_target"):
            self.create_target(Schema.of(self.schema))
        sink.prepare(None)
        with self.writing(sink) as writer:
            writer.write(batch)
        whole = [{name: row.get(name) for name in self.schema} for row in rows]
        self.expect_rows(whole, mend="take rows from batch.rows() when batch.dynamic, or refuse them in check(None)")

    def test_columns_are_checked(self) -> None:
        """Columns that the sink cannot store are an error when the job is built, not hours later.

        Steps: give ``check`` the author's unfit columns. Passes when it raises a JobError.
        """
        self.need("unfit_schema")
        sink, schema = self.make_sink(), Schema.of(self.unfit_schema())
        try:
            sink.check(schema)
        except JobError:
            return
        violated(
            expected="check(schema) raises JobError for columns that do not fit",
            found=f"it accepted {schema!r}",
            mend="compare schema in check with what the sink can store; check must not connect",
        )

    def _write_rows(self, rows: list[dict[str, Any]], schema: Schema) -> None:
        places = [(offset, 0) for offset in range(len(rows))]
        with self.writing(self.prepared_sink(schema)) as writer:
            writer.write(batch_of(Queue("q"), places, rows, schema))


def pytest_skip(reason: str) -> None:
    """Skip the running check."""
    import pytest

    pytest.skip(f"not checked: {reason}")
