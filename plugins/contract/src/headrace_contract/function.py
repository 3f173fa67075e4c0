"""The contracts of user functions: scalar, table and aggregate."""

from __future__ import annotations

import copy
import math
import random
import re
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import msgspec
import polars as pl
import pytest
from headrace.flow.schema import data_type
from headrace.interfaces.functions import AggregateFunction, ScalarFunction, TableFunction, UserFunction, resolve

from headrace_contract.contract import Contract, expect, shortened, violated
from headrace_contract.pickling import through_pickle
from headrace_contract.processes import elsewhere
from headrace_contract.values import canonical

Arguments = tuple[Any, ...]


class FunctionHarness(Contract):
    """The part of the contracts that an author of a function fills in."""

    #: Arguments and their right result. Give several cases: the other checks use their arguments too.
    cases: ClassVar[Sequence[tuple[Sequence[Any], Any]]]
    #: Types of the arguments: necessary for vectorized functions if the cases do not determine them.
    argument_types: ClassVar[Sequence[str] | None] = None
    #: True for the rule of SQL that a NULL argument gives NULL; False if the function has another result for NULL.
    null_gives_null: ClassVar[bool] = True

    def make_function(self) -> Any:
        """Return the function: a decorated function, a callable, ``"package.module:name"`` or an object with ``eval``."""
        raise NotImplementedError

    def function(self) -> UserFunction:
        """Return the function as headrace resolves it."""
        return resolve(self.make_function())

    def arguments(self) -> list[Any]:
        """Return copies of the arguments of all cases, so that a function that changes them does no harm."""
        return [copy.deepcopy(arguments) for arguments, _ in self.cases]

    def results(self, function: Callable[..., Any], arguments: Sequence[Arguments]) -> list[Any]:
        """Return the function's results for these arguments. Each kind of contract implements it."""
        return [function(*these) for these in arguments]

    def expect_equal(self, found: Sequence[Any], wanted: Sequence[Any], *, what: str, mend: str) -> None:
        """Fail the check unless the results are the same, in order."""
        __tracebackhide__ = True
        for arguments, one, other in zip(self.arguments(), found, wanted, strict=False):
            expect(
                same(one, other),
                expected=f"{what}: {shortened(other)} for {shortened(arguments)}",
                found=shortened(one),
                mend=mend,
            )
        expect(len(found) == len(wanted), expected=f"{what}: {len(wanted)} results", found=f"{len(found)}", mend=mend)


class FunctionChecks(FunctionHarness):
    """What all kinds of functions must do."""

    def test_results_are_right(self) -> None:
        """The function gives the results that its author expects.

        Steps: call it with the arguments of each case. Passes when each result is the case's.
        """
        wanted = [result for _, result in self.cases]
        expect(bool(wanted), expected="at least one case", found="none", mend="give cases = [((arguments), result), …]")
        found = self.results(self.function(), self.arguments())
        for these, one, other in zip(self.arguments(), found, wanted, strict=True):
            expect(
                close(one, other),
                expected=f"{shortened(other)} for {shortened(these)}",
                found=shortened(one),
                mend="correct the function, or the case",
            )

    def test_arguments_are_not_changed(self) -> None:
        """The function must not change lists, dicts and Series in its arguments, because they belong to the batch.

        Steps: call it with copies of each case's arguments. Passes when these are unchanged.
        """
        given = self.arguments()
        self.results(self.function(), given)
        for before, after in zip(self.arguments(), given, strict=True):
            expect(
                same(after, before),
                expected=f"unchanged arguments: {shortened(before)}",
                found=shortened(after),
                mend="work on a copy: list(value), dict(value), series.clone()",
            )

    def test_survives_pickle(self) -> None:
        """Functions are sent to worker processes with cloudpickle, with the job.

        Steps: send it through cloudpickle and call the copy. Passes when the results are the same.
        """
        function = self.function()
        made = through_pickle(function, what="a function")
        wanted = self.results(function, self.arguments())
        self.expect_equal(
            self.results(made, self.arguments()),
            wanted,
            what="by the copy",
            mend="keep everything that the function needs in the function itself",
        )

    def test_same_results_elsewhere(self) -> None:
        """The results are the same the second time, and in another process: replays and retries depend on it.

        Steps: call it twice here, and in a new process with another hash seed. Passes when all results are the same. For
        functions that are ``deterministic``.
        """
        function, arguments = self.function(), self.arguments()
        if isinstance(function, ScalarFunction) and not function.deterministic:
            pytest.skip("not checked: the function says that it is not deterministic")
        mend = "use no hash(), set order, clock or random number; or declare deterministic=False"
        wanted = self.results(function, arguments)
        self.expect_equal(self.results(function, arguments), wanted, what="the second time", mend=mend)
        run = self._runner(function, arguments)
        kinds = (type(self), *_kinds_of(function))
        found = elsewhere(run, importable=kinds, patience_seconds=self.patience.total_seconds())
        self.expect_equal(found, wanted, what="in another process", mend=mend)

    def test_name_fits_sql(self) -> None:
        """A function is called by its name in SQL texts.

        Steps: look at the name. Passes when it has only letters, digits and underscores, and begins with no digit.
        """
        name = self.function().name
        expect(
            re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name),
            expected="a name of letters, digits and underscores",
            found=repr(name),
            mend="pass name='…' to the decorator",
        )

    def _runner(self, function: UserFunction, arguments: Sequence[Arguments]) -> Callable[[], list[Any]]:
        results = self.results
        return lambda: results(function, arguments)


