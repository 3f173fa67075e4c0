"""Run compiled expressions over frames, and say which rows failed and why."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import polars as pl
from headrace.foundation.errors import NOT_THE_FAULT_OF_A_ROW, DataError, FunctionError
from headrace_columnar.python_values import is_shallow, series_of

if TYPE_CHECKING:
    from headrace_columnar.expressions import CompiledExpression

#: (row in the frame, what went wrong there)
RowFailure = tuple[int, Exception]


@runtime_checkable
class UserFunction(Protocol):
    """What the compiler needs of a user's scalar function; ``headrace.interfaces.functions.ScalarFunction`` is one."""

    @property
    def name(self) -> str: ...
    @property
    def function(self) -> Callable[..., Any]: ...
    @property
    def return_type(self) -> pl.DataType: ...
    @property
    def vectorized(self) -> bool: ...
    @property
    def deterministic(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class Check:
    """A way in which a row can fail: it fails where ``condition`` is true; ``value`` is the wrong value."""

    condition: pl.Expr
    message: str
    value: pl.Expr | None = None


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """A call of a user function, made before the expression that uses its result as the column ``column``.

    Rows in which ``guard`` is not true do not need the result (other branch of a CASE, …): there it is not called.
    """

    column: str
    function: UserFunction
    arguments: tuple[pl.Expr, ...]
    guard: pl.Expr | None = None


@dataclass(slots=True)
class _Rows:
    """The failures of a frame, at most one per row: the first one found is reported."""

    found: dict[int, Exception] = field(default_factory=dict)

    def add(self, row: int, error: Exception) -> None:
        self.found.setdefault(row, error)

    def listed(self) -> list[RowFailure]:
        return sorted(self.found.items())


def evaluate(compiled: CompiledExpression, frame: pl.DataFrame) -> tuple[pl.Series, list[RowFailure]]:
    """Return the values of an expression for the rows of a frame, and the rows that failed, in order.

    Failed rows hold NULL (false for a predicate). The series has the frame's height and the expression's type. Raises
    only RetriableError and JobError from a user function, and polars' own errors when the frame is not of the compiled
    schema.
    """
    result, failures = evaluate_all([compiled], frame)
    return result.to_series(0), failures


def evaluate_all(
    compiled: Sequence[CompiledExpression], frame: pl.DataFrame, names: Sequence[str] | None = None
) -> tuple[pl.DataFrame, list[RowFailure]]:
    """Evaluate several expressions over one frame at once: a frame with a column for each, and the rows that failed.

    Columns are called ``names`` (by default ``"0"``, ``"1"``, …). A row that fails in any of them is listed once. A row
    whose values make polars or a function raise fails too, alone.
    """
    names = list(names) if names is not None else [str(index) for index in range(len(compiled))]
    result, failures = by_parts(lambda part: _all_evaluated(dict(zip(names, compiled, strict=True)), part), frame)
    return (_blank(result, compiled, [row for row, _ in failures]) if failures else result), failures


def by_parts(
    evaluated: Callable[[pl.DataFrame], tuple[pl.DataFrame, list[RowFailure]]], frame: pl.DataFrame
) -> tuple[pl.DataFrame, list[RowFailure]]:
    """Evaluate a frame; if that raises, halve it until the rows that raise are found. These fail, and hold NULL.

    ``evaluated`` returns as many rows as it is given, and those that failed. An error that also comes without any rows
    is no row's fault and is raised; so are errors that never are a row's fault (``NOT_THE_FAULT_OF_A_ROW``).
    """
    try:
        return evaluated(frame)
    except NOT_THE_FAULT_OF_A_ROW:
        raise
    except BaseException as error:
        if not _may_be_a_rows_fault(error):
            raise
        nothing, _ = evaluated(frame.clear())  # raises for errors that concern the columns
        if frame.height == 0:
            raise
        return _halved(evaluated, frame, nothing, error)


def _may_be_a_rows_fault(error: BaseException) -> bool:
    # A panic of polars is no Exception.
    return isinstance(error, Exception | pl.exceptions.PanicException)


def _halved(
    evaluated: Callable[[pl.DataFrame], tuple[pl.DataFrame, list[RowFailure]]],
    frame: pl.DataFrame,
    nothing: pl.DataFrame,
    error: BaseException,
) -> tuple[pl.DataFrame, list[RowFailure]]:
    if frame.height == 1:
        return nothing.clear(1), [(0, _of_row(error))]
    middle = frame.height // 2
    results: list[pl.DataFrame] = []
    failures: list[RowFailure] = []
    for begin, part in ((0, frame[:middle]), (middle, frame[middle:])):
        try:
            result, failed = evaluated(part)
        except NOT_THE_FAULT_OF_A_ROW:
            raise
        except BaseException as again:
            if not _may_be_a_rows_fault(again):
                raise
            result, failed = _halved(evaluated, part, nothing, again)
        results.append(result)
        failures += [(begin + row, each) for row, each in failed]
    return pl.concat(results), failures


def _of_row(error: BaseException) -> Exception:
    if isinstance(error, DataError):
        return error
    reason = next(iter(str(error).splitlines()), "") or type(error).__name__
    return DataError(f"this row cannot be evaluated: {_quoted_reason(reason)}")


def _quoted_reason(reason: str) -> str:
    return reason if len(reason) <= 200 else reason[:199] + "…"


def _all_evaluated(
    compiled: dict[str, CompiledExpression], frame: pl.DataFrame
) -> tuple[pl.DataFrame, list[RowFailure]]:
    rows = _Rows()
    parts = [_evaluated(part, frame, rows) for part in _parts(compiled)]
    result = parts[0] if len(parts) == 1 else pl.concat(parts, how="horizontal").select(list(compiled))
    return result, rows.listed()


def _parts(compiled: dict[str, CompiledExpression]) -> list[dict[str, CompiledExpression]]:
    """Divide expressions so that in no part two of them call user functions.

    Each was compiled by itself, so the columns that hold what its calls give have the same names as those of another.
    """
    calling = [name for name, one in compiled.items() if one.calls]
    if len(calling) < 2:
        return [compiled]
    apart = set(calling[1:])
    first = {name: one for name, one in compiled.items() if name not in apart}
    return [first, *({name: compiled[name]} for name in calling[1:])]


def _evaluated(compiled: dict[str, CompiledExpression], frame: pl.DataFrame, rows: _Rows) -> pl.DataFrame:
    frame = _call_functions(list(compiled.values()), frame, rows)
    checks = [check for one in compiled.values() for check in one.checks]
    columns = [one.staged.alias(name) for name, one in compiled.items()]
    if checks:
        columns.append(pl.any_horizontal([check.condition for check in checks]).alias("__hr_failed"))
    result = select_all_rows(frame, columns)
    if checks:
        failed = result.drop_in_place("__hr_failed").fill_null(False)
        if failed.any():
            _explain(frame, checks, failed, rows)
    return result


def select_all_rows(frame: pl.DataFrame, columns: Sequence[pl.Expr]) -> pl.DataFrame:
    """Select with one value per row always: constants, which polars gives as one row, are spread over the height.

    For operators that evaluate expressions of polars themselves; ``evaluate`` does it for compiled ones.
    """
    try:
        result = frame.select(columns)
    except pl.exceptions.InvalidOperationError:
        # polars 2.1 loses the height of a comparison if its right side has the same value for the whole batch and the
        # optimizer made the left side a literal. Then it refuses the result beside other columns. Alone, such an
        # expression comes as the one value that all rows have.
        if len(columns) == 1:
            raise
        return pl.DataFrame([select_all_rows(frame, [column]).to_series() for column in columns])
    if result.height == frame.height:
        return result
    return pl.DataFrame([column.new_from_index(0, frame.height) for column in result.get_columns()])


def _blank(result: pl.DataFrame, compiled: Sequence[CompiledExpression], failed: list[int]) -> pl.DataFrame:
    marks = pl.Series(failed, dtype=pl.Int64)
    is_failed = pl.int_range(pl.len()).is_in(marks.implode())
    replaced = []
    for name, one in zip(result.columns, compiled, strict=True):
        instead = False if one.is_predicate else None
        replaced.append(
            pl.when(is_failed).then(pl.lit(instead, dtype=one.data_type)).otherwise(pl.col(name)).alias(name)
        )
    return result.with_columns(replaced)


def _explain(frame: pl.DataFrame, checks: Sequence[Check], failed: pl.Series, rows: _Rows) -> None:
    places = failed.arg_true()
    part = frame[places]
    positions = places.to_list()
    for check in checks:
        asked = [check.condition.alias("failed")]
        if check.value is not None:
            asked.append(check.value.alias("value"))
        answer = part.select(asked)
        conditions = answer["failed"].to_list()
        values = answer["value"].to_list() if check.value is not None else [None] * len(conditions)
        if len(conditions) != len(positions):
            conditions, values = conditions * len(positions), values * len(positions)
        for position, condition, value in zip(positions, conditions, values, strict=True):
            if condition:
                rows.add(position, DataError(check.message.replace("{value}", _quoted(value))))


def _quoted(value: object) -> str:
    text = repr(value) if isinstance(value, str | bytes) else str(value)
    return text if len(text) <= 100 else text[:97] + "…"


def _call_functions(compiled: Sequence[CompiledExpression], frame: pl.DataFrame, rows: _Rows) -> pl.DataFrame:
    for one in compiled:
        for call in one.calls:
            asked = [argument.alias(str(index)) for index, argument in enumerate(call.arguments)]
            if call.guard is not None:
                asked.append(call.guard.alias("guard"))
            # A column of the frame's own height makes constants as long as the rest.
            arguments = frame.with_row_index("__hr_call_row").select("__hr_call_row", *asked).drop("__hr_call_row")
            guard = arguments.drop_in_place("guard") if call.guard is not None else None
            result, failures = apply(call.function, arguments.get_columns(), frame.height, guard)
            for row, error in failures:
                rows.add(row, error)
            frame = frame.with_columns(result.alias(call.column))
    return frame


def apply(
    function: UserFunction, arguments: Sequence[pl.Series], height: int, guard: pl.Series | None = None
) -> tuple[pl.Series, list[RowFailure]]:
    """Call a user function for the rows in which ``guard`` is true (all, without one); elsewhere the result is NULL.

    Returns a series of ``height`` and the rows whose call raised. RetriableError is not a row's fault: it is raised.
    """
    if guard is None or guard.all():
        places = None
        count = height
    else:
        places = guard.fill_null(False).arg_true()
        arguments = [argument.gather(places) for argument in arguments]
        count = len(places)
    run = _run_vectorized if function.vectorized else _run_rows
    result, failures = run(function, arguments, count)
    if places is None:
        return result, failures
    full = pl.Series([None], dtype=function.return_type).new_from_index(0, height)
    if count:
        full = full.scatter(places, result) if not function.return_type.is_nested() else _scatter(full, places, result)
    return full, [(int(places[row]), error) for row, error in failures]


def _scatter(full: pl.Series, places: pl.Series, result: pl.Series) -> pl.Series:
    values = full.to_list()
    for place, value in zip(places.to_list(), result.to_list(), strict=True):
        values[place] = value
    return pl.Series(values, dtype=full.dtype)


def _run_rows(function: UserFunction, arguments: Sequence[pl.Series], count: int) -> tuple[pl.Series, list[RowFailure]]:
    values: list[Any] = []
    failures: list[RowFailure] = []
    call = function.function
    rows = zip(*(argument.to_list() for argument in arguments), strict=True) if arguments else ((),) * count
    for row in rows:
        try:
            values.append(call(*row))
        except NOT_THE_FAULT_OF_A_ROW:
            raise
        except Exception as error:  # the user's code may raise anything; the row goes to the dead letters with it
            failures.append((len(values), error))
            values.append(None)
    try:
        return series_of("", values, function.return_type), failures
    except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError):
        return _fit_values(function, values, failures)


