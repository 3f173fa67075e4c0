"""The contract of operators."""

from __future__ import annotations

import polars as pl
import pytest
from headrace.flow.messages import HEADER_COLUMNS, INDEX, KEY, OFFSET, ROW, TIME, Batch, Queue
from headrace.flow.schema import Schema
from headrace.foundation.errors import JobError

from headrace_contract.contract import expect, shortened, violated
from headrace_contract.operator_harness import (
    HEADER_TYPES,
    QUEUE,
    RECORDS,
    OperatorHarness,
    Outcome,
    collect,
    cut,
    expect_same_frame,
    key_of,
    messages,
    user_columns,
)
from headrace_contract.pickling import through_pickle
from headrace_contract.processes import elsewhere

_CUTS = "keep no state that depends on where a batch begins or ends; process each row (or record) independently"


class OperatorContract(OperatorHarness):
    """What every stateless operator must do. An author gives ``make_spec`` and ``schema``; see docs/contract-suite.md.

    class TestMyOperator(OperatorContract):
        schema = {"price": "float64", "currency": "string"}
        rows_out = "one"

        def make_spec(self):
            return Convert(to="EUR")
    """

    def test_output_does_not_depend_on_batch_cuts(self) -> None:
        """The same input gives the same rows at the same positions, however it is divided into batches, because batches
        can end anywhere.

        Steps: run 120 records all at once, and in batches of 1, 7, 50 and 1000. Passes when rows, positions and
        rejections are the same.
        """
        frame = self.input()
        whole = self.run([frame])
        for records in (1, 7, 50, 1000):
            self.expect_same(self.run(cut(frame, records)), whole, what=f"in batches of {records} records", mend=_CUTS)

    def test_output_does_not_depend_on_what_came_before(self) -> None:
        """A newly opened operator gives the rows that the one before would have given, because a restart loses what that
        one had in memory.

        Steps: run 120 records in batches of 40; open a new operator for the second and third batch, and for the third.
        Passes when each row is as in the run of all batches.
        """
        parts = cut(self.input(), 40)
        whole = self.run(parts)
        mend = (
            "process each row (or record) independently; an operator with state must derive from headrace.StatefulOperator, "
            "come after key_by, and give its state to checkpoints"
        )
        for number in (1, 2):
            begin = parts[number][OFFSET][0]
            self.expect_same(
                self.run(parts[number:]), whole.after(begin), what=f"newly opened at batch {number + 1}", mend=mend
            )

    def test_many_records(self) -> None:
        """A large batch gives the same rows as small ones.

        Steps: run 3,000 records at once, and in batches of 700. Passes when the outcomes are the same and, with
        ``rows_out`` "one", there is a row or a rejection for each row of the input.
        """
        frame = self.input(records=3_000)
        whole = self.run([frame])
        self.expect_same(self.run(cut(frame, 700)), whole, what="3,000 records in batches of 700", mend=_CUTS)
        if self.rows_out == "one":
            out = sum(batch.frame.height for batch in whole.batches) + len(whole.refused())
            expect(
                out == frame.height,
                expected=f"a row (or rejection) for each of the {frame.height} rows",
                found=f"{out}",
                mend="give each row at its position, or in RejectedRows; or declare another rows_out",
            )

    def test_positions_grow(self) -> None:
        """Rows of each output are ordered by (offset, index), and no two have the same: sinks use it to drop duplicates.

        Steps: run 120 records in batches of 50. Passes when the positions of each output grow, and each offset is one
        of the input.
        """
        frame = self.input()
        outcome = self.run(cut(frame, 50))
        known = set(frame[OFFSET].to_list())
        for output in outcome.outputs():
            rows = outcome.frame(output)
            assert rows is not None
            places = list(rows.select(OFFSET, INDEX).iter_rows())
            wrong = [i for i in range(1, len(places)) if places[i] <= places[i - 1]]
            foreign = [place for place in places if place[0] not in known]
            expect(
                not wrong and not foreign,
                expected="positions that grow, with offsets of the input",
                found=f"output {output!r}: {places[max(0, wrong[0] - 1) : wrong[0] + 1] if wrong else foreign[:3]}",
                mend="keep the order of rows, and number several rows of one record again with headrace.renumber",
            )

    def test_header_is_kept(self) -> None:
        """Each row keeps the header of its record: offset, index, time and key, with their types.

        Steps: run 120 records. Passes when each row that comes out has its record's time and key.
        """
        outcome = self.run([self.input()])
        mend = "keep the columns in headrace.flow.messages.HEADER_COLUMNS, unchanged"
        for output in outcome.outputs():
            rows = outcome.frame(output)
            assert rows is not None
            kinds = {name: rows.schema.get(name) for name in HEADER_TYPES}
            expect(
                kinds == dict(HEADER_TYPES),
                expected=f"header columns {dict(HEADER_TYPES)}",
                found=f"{kinds}",
                mend=mend,
            )
            wrong = rows.filter(
                (pl.col(TIME).dt.epoch("us") != pl.col(OFFSET) * 1_000_000 + 1_700_000_000_000_000)
                | pl.col(KEY).ne_missing(pl.Series([key_of(offset) for offset in rows[OFFSET]], dtype=pl.Binary))
                | pl.col(TIME).is_null()
            )
            expect(
                wrong.height == 0,
                expected="each row has its record's time and key",
                found=f"{wrong.height} rows have other ones: {shortened(wrong.head(1).select(list(HEADER_TYPES)).to_dicts())}",
                mend=mend,
            )

    def test_input_is_not_changed(self) -> None:
        """The input batch must not be changed, because another operator may get it too (after a split).

        Steps: run a batch and compare it with a copy made before. Passes when both are equal.
        """
        frame = self.input()
        before = frame.clone()
        columns, rows = frame.columns, frame.rows()
        self.run([frame])
        expect(
            frame.columns == columns and frame.rows() == rows and frame.equals(before),
            expected="an unchanged input frame",
            found="it has other columns or rows",
            mend="use methods that return a new frame (with_columns), not those that change it (insert_column)",
        )

    def test_output_schema_is_what_comes_out(self) -> None:
        """``output_schema`` gives the columns and types of every output: later verbs are checked against it.

        Steps: run 120 records, compare each output's columns with ``output_schema``. Passes when names and types are the
        same; if it returns None, rows must be packed in the row column.
        """
        spec = self.make_spec()
        outcome = self.run([self.input()], spec=spec)
        mend = "compute output_schema from the input's schema by the same rules as the rows"
        undeclared = [output for output in outcome.outputs() if output not in spec.outputs]
        expect(not undeclared, expected=f"outputs {list(spec.outputs)}", found=f"rows in {undeclared}", mend=mend)
        expect(
            bool(outcome.outputs()),
            expected="rows to compare with",
            found="no row came out of the operator",
            mend="override make_rows so that the operator gives some rows",
        )
        for output in outcome.outputs():
            declared, rows = spec.output_schema(self.input_schema, output), outcome.frame(output)
            assert rows is not None
            wanted = {ROW: pl.Binary()} if declared is None else dict(declared)
            found = user_columns(rows)
            expect(
                found == wanted,
                expected=f"output {output!r} with columns {wanted}",
                found=f"columns {found}",
                mend=mend,
            )

    def test_required_columns_are_enough(self) -> None:
        """``required_columns`` names every column that is needed, because sources decode no others.

        Steps: for each output column wanted, and for all, drop the input columns that are not required, and run. Passes
        when the wanted columns have the same values at the same positions.
        """
        spec = self.make_spec()
        schema, frame = self.input_schema, self.input()
        whole = self.run([frame], spec=spec)
        given = [name for name in frame.columns if name in HEADER_COLUMNS]
        for output in whole.outputs():
            rows = whole.frame(output)
            assert rows is not None
            columns = list(user_columns(rows))
            header = [name for name in given if name in rows.columns]
            for wanted in ([], *([column] for column in columns), columns):
                required = spec.required_columns(wanted, schema)
                if required is None:
                    continue
                mend = f"return every input column that the operator needs, for {wanted} and for itself"
                foreign = [name for name in required if name not in schema]
                expect(not foreign, expected=f"columns of the input {list(schema)}", found=f"{foreign}", mend=mend)
                narrow = frame.select([*given, *(name for name in schema if name in set(required))])
                try:
                    found = self.run([narrow], spec=spec).frame(output)
                except Exception as error:
                    violated(
                        expected=f"{list(required)} is enough for {wanted}",
                        found=f"{type(error).__name__}: {shortened(str(error))}",
                        mend=mend,
                    )
                kept = [*header, *wanted]
                narrow_rows = None if found is None else found.select([name for name in kept if name in found.columns])
                expect_same_frame(
                    narrow_rows, rows.select(kept), what=f"{wanted} from the columns {list(required)}", mend=mend
                )

    def test_empty_batch(self) -> None:
        """A batch without rows gives no rows and no error.

        Steps: run an empty batch between two others. Passes when the outcome is the same as without it.
        """
        frame, spec = self.input(), self.make_spec()
        first, second = cut(frame, RECORDS // 2)
        try:
            found = self.run([first, frame.clear(), second], spec=spec)
        except Exception as error:
            violated(
                expected="an empty batch gives nothing",
                found=f"{type(error).__name__}: {shortened(str(error))}",
                mend="check that there is a row before you use the first row or a maximum",
            )
        self.expect_same(
            found, self.run([first, second]), what="an empty batch in between", mend="give no rows for an empty batch"
        )

    def test_null_values(self) -> None:
        """Rows of NULLs are processed or rejected; they do not stop the job.

        Steps: run a row in which all columns are NULL, and for each column a row in which it is NULL. Passes when nothing is
        raised, and the outcome is the same in batches of one row.
        """
        rows = self.make_rows(0, len(self.schema))
        for name, row in zip(self.schema, rows, strict=True):
            row[name] = None
        rows.append(dict.fromkeys(self.schema))
        frame, spec = self.input(rows=rows), self.make_spec()
        try:
            whole, apart = self.run([frame], spec=spec), self.run(cut(frame, 1), spec=spec)
        except Exception as error:
            violated(
                expected="rows with NULLs are processed or rejected",
                found=f"{type(error).__name__}: {shortened(str(error))}",
                mend="decide what NULL means (SQL: an unknown value), or return the row in RejectedRows",
            )
        self.expect_same(apart, whole, what="rows with NULLs, one by one", mend=_CUTS)

    def test_system_messages_change_nothing(self) -> None:
        """Checkpoints and watermarks come at any time: the rows of a stateless operator do not depend on them.

        Steps: run the input in batches of 50, once with system messages after each batch. Passes when the outcomes are
        the same.
        """
        parts = cut(self.input(), 50)
        self.expect_same(
            self.run(parts, between=messages()),
            self.run(parts),
            what="with system messages between batches",
            mend="return () from on_system, and keep no state that it could change",
        )

    def test_lanes_are_independent(self) -> None:
        """Each lane opens its own operator from one spec: these operators share no state.

        Steps: open two from the same spec, and give them batches of two queues in turn. Passes when the first one gives the
        same rows as alone.
        """
        spec, parts = self.make_spec(), cut(self.input(), 50)
        alone = self.run(parts, spec=self.make_spec())
        one, other = self.open(spec), self.open(spec)
        found = Outcome()
        for part in parts:
            collect(found, one.process(Batch(QUEUE, part)))
            for result in other.process(Batch(Queue("other", "source"), part)):
                del result
        one.close()
        other.close()
        mend = "keep state in the operator, not in the spec or in a class attribute"
        self.expect_same(found, alone, what="with another lane at the same time", mend=mend)

    def test_survives_pickle(self) -> None:
        """The plan, and the specs in it, are sent to worker processes with cloudpickle.

        Steps: send the spec through cloudpickle and run the copy. Passes when the outcome is the same.
        """
        spec = self.make_spec()
        spec.output_schema(self.input_schema)
        frame = self.input()
        copy = through_pickle(spec, what="a spec")
        self.expect_same(
            self.run([frame], spec=copy), self.run([frame]), what="from the copy", mend="keep everything in attributes"
        )

    def test_same_output_elsewhere(self) -> None:
        """The outcome is the same in another process: results must not depend on the hash seed, the clock, chance or paths.

        Steps: run the input here, and in a new process with another hash seed. Passes when the outcomes are the same.
        """
        frame, spec, schema = self.input(), self.make_spec(), self.input_schema
        whole = self.run([frame], spec=spec)

        def run() -> Outcome:
            outcome = Outcome()
            operator = spec.open(schema)
            for result in operator.process(Batch(QUEUE, frame)):
                (outcome.batches if isinstance(result, Batch) else outcome.rejected).append(result)  # type: ignore[arg-type]
            operator.close()
            return outcome

        found = elsewhere(run, importable=(type(spec), type(self)), patience_seconds=self.patience.total_seconds())
        self.expect_same(
            found, whole, what="in another process", mend="use no hash(), set order, clock or random number for results"
        )

    def test_every_row_is_accounted_for(self) -> None:
        """No row is lost: each is given or rejected, as ``rows_out`` says.

        Steps: run 120 records. Passes when, with "one", each row is given by one output or rejected, once; with "at most
        one", no row is given or rejected twice.
        """
        if self.rows_out == "any":
            pytest.skip('not checked: rows_out = "any"')
        frame = self.input()
        outcome = self.run(cut(frame, 50))
        places = list(frame.select(OFFSET, INDEX).iter_rows())
        out = [place for batch in outcome.batches for place in batch.frame.select(OFFSET, INDEX).iter_rows()]
        out += [(offset, index) for offset, index, _ in outcome.refused()]
        twice, foreign = sorted({p for p in out if out.count(p) > 1}), sorted(set(out) - set(places))
        lost = sorted(set(places) - set(out)) if self.rows_out == "one" else []
        expect(
            not (twice or foreign or lost),
            expected=f"{self.rows_out} row (or rejection) for each of the {len(places)} rows of the input",
            found=f"lost {lost[:3]}, twice {twice[:3]}, not in the input {foreign[:3]}",
            mend="give each row at its position, or in RejectedRows; or declare another rows_out",
        )

    def test_bad_row_is_rejected(self) -> None:
        """A row that cannot be processed is rejected with a reason; the other rows give the same as without it.

        Steps: run 9 rows, the author's bad row in their middle. Passes when only this row is rejected, unchanged, with a
        reason, and the others give the same as without it.
        """
        self.need("bad_row")
        rows = self.make_rows(0, 9)
        frame, spec = self.input(rows=[*rows[:4], self.bad_row(), *rows[5:]]), self.make_spec()
        whole = frame.filter(pl.col(OFFSET) == 4)
        mend = "return RejectedRows(the unchanged rows, with header; one reason for each)"
        try:
            outcome = self.run([frame], spec=spec)
        except Exception as error:
            violated(
                expected="the bad row is rejected", found=f"{type(error).__name__}: {shortened(str(error))}", mend=mend
            )
        wrong = [len(r.reasons) for r in outcome.rejected if len(r.reasons) != r.frame.height]
        expect(not wrong, expected="one reason per rejected row", found=f"{wrong} reasons", mend=mend)
        without = self.run([frame.filter(pl.col(OFFSET) != 4)])
        others = without.refused()
        refused = [place for place in outcome.refused() if place not in others]
        good = [place[:2] for place in refused] == [(4, 0)] and bool(refused[0][2].strip())
        expect(good, expected="row (4, 0) is rejected with a reason", found=f"rejected: {refused}", mend=mend)
        rejected = next(r.frame for r in outcome.rejected if 4 in r.frame[OFFSET]).filter(pl.col(OFFSET) == 4)
        missing = [name for name in whole.columns if name not in rejected.columns]
        expect(not missing, expected=f"the unchanged row: {whole.columns}", found=f"without {missing}", mend=mend)
        expect_same_frame(rejected.select(whole.columns), whole, what="the rejected row", mend=mend)
        for output in without.outputs():
            expect_same_frame(outcome.frame(output), without.frame(output), what="the other rows", mend=mend)

    def test_columns_are_checked(self) -> None:
        """Input columns that do not fit are an error when the job is built, not when it runs.

        Steps: give ``output_schema`` the author's unfit columns. Passes when it raises a JobError.
        """
        self.need("unfit_schema")
        schema = Schema.of(self.unfit_schema())
        try:
            self.make_spec().output_schema(schema)
        except JobError:
            return
        violated(
            expected="output_schema raises JobError for columns that do not fit",
            found=f"it accepted {schema!r}",
            mend="check the input's columns in output_schema; raise JobError with the column and the most similar one",
        )
