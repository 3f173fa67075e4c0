"""No value of a row makes a function raise, and no row's result depends on the other rows of its batch."""

from __future__ import annotations

import contextlib
import datetime
import itertools
import random
import re
from decimal import Decimal

import polars as pl
import pytest
from headrace.flow.schema import Schema
from headrace.foundation.errors import ExpressionError
from headrace_columnar import registry
from headrace_columnar.expressions import CompiledExpression, compile_expression, evaluate, evaluate_all
from headrace_columnar.registry import Function, Parameter

TEXTS = [
    "", " ", "a", "%", "_", "\\", "$1", "(", "[", "é", "ß", "\u212a", "İ", "🙂", "a\nb", "\x00", "2024-02-30", "2024-05-06",
    "2024-05-06 07:08:09.5", "9999-12-31T23:59:59Z", "0001-01-01", "-5", "1e400", "NaN", "0x1F", "9" * 40,
    '{"a":[1,{"b":null}]}',
    '{"a":', "http://u@h:1/p?q=1#r", "10.0.0.1", "::1", "10.0.0.0/8", "%zz", "SGk=", "a,b,,c", "x" * 300, "ff", "１２",
    "25:00:00",
]  # fmt: skip
INTEGERS = [0, 1, -1, 2, 7, -7, 31, 64, 255, -300, 10**6, 2**31, -(2**31) - 1, 10**12, -(10**15), 2**63 - 1, -(2**63)]
FLOATS = [0.0, -0.0, 1.5, -2.5, 1e-300, 1e300, -1e15, float("inf"), float("-inf"), float("nan")]
DECIMALS = [Decimal("0.00"), Decimal("1.55"), Decimal("-2.45"), Decimal("99999999.99"), Decimal("-99999999.99")]
DATES = [datetime.date(1, 1, 1), datetime.date(1969, 12, 31), datetime.date(2024, 2, 29), datetime.date(9999, 12, 31)]
MOMENTS = [datetime.datetime.combine(day, datetime.time(23, 59, 59, 999999), datetime.UTC) for day in DATES]
COLUMNS: dict[str, pl.Series] = {
    "text": pl.Series([*TEXTS, None]),
    "integer": pl.Series([*INTEGERS, None], dtype=pl.Int64),
    "small": pl.Series([0, 1, -128, 127, None], dtype=pl.Int8),
    "unsigned": pl.Series([0, 2**64 - 1, None], dtype=pl.UInt64),
    "float": pl.Series([*FLOATS, None]),
    "decimal": pl.Series([*DECIMALS, None], dtype=pl.Decimal(10, 2)),
    "wide": pl.Series([Decimal("9" * 38), Decimal("-" + "9" * 38), Decimal(0), None], dtype=pl.Decimal(38, 0)),
    "boolean": pl.Series([True, False, None]),
    "binary": pl.Series([b"", b"abc", b"\xff\xfe", None]),
    "date": pl.Series([*DATES, None]),
    "timestamp": pl.Series([*MOMENTS, None], dtype=pl.Datetime("us", "UTC")),
    "naive": pl.Series([moment.replace(tzinfo=None) for moment in MOMENTS] + [None], dtype=pl.Datetime("us")),
    "time": pl.Series([datetime.time(0), datetime.time(23, 59, 59, 999999), None]),
    "duration": pl.Series(
        [datetime.timedelta(0), datetime.timedelta(days=-1, microseconds=1), None], dtype=pl.Duration("us")
    ),
    "numbers": pl.Series([[1, None, 3], [], [2**63 - 1], None], dtype=pl.List(pl.Int64)),
    "texts": pl.Series([["a", None], [], [""], None], dtype=pl.List(pl.String)),
    "map": pl.Series(
        [[{"key": "a", "value": 1}, {"key": "é", "value": None}], [], [{"key": None, "value": 2}], None],
        dtype=pl.List(pl.Struct({"key": pl.String, "value": pl.Int64})),
    ),
    "struct": pl.Series(
        [{"x": 1, "y": "a"}, {"x": None, "y": None}, None], dtype=pl.Struct({"x": pl.Int64, "y": pl.String})
    ),
}
BY_KIND: dict[str, list[str]] = {
    "string": ["text"], "text": ["text", "integer", "float", "decimal", "boolean", "date", "timestamp", "time", "binary"],
    "integer": ["integer", "small"], "number": ["integer", "float", "decimal", "wide", "unsigned"],
    "double": ["float", "integer", "decimal"], "boolean": ["boolean"], "bytes": ["binary", "text"],
    "date": ["date", "timestamp", "text"], "timestamp": ["timestamp", "naive", "date", "text"],
    "datetime": ["timestamp", "date"], "time": ["time"], "scalar": ["text"],
    "any": ["text", "float", "decimal", "timestamp", "duration", "numbers", "struct", "binary"],
    "array": ["numbers", "texts"], "array<string>": ["texts"], "struct": ["struct"],
    "map": ["map"],
}  # fmt: skip
GENERIC = ["integer", "text", "float", "timestamp", "decimal"]
CONSTANTS = {
    "unit": ["'MONTH'", "'DAY'", "'HOUR'", "'YEAR'"],
    "format": ["'yyyy-MM-dd HH:mm:ss'", "'dd.MM.yy'", "'EEE MMM d a hh:mm:ss.SSS'"],
    "path": ["'$.a'", "'$.a[*].b'", "'lax $'"], "charset": ["'utf-8'", "'utf-16'", "'us-ascii'"], "digits": ["2", "0", "-2"],
    "part": ["'HOST'", "'QUERY'", "'FILE'"], "zone": ["'Asia/Shanghai'", "'America/New_York'"], "from": ["'Europe/Paris'"],
    "to": ["'UTC'"], "bits": ["256"], "precision": ["0", "3"], "from_base": ["16"], "to_base": ["2"], "weekday": ["'Mon'"],
    "seed": ["7"], "brackets": ["'[]'", "'{}'"], "null_on_null": ["true", "false"],
    "ascending": ["false"], "name": ["'n'"], "between": ["','"], "inside": ["'='", "'1'"],
}  # fmt: skip