class FunctionContract(FunctionChecks):
    """What every scalar function (UDF) must do. An author gives ``make_function`` and ``cases``.

    class TestShout(FunctionContract):
        cases = [(("hey",), "HEY!"), (("",), "!"), ((None,), None)]

        def make_function(self):
            return shout
    """

    def results(self, function: Callable[..., Any], arguments: Sequence[Arguments]) -> list[Any]:
        """Call the function as SQL does: once per row or, if it is vectorized, with a Series per argument."""
        if not (isinstance(function, ScalarFunction) and function.vectorized):
            return super().results(function, arguments)
        found = function(*self.columns(arguments))
        expect(
            isinstance(found, pl.Series) and len(found) == len(arguments),
            expected=f"a polars Series of {len(arguments)} results",
            found=f"{len(found)} results" if isinstance(found, pl.Series) else shortened(found),
            mend="return one result for each row of the input",
        )
        return list(found.to_list())

    def columns(self, arguments: Sequence[Arguments]) -> list[pl.Series]:
        """Return one Series for each argument."""
        width = len(self.cases[0][0])
        types: Sequence[str | None] = self.argument_types or [None] * width
        shown = [[these[at] for these in self.arguments()] for at in range(width)]
        kinds = [data_type(kind) if kind else pl.Series(shown[at]).dtype for at, kind in enumerate(types)]
        return [pl.Series(f"a{at}", [these[at] for these in arguments], dtype=kinds[at]) for at in range(width)]

    def function(self) -> ScalarFunction:
        """Return the function as headrace resolves it. Fails the check if it is not a scalar function."""
        found = super().function()
        if not isinstance(found, ScalarFunction):
            violated(
                expected="a scalar function",
                found=type(found).__name__,
                mend="use TableFunctionContract or AggregateFunctionContract",
            )
        return found

    def test_rows_are_treated_by_themselves(self) -> None:
        """A result depends only on its own row: a vectorized call gives the same as calls for single rows.

        Steps: call the function with all rows, with each alone, with pairs, and in another order. Passes when each row
        has the same result.
        """
        function, arguments = self.function(), self.arguments() * 3
        wanted = self.results(function, self.arguments()) * 3
        mend = "use no rank, cumulative or aggregate of the column, and no state between calls"
        for size in (len(arguments), 1, 2):
            parts = [arguments[begin : begin + size] for begin in range(0, len(arguments), size)]
            found = [result for part in parts for result in self.results(function, part)]
            self._expect_rows(found, wanted, arguments, f"in calls of {size} rows", mend)
        order = list(range(len(arguments)))
        random.Random(7).shuffle(order)
        found = self.results(function, [arguments[i] for i in order])
        self._expect_rows(found, [wanted[i] for i in order], [arguments[i] for i in order], "in another order", mend)

    def test_null_arguments(self) -> None:
        """A NULL argument raises no error and, by the rule of SQL, gives NULL.

        Steps: take the first case, replace each argument, and then all, by NULL. Passes when nothing is raised and, with
        ``null_gives_null``, the result is NULL.
        """
        function, given = self.function(), self.arguments()[0]
        rows = [tuple(None if at in (i, len(given)) or i == len(given) else value for i, value in enumerate(given))
                for at in range(len(given) + 1)]  # fmt: skip
        for row in rows:
            mend = "return None if an argument is None, or declare null_gives_null = False and give cases with NULL"
            try:
                (found,) = self.results(function, [row])
            except Exception as error:
                violated(
                    expected=f"a result for {shortened(row)}",
                    found=f"{type(error).__name__}: {shortened(str(error))}",
                    mend=mend,
                )
            good = found is None or not self.null_gives_null
            expect(good, expected=f"NULL for {shortened(row)}", found=shortened(found), mend=mend)

    def test_return_type_is_kept(self) -> None:
        """Results have the declared type: later verbs are checked against it.

        Steps: put the results of all cases into a column of ``return_type``. Passes when they fit, and are the same.
        """
        function = self.function()
        if function.vectorized:
            found = function(*self.columns(self.arguments()))
            expect(
                found.dtype == function.return_type,
                expected=f"a Series of {function.return_type}",
                found=f"{found.dtype}",
                mend="declare the type that it returns, or cast the result",
            )
            return
        results = self.results(function, self.arguments())
        mend = "declare the type that it returns (returns='…' or the annotation), or convert the result"
        try:
            column = pl.Series("r", results, dtype=function.return_type, strict=True).to_list()
        except Exception as error:
            violated(
                expected=f"results of type {function.return_type}",
                found=f"{shortened(results)}: {type(error).__name__}: {shortened(str(error))}",
                mend=mend,
            )
        self.expect_equal(column, results, what=f"as {function.return_type}", mend=mend)

    def _expect_rows(
        self, found: Sequence[Any], wanted: Sequence[Any], arguments: Sequence[Arguments], what: str, mend: str
    ) -> None:
        __tracebackhide__ = True
        for these, one, other in zip(arguments, found, wanted, strict=True):
            expect(
                same(one, other),
                expected=f"{what}: {shortened(other)} for {shortened(these)}",
                found=shortened(one),
                mend=mend,
            )