def _fit_values(
    function: UserFunction, values: list[Any], failures: list[RowFailure]
) -> tuple[pl.Series, list[RowFailure]]:
    """Find the values that are not of the declared type: their rows fail."""
    for row, value in enumerate(values):
        try:
            series_of("", [value], function.return_type)
        except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError):
            kind = type(value).__name__
            shown_value = _quoted(value) if is_shallow(value) else "a value nested without end"
            problem = f"function {function.name!r} returned {shown_value} ({kind}), not {function.return_type}"
            failures.append((row, FunctionError(problem)))
            values[row] = None
    return series_of("", values, function.return_type), sorted(failures, key=lambda failure: failure[0])


def _run_vectorized(
    function: UserFunction, arguments: Sequence[pl.Series], count: int
) -> tuple[pl.Series, list[RowFailure]]:
    """Call once for all rows; if that raises, halve until the rows that raise are found."""
    if count == 0:
        return pl.Series([], dtype=function.return_type), []
    try:
        result = function.function(*arguments)
        return _checked(function, result, count), []
    except NOT_THE_FAULT_OF_A_ROW:
        raise
    except Exception as error:  # as in _run_rows
        if count == 1:
            return pl.Series([None], dtype=function.return_type), [(0, error)]
    half = count // 2
    first, failures = _run_vectorized(function, [argument.slice(0, half) for argument in arguments], half)
    second, more = _run_vectorized(function, [argument.slice(half) for argument in arguments], count - half)
    return first.append(second), failures + [(row + half, error) for row, error in more]


def _checked(function: UserFunction, result: Any, count: int) -> pl.Series:
    if not isinstance(result, pl.Series):
        result = series_of("", list(result), function.return_type)
    if len(result) != count:
        raise DataError(f"vectorized function {function.name!r} returned {len(result)} values for {count} rows")
    made: pl.Series = result
    return made.cast(function.return_type) if made.dtype != function.return_type else made