def choices(parameter: Parameter) -> list[str]:
    if parameter.constant:
        return CONSTANTS[parameter.name]
    if parameter.kind == "array<T>":
        return ["numbers"]
    return [*BY_KIND.get(parameter.kind, GENERIC)]


def calls(function: Function) -> list[str]:
    """Calls of the function with every number of arguments it takes, on columns of the kinds it takes."""
    made = []
    for signature in function.signatures:
        for count in range(signature.least, len(signature.parameters) + 1):
            parameters = [signature.parameter(index) for index in range(count)]
            generic = any(parameter.kind == "array<T>" for parameter in parameters)
            options = [
                ["integer"] if generic and parameter.kind == "T" else choices(parameter) for parameter in parameters
            ]
            combinations = list(itertools.product(*options))
            random.Random(function.name).shuffle(combinations)
            made += [f"{function.name}({', '.join(arguments)})" for arguments in combinations[:5]]
    return list(dict.fromkeys(made))


def awkward_rows(height: int) -> pl.DataFrame:
    """Rows in which each column holds any of its values."""
    chance = random.Random(7)
    return pl.DataFrame(
        {
            name: series.gather([chance.randrange(len(series)) for _ in range(height)])
            for name, series in COLUMNS.items()
        }
    )


FRAME = awkward_rows(160)
SCHEMA = Schema(dict(FRAME.schema))


def values_of(series: pl.Series) -> list[str]:
    """The values in a form in which NaN equals itself."""
    return [repr(value) for value in series.to_list()]


def check(compiled: CompiledExpression, text: str) -> None:
    check_all([compiled])


def check_all(compiled: list[CompiledExpression]) -> None:
    """Evaluate over all rows, over parts of them, over none and over NULLs: nothing raises, and the parts agree."""
    if not compiled:
        return
    whole, failures = evaluate_all(compiled, FRAME)
    assert [series.dtype for series in whole] == [one.data_type for one in compiled]
    assert whole.height == FRAME.height
    failed = dict(failures)
    for start, stop in ((0, 1), (1, 30), (30, 160)):
        part, part_failures = evaluate_all(compiled, FRAME[start:stop])
        assert [row + start for row, _ in part_failures] == [row for row in failed if start <= row < stop]
        for one, values, wanted in zip(compiled, part, whole[start:stop], strict=True):
            same = values_of(values) == values_of(wanted) or not one.deterministic
            assert same, f"{one.text}: the result depends on the batch"
    empty, _ = evaluate_all(compiled, FRAME.clear())
    assert empty.height == 0
    nulls = pl.DataFrame({name: [None, None] for name in SCHEMA}, schema=dict(SCHEMA))
    assert evaluate_all(compiled, nulls)[0].height == 2


#: What is rightly refused among the calls made up here.
EXPECTED = re.compile(
    "there is no part|a date has no|have different types|cannot be combined with|given only with QUERY|must be a constant|must be arrays"
    "|digits must be|has no value|is given twice|is there twice|takes values of simple types|keys and values must be texts"
)


@pytest.mark.parametrize("function", [pytest.param(one, id=one.name) for one in registry.load().values()])
def test_functions(function: Function) -> None:
    compiled_any = False
    for text in calls(function):
        try:
            compiled = compile_expression(text, SCHEMA)
        except ExpressionError as error:
            if not EXPECTED.search(str(error)):
                raise
            continue
        compiled_any = True
        check(compiled, text)
    assert compiled_any or function.name in ("named_struct", "json_object", "json_entries", "flatten")


CASTS = ["string", "int8", "int64", "float32", "float64", "boolean", "decimal(10, 2)", "decimal(38, 18)", "date", "time",
         "timestamp", "timestamp_ntz", "binary"]  # fmt: skip