class TableFunctionContract(FunctionChecks):
    """What every table function (UDTF) must do. A case's result is the list of its rows, as dicts."""

    def results(self, function: Callable[..., Any], arguments: Sequence[Arguments]) -> list[Any]:
        """Return for each call the list of its rows, as dicts with the declared columns."""
        assert isinstance(function, TableFunction)
        names = list(function.schema)
        return [[_row(row, names) for row in function(*these)] for these in arguments]

    def test_rows_fit_the_schema(self) -> None:
        """The rows have the declared columns, with values of their types.

        Steps: put the rows of all cases into a frame of ``schema``. Passes when they fit, and are the same.
        """
        function = self.function()
        assert isinstance(function, TableFunction)
        rows = [row for result in self.results(function, self.arguments()) for row in result]
        mend = "yield dicts with the columns of returns={…}, or tuples in their order"
        foreign = sorted({name for row in rows for name in row if name not in function.schema})
        expect(not foreign, expected=f"columns {list(function.schema)}", found=f"also {foreign}", mend=mend)
        whole = [{name: row.get(name) for name in function.schema} for row in rows]
        try:
            frame = pl.DataFrame(whole, schema=dict(function.schema), strict=True, orient="row")
        except Exception as error:
            violated(
                expected=f"rows of {function.schema!r}",
                found=f"{shortened(rows)}: {type(error).__name__}: {shortened(str(error))}",
                mend=mend,
            )
        expect(
            same(frame.to_dicts(), whole),
            expected=f"rows of {function.schema!r}",
            found=f"{shortened(whole)}, which become {shortened(frame.to_dicts())}",
            mend=mend,
        )

    def test_calls_are_independent(self) -> None:
        """Each call gives the rows of its own arguments, also if another call was not read to its end.

        Steps: read one row of a call for each case, then call with all cases. Passes when the results are those of before.
        """
        function = self.function()
        wanted = self.results(function, self.arguments())
        for these in self.arguments():
            next(iter(function(*these)), None)
        found = self.results(function, list(reversed(self.arguments())))
        self.expect_equal(
            list(reversed(found)),
            wanted,
            what="after calls that were not read to their end",
            mend="keep no state between calls",
        )