@pytest.mark.parametrize("column", list(COLUMNS))
@pytest.mark.parametrize("target", CASTS)
def test_casts(column: str, target: str) -> None:
    text = f"TRY_CAST({column} AS {target})"
    try:
        compiled = compile_expression(text, SCHEMA)
    except ExpressionError as error:
        if "headrace has no such conversion" not in str(error):
            raise
        return
    check(compiled, text)
    strict = compile_expression(f"CAST({column} AS {target})", SCHEMA)
    check(strict, text)
    values, _ = evaluate(compiled, FRAME)
    _, failures = evaluate(strict, FRAME)
    lost = [row for row in range(FRAME.height) if FRAME[column][row] is not None and values[row] is None]
    assert [row for row, _ in failures] == lost


NUMBERS = ["integer", "small", "unsigned", "float", "decimal", "wide", "1", "1.5", "0.1e0", "NULL"]


@pytest.mark.parametrize("operation", ["+", "-", "*", "/", "%", "DIV", "=", "<", "<=>", "IN"])
@pytest.mark.parametrize("left", NUMBERS)
def test_numbers(left: str, operation: str) -> None:
    texts = [f"{left} {operation} ({right})" for right in NUMBERS]
    check_all([compile_expression(text, SCHEMA) for text in texts])


TIMES = ["date", "timestamp", "naive", "time", "duration", "INTERVAL '3' DAY", "INTERVAL '1' MONTH", "INTERVAL '90' SECOND",
         "integer", "float", "'2024-05-06'", "NULL"]  # fmt: skip


@pytest.mark.parametrize("operation", ["+", "-", "*", "/", "=", "<"])
@pytest.mark.parametrize("left", TIMES)
def test_times(left: str, operation: str) -> None:
    compiled = []
    for right in TIMES:
        with contextlib.suppress(ExpressionError):
            compiled.append(compile_expression(f"{left} {operation} {right}", SCHEMA))
    check_all(compiled)


@pytest.mark.parametrize(
    "text",
    [
        "array(text, 'a')[integer]", "numbers[1]", "numbers[integer]", "struct.x + 1", "struct['y'] || 'a'",
        "text LIKE text", "text ILIKE '%ß%'", "text RLIKE text", r"text RLIKE '(?<=a)\n'", "text SIMILAR TO '(a|b)%'",
        "text BETWEEN 'a' AND 'z'", "timestamp AT TIME ZONE 'Europe/Paris'", "CAST(numbers AS array<string>)",
        "CAST(numbers AS string)", "CAST(struct AS string)", "TRY_CAST(struct AS struct<a: string, b: string>)",
        "CASE WHEN boolean THEN decimal ELSE integer END", "COALESCE(small, unsigned)", "numbers = numbers",
        "struct = struct", "date IN (DATE '2024-02-29')", "timestamp >= '2024-01-01'", "- wide", "~ integer",
    ],
)  # fmt: skip
def test_other_forms(text: str) -> None:
    check(compile_expression(text, SCHEMA), text)


FAR_TIMES = pl.DataFrame(
    {
        "timestamp": pl.Series([2**63 - 1, -(2**63), 10**18, 0]).cast(pl.Datetime("us", "UTC")),
        "naive": pl.Series([2**63 - 1, -(2**63), 10**18, 0]).cast(pl.Datetime("us")),
        "date": pl.Series([2**31 - 1, -(2**31), 10**8, 0], dtype=pl.Int32).cast(pl.Date),
        "integer": pl.Series([1, 2**63 - 1, -5, 10**9]),
    }
)
TIME_KINDS = ("date", "timestamp", "datetime")


@pytest.mark.parametrize(
    "function",
    [
        pytest.param(function, id=function.name)
        for function in registry.load().values()
        if any(parameter.kind in TIME_KINDS for one in function.signatures for parameter in one.parameters)
    ],
)
def test_times_beyond_the_calendar_give_null(function: Function) -> None:
    """polars panics for years beyond 262142, which would take the whole process down."""
    for text in calls(function):
        if any(name in text for name in ("text", "float", "decimal", "small", "()")):
            continue
        try:
            compiled = compile_expression(text, Schema(dict(FAR_TIMES.schema)))
        except ExpressionError:
            continue
        values, _ = evaluate(compiled, FAR_TIMES)
        assert values[:3].to_list() == [None] * 3, text


@pytest.mark.parametrize(
    "text",
    [
        "CAST(timestamp AS STRING)", "CAST(date AS STRING)", "CAST(date AS TIMESTAMP)",
        "timestamp AT TIME ZONE 'Asia/Tokyo'",
        "date + INTERVAL '1' MONTH", "timestamp + INTERVAL '1' DAY", "date + integer", "naive = timestamp", "to_json(date)",
        "timestamp || ''", "CAST(timestamp AS DATE)", "CAST(naive AS TIMESTAMP)", "date < timestamp",
    ],
)  # fmt: skip
def test_operators_on_times_beyond_the_calendar(text: str) -> None:
    values, _ = evaluate(compile_expression(text, Schema(dict(FAR_TIMES.schema))), FAR_TIMES)
    assert values[:3].to_list() == [None] * 3