class AggregateFunctionContract(FunctionChecks):
    """What every aggregate function (UDAF) must do. A case's arguments are rows of arguments: ``([(1,), (2,)], 3)``."""

    def results(self, function: Callable[..., Any], arguments: Sequence[Any]) -> list[Any]:
        """Aggregate the rows of each case."""
        assert isinstance(function, AggregateFunction)
        aggregate = function()
        return [aggregate.result(_added(aggregate, aggregate.create(), rows)) for rows in arguments]

    def test_parts_merge_to_the_whole(self) -> None:
        """Merged partial aggregates give the same result as one aggregate: windows and shards depend on it.

        Steps: divide the rows of each case at every place, aggregate both parts and merge them; one part may be empty.
        Passes when the result is that of all rows.
        """
        function = self.function()
        assert isinstance(function, AggregateFunction)
        aggregate = function()
        for rows, wanted in zip(self.arguments(), self.results(function, self.arguments()), strict=True):
            for at in range(len(rows) + 1):
                left = _added(aggregate, aggregate.create(), rows[:at])
                right = _added(aggregate, aggregate.create(), rows[at:])
                found = aggregate.result(aggregate.merge(left, right))
                expect(
                    close(found, wanted),
                    expected=f"{shortened(wanted)} for {shortened(rows)}, divided at row {at} and merged",
                    found=shortened(found),
                    mend="merge(state, other) must combine both states; everything that is needed must be in the state",
                )

    def test_state_can_be_stored(self) -> None:
        """State has only MessagePack types, so that it can be stored in a checkpoint.

        Steps: after each row encode the state as MessagePack, decode it, and continue with the copy. Passes when the results
        are the same.
        """
        function = self.function()
        assert isinstance(function, AggregateFunction)
        aggregate = function()
        mend = "keep state as numbers, texts, bytes, lists and dicts"
        for rows, wanted in zip(self.arguments(), self.results(function, self.arguments()), strict=True):
            state = aggregate.create()
            try:
                for row in rows:
                    state = msgspec.msgpack.decode(msgspec.msgpack.encode(aggregate.add(state, *row)))
                found = aggregate.result(state)
            except Exception as error:
                violated(
                    expected="state that MessagePack can store",
                    found=f"{type(error).__name__}: {shortened(str(error))}",
                    mend=mend,
                )
            expect(
                same(found, wanted),
                expected=f"{shortened(wanted)} for {shortened(rows)}",
                found=shortened(found),
                mend=mend,
            )

    def test_groups_are_independent(self) -> None:
        """Each group has its own state: ``create`` returns a new one.

        Steps: create two states, add the rows of a case to one. Passes when the result of the other is that of no rows.
        """
        function = self.function()
        assert isinstance(function, AggregateFunction)
        aggregate = function()
        wanted = aggregate.result(aggregate.create())
        for rows in self.arguments():
            one, other = aggregate.create(), aggregate.create()
            _added(aggregate, one, rows)
            found = aggregate.result(other)
            expect(
                same(found, wanted),
                expected=f"{shortened(wanted)} for a group without rows",
                found=shortened(found),
                mend="make a new state in create; keep nothing in the object",
            )

    def test_retract_undoes_add(self) -> None:
        """``retract`` removes a row that was added before, for results that change.

        Steps: add the rows of each case and its first row once more, and retract this row. Passes when the result is that of
        the case. For functions that have ``retract``.
        """
        function = self.function()
        assert isinstance(function, AggregateFunction)
        aggregate = function()
        if not hasattr(aggregate, "retract"):
            pytest.skip("not checked: the function has no retract")
        for rows, wanted in zip(self.arguments(), self.results(function, self.arguments()), strict=True):
            if not rows:
                continue
            state = _added(aggregate, aggregate.create(), [*rows, rows[0]])
            found = aggregate.result(aggregate.retract(state, *rows[0]))
            expect(
                close(found, wanted),
                expected=f"{shortened(wanted)} after retracting {shortened(rows[0])}",
                found=shortened(found),
                mend="retract(state, *values) must be the inverse of add; do not define it if there is no inverse",
            )


def same(one: Any, other: Any) -> bool:
    """Return whether two values are equal and of the same type: NaN equals itself, 1 equals neither 1.0 nor True."""
    return repr(canonical(one)) == repr(canonical(other))


def close(one: Any, other: Any) -> bool:
    """Return whether two values are the same; floats may differ by rounding (1e-9 relative, 1e-12 absolute)."""
    if isinstance(one, float) and isinstance(other, float):
        return same(one, other) or math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-12)
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(close(one[name], other[name]) for name in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(close(a, b) for a, b in zip(one, other, strict=True))
    return same(one, other)


def _added(aggregate: Any, state: Any, rows: Sequence[Arguments]) -> Any:
    for row in rows:
        state = aggregate.add(state, *row)
    return state


def _row(row: Any, names: Sequence[str]) -> dict[str, Any]:
    if isinstance(row, dict):
        return row
    return dict(zip(names, row if isinstance(row, tuple) else (row,), strict=True))


def _kinds_of(function: UserFunction) -> list[type]:
    """Return classes in the modules that the function needs: a new process must import these modules."""
    target = function.implementation if isinstance(function, AggregateFunction) else function.function
    home = getattr(target, "__module__", None)
    made = type("Home", (), {"__module__": home}) if home else object
    return [made, *([target] if isinstance(target, type) else [])]
