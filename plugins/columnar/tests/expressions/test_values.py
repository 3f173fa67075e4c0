"""Known answers: what the language says about casts, decimals, times, patterns, names."""

from __future__ import annotations

import datetime
import json
from decimal import Decimal
from typing import Any

import polars as pl
import pytest
from headrace.flow.schema import Schema
from headrace.foundation.errors import DataError, ExpressionError
from headrace_columnar.expressions import compile_expression, compile_predicate, conjuncts, evaluate, output_name

UTC = datetime.UTC


def value(sql: str, **columns: Any) -> Any:
    """The value of an expression for one row of these columns (text with a type: ``(value, type)``)."""
    declared = {
        name: pl.Series([one[0]], dtype=one[1]) if isinstance(one, tuple) else pl.Series([one])
        for name, one in columns.items()
    }
    frame = pl.DataFrame(declared or {"nothing": [0]})
    compiled = compile_expression(sql, Schema(dict(frame.schema)))
    series, failures = evaluate(compiled, frame)
    assert series.dtype == compiled.data_type
    if failures:
        raise failures[0][1]
    return series.to_list()[0]


CASTS: list[tuple[str, str, Any]] = [
    (" 12 ", "int", 12), ("+7", "int64", 7), ("1.5", "int", 1), ("-1.9", "int32", -1),
    ("3000000000", "int32", None), ("12x", "int", None), ("", "int", None),
    ("１２", "int", None), ("300", "int8", None), ("-128", "int8", -128), ("9223372036854775808", "int64", None),
    ("1e3", "double", 1000.0), ("inf", "double", float("inf")), ("x", "double", None),
    ("0.125", "decimal(5, 2)", Decimal("0.13")), ("-0.125", "decimal(5, 2)", Decimal("-0.13")),
    ("1234.5", "decimal(5, 2)", None), ("TRUE", "boolean", True), ("no", "boolean", False), ("maybe", "boolean", None),
    ("2024-05-06", "date", datetime.date(2024, 5, 6)), ("2024-05-06 07:00:00", "date", datetime.date(2024, 5, 6)),
    ("2024-02-30", "date", None), ("20240506", "date", None), ("07:08", "time", datetime.time(7, 8)),
    ("2024-05-06T07:08:09Z", "timestamp", datetime.datetime(2024, 5, 6, 7, 8, 9, tzinfo=UTC)),
    ("2024-05-06 07:08", "timestamp", datetime.datetime(2024, 5, 6, 7, 8, tzinfo=UTC)),
    ("2024-05-06 07:08:09.25+02:00", "timestamp", datetime.datetime(2024, 5, 6, 5, 8, 9, 250000, tzinfo=UTC)),
    ("2024-05-06 07:08:09", "timestamp_ntz", datetime.datetime(2024, 5, 6, 7, 8, 9)),
    ("2024-05-06 25:00:00", "timestamp", None), ("é", "binary", "é".encode()),
]  # fmt: skip


@pytest.mark.parametrize(("text", "target", "wanted"), CASTS)
def test_cast_of_text(text: str, target: str, wanted: Any) -> None:
    assert value(f"TRY_CAST(s AS {target})", s=text) == wanted
    if wanted is not None:
        assert value(f"CAST(s AS {target})", s=text) == wanted
        return
    with pytest.raises(DataError, match="is impossible"):
        value(f"CAST(s AS {target})", s=text)
    with pytest.raises(ExpressionError, match="cannot be read as"):
        value("CAST('" + text + f"' AS {target})")


@pytest.mark.parametrize(
    ("sql", "wanted"),
    [
        ("CAST(2.9 AS INT)", 2), ("CAST(-2.9 AS INT)", -2), ("CAST(TRUE AS STRING)", "true"), ("CAST(1.10 AS STRING)", "1.10"),
        ("CAST(-1.5e0 AS STRING)", "-1.5"), ("CAST(0.0e0 AS STRING)", "0.0"),
        ("CAST(9999999.0e0 AS STRING)", "9999999.0"), ("CAST(1e7 AS STRING)", "1.0E7"), ("CAST(16777216e0 AS STRING)", "1.6777216E7"),
        ("CAST(1e-3 AS STRING)", "0.001"), ("CAST(-0.00012e0 AS STRING)", "-1.2E-4"), ("CAST(1e-300 AS STRING)", "1.0E-300"),
        ("CAST(CAST(16777216 AS FLOAT) AS STRING)", "1.6777216E7"), ("CAST(1e308 * 10 AS STRING)", "Infinity"),
        ("CAST(CAST('1.25E10' AS DOUBLE) AS STRING)", "1.25E10"), ("CAST(CAST('Infinity' AS DOUBLE) AS STRING)", "Infinity"),
        ("CAST(1.1e0 AS STRING)", "1.1"), ("CAST(12345 AS VARCHAR(3))", "123"), ("5 / 2", 2), ("-5 / 2", -2), ("-7 % 3", -1),
        ("5 DIV 2", 2), ("5 / 2.0", Decimal("2.5")), ("1 = 1.0", True), ("9007199254740993 = 9007199254740992.0", False),
        ("0.1 + 0.2 = 0.3", True), ("0.1e0 + 0.2e0 = 0.3e0", False), ("1e0 / 0e0", float("inf")), ("2 - -3", 5),
        ("'a ' = 'a'", False), ("'abc' LIKE 'A%'", False), ("'abc' ILIKE 'A%'", True), ("1 + NULL", None),
        ("NULL = NULL", None), ("NULL <=> NULL", True), ("1 IN (2, NULL)", None), ("1 IN (1, NULL)", True),
        ("1 NOT IN (2, NULL)", None), ("NULL IN (1)", None), ("2 BETWEEN SYMMETRIC 3 AND 1", True),
        ("TIMESTAMP '2024-05-06 00:00:00' + INTERVAL '1' DAY = '2024-05-07'", True),
        ("DATE '2024-01-31' + INTERVAL '1' MONTH", datetime.date(2024, 2, 29)),
        ("DATE '2024-01-31' + INTERVAL '1-1' YEAR TO MONTH", datetime.date(2025, 2, 28)),
        ("DATE '2024-01-31' + 1", datetime.date(2024, 2, 1)),
        ("DATE '2024-01-31' - DATE '2024-01-30'", datetime.timedelta(days=1)),
        ("INTERVAL '1 02:03:04.5' DAY TO SECOND", datetime.timedelta(days=1, hours=2, minutes=3, seconds=4.5)),
        ("INTERVAL 90 MINUTES > INTERVAL '1' HOUR", True), ("2 * INTERVAL '1' HOUR", datetime.timedelta(hours=2)),
        ("TIME '23:30:00' + INTERVAL '1' HOUR", datetime.time(0, 30)), ("X'0aFF'", b"\n\xff"), ("0x1F", b"\x1f"),
        ("10L + 1", 11), ("'it''s' || '\\n'", "it's\\n"), ("1 & 3 | 4", 5), ("~0", -1), ("5 ^ 1", 4),
        ("CASE 2 WHEN 1 THEN 'a' WHEN 2 THEN 'b' END", "b"), ("CASE WHEN NULL THEN 1 ELSE 2.5 END", Decimal("2.5")),
        ("NOT NULL", None), ("FALSE AND NULL", False), ("TRUE OR NULL", True), ("NULL IS UNKNOWN", True),
        ("-9223372036854775808", -(2**63)), ("9223372036854775807 + 1", -(2**63)),
        ("JSON_VALUE('{\"a\":\"5\"}', '$.a' RETURNING INT) + 1", 6), ("ARRAY[1, 2][2]", 2), ("lower('ÀÉ')", "àé"),
        ("12345678901234567890 > 0", True), ("EXTRACT(EPOCH FROM TIMESTAMP '1970-01-02 00:00:00')", 86400),
        ("'b' LIKE ANY ('a%', 'b%')", True), ("'b' NOT LIKE ALL ('a%', 'c%')", True), ("'ab' SIMILAR TO '(a|b)+'", True),
        ("'a.c' SIMILAR TO 'a.c'", True), ("'abc' SIMILAR TO 'a.c'", False), ("'a\nb' LIKE 'a_b'", True),
        ("'a\nb' RLIKE 'a.b'", False), ("'a\nb' RLIKE '(?s)a.b'", True), ("'x1' RLIKE '^x\\d$'", True),
        ("'x\n' RLIKE 'x$'", False), ("'ab' RLIKE '(?<=a)b$'", True), ("'b\n' RLIKE '(?<!a)b$'", False),
        ("'abab' RLIKE '^(ab)\\1\\z'", True), ("'K' ILIKE 'k'", True), ("'ß' ILIKE 'SS'", False),
    ],
)  # fmt: skip
def test_answers(sql: str, wanted: Any) -> None:
    got = value(sql)
    assert got == wanted
    assert (got is None) == (wanted is None)


def test_the_digits_of_decimals_follow_spark_and_flink() -> None:
    schema = Schema({"a": pl.Decimal(10, 2), "b": pl.Decimal(5, 1), "n": pl.Int32(), "w": pl.Decimal(38, 10)})
    kinds = {
        sql: compile_expression(sql, schema).data_type for sql in ("a + b", "a * b", "a / b", "a % b", "w * w", "a + n")
    }
    assert kinds == {
        "a + b": pl.Decimal(11, 2), "a * b": pl.Decimal(16, 3), "a / b": pl.Decimal(17, 8), "a % b": pl.Decimal(6, 2),
        "w * w": pl.Decimal(38, 6), "a + n": pl.Decimal(13, 2),
    }  # fmt: skip


def test_decimals_are_exact_and_null_when_38_digits_are_not_enough() -> None:
    big = Decimal("9" * 38)
    frame = pl.DataFrame({"w": pl.Series([big, Decimal(2), None], dtype=pl.Decimal(38, 0))})
    series, failures = evaluate(compile_expression("w * w", Schema(dict(frame.schema))), frame)
    assert series.to_list() == [None, Decimal(4), None]
    assert failures == []


def test_a_row_that_fails_is_told_with_its_reason() -> None:
    frame = pl.DataFrame({"a": [6, 5, None, 1], "b": [3, 0, 0, 1], "s": ["1", "x", "y", "z"]})
    compiled = compile_expression("a / b + CAST(s AS INT)", Schema(dict(frame.schema)))
    assert compiled.can_fail
    series, failures = evaluate(compiled, frame)
    assert series.to_list() == [3, None, None, None]
    assert [row for row, _ in failures] == [1, 2, 3]
    assert [str(error) for _, error in failures] == [
        "division by zero (5 divided by 0)",
        "CAST('y' AS int64) is impossible",
        "CAST('z' AS int64) is impossible",
    ]


@pytest.mark.parametrize(
    "sql",
    [
        "CASE WHEN s RLIKE '^[0-9]+$' THEN CAST(s AS INT) END",
        "IF(s RLIKE '^[0-9]+$', CAST(s AS INT), NULL)",
        "s RLIKE '^[0-9]+$' AND CAST(s AS INT) > 0",
        "s NOT RLIKE '^[0-9]+$' OR CAST(s AS INT) > 0",
        "COALESCE(CASE WHEN s = 'x' THEN 0 END, CAST(s AS INT))",
    ],
)
def test_what_a_row_does_not_evaluate_cannot_fail(sql: str) -> None:
    frame = pl.DataFrame({"s": ["12", "x"]})
    _, failures = evaluate(compile_expression(sql, Schema({"s": pl.String()})), frame)
    assert failures == []


def test_a_predicate_is_false_where_sql_says_null_and_where_the_row_fails() -> None:
    frame = pl.DataFrame({"s": ["5", None, "x"]})
    compiled = compile_predicate("CAST(s AS INT) > 1", Schema({"s": pl.String()}))
    series, failures = evaluate(compiled, frame)
    assert series.to_list() == [True, False, False]
    assert [row for row, _ in failures] == [2]


def test_null_alone_is_a_predicate_that_keeps_nothing() -> None:
    compiled = compile_predicate("NULL", Schema({"a": pl.Int64()}))
    assert evaluate(compiled, pl.DataFrame({"a": [1, 2]}))[0].to_list() == [False, False]


def test_a_condition_must_be_boolean() -> None:
    with pytest.raises(ExpressionError, match="must be boolean, not int64"):
        compile_predicate("a + 1", Schema({"a": pl.Int64()}))
    with pytest.raises(ExpressionError, match="must be boolean, not int64"):
        compile_predicate(pl.col("a") + 1, Schema({"a": pl.Int64()}))


def test_columns_that_are_read() -> None:
    schema = Schema({"a": pl.Int64(), "b": pl.Struct({"x": pl.Int64()}), "c d": pl.String(), "e": pl.Int64()})
    assert compile_expression("a + b.x", schema).columns == {"a", "b"}
    assert compile_expression('"c d" || `c d`', schema).columns == {"c d"}
    assert compile_expression("1", schema).columns == frozenset()


def test_deterministic() -> None:
    schema = Schema({"a": pl.Int64()})
    assert compile_expression("a + 1", schema).deterministic
    for sql in ("now() > TIMESTAMP '2024-01-01 00:00:00'", "rand()", "uuid()", "unix_timestamp() + a", "CURRENT_DATE"):
        compiled = compile_expression(sql, schema)
        assert not compiled.deterministic, sql
        assert len(evaluate(compiled, pl.DataFrame({"a": [1, 2, 3]}))[0]) == 3
    ids = evaluate(compile_expression("uuid()", schema), pl.DataFrame({"a": [1, 2, 3]}))[0]
    assert ids.n_unique() == 3


KEYWORD_COLUMNS = [
    "user", "time", "date", "timestamp", "value", "level", "count", "position", "key", "type", "index", "row", "status",
    "comment", "desc", "asc", "format", "offset", "session", "schema", "table", "column", "text", "left", "right", "end",
    "order", "group", "interval", "array", "map", "list", "struct", "replace", "language", "current_user", "show", "set", "use",
    "json", "string", "host", "message", "rename", "fetch", "call", "execute", "explain", "copy",
    "source", "rank", "year", "filter", "window", "name", "data", "uuid", "cache",
]  # fmt: skip


@pytest.mark.parametrize("name", KEYWORD_COLUMNS)
def test_names_of_columns_that_are_words_of_sql(name: str) -> None:
    frame = pl.DataFrame({name: ["x"]})
    schema = Schema(dict(frame.schema))
    for sql in (
        f"{name} = 'x'",
        f"lower({name}) LIKE '%x%' AND {name} <> 'y'",
        f"'x' IN ({name})",
        f"({name}) IS NOT NULL",
    ):
        assert evaluate(compile_expression(sql, schema), frame)[0].to_list() == [True], sql
    assert output_name(name) == name


def test_long_chains_are_not_deep() -> None:
    sql = " OR ".join(f"a = {number}" for number in range(3000))
    compiled = compile_expression(sql, Schema({"a": pl.Int64()}))
    assert evaluate(compiled, pl.DataFrame({"a": [2999, -1]}))[0].to_list() == [True, False]
    assert len(conjuncts(sql.replace(" OR ", " AND "))) == 3000


def test_a_text_that_is_too_deep_is_refused() -> None:
    with pytest.raises(ExpressionError, match="nested too deeply"):
        compile_expression("(" * 5000 + "1" + ")" * 5000, Schema({}))


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("a AND b", ["a", "b"]),
        ("(a AND (b OR c)) AND x BETWEEN 1 AND 2 AND y", ["a", "b OR c", "x BETWEEN 1 AND 2", "y"]),
        ("a OR b AND c", ["a OR b AND c"]),
        ("CASE WHEN a AND b THEN c END AND d", ["CASE WHEN a AND b THEN c END", "d"]),
        (
            "x NOT BETWEEN 1 AND 2 AND s LIKE '% AND %' -- and so on",
            ["x NOT BETWEEN 1 AND 2", "s LIKE '% AND %' -- and so on"],
        ),
        ("NOT (a AND b)", ["NOT (a AND b)"]),
        ("f(a AND b)", ["f(a AND b)"]),
        ("x BETWEEN (SELECT 1 AND 2) AND 3 AND y", ["x BETWEEN (SELECT 1 AND 2) AND 3", "y"]),
    ],
)
def test_conjuncts(text: str, parts: list[str]) -> None:
    assert conjuncts(text) == parts


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("host", "host"), ('"a b"', "a b"), ("a.b.c", "c"), ("(host)", "host"), ("lower(host) AS h", "h"), ("a + 1 as \"x y\"", "x y"),
        (pl.col("a"), "a"), (pl.col("a").alias("z"), "z"),
    ],
)  # fmt: skip
def test_output_name(source: str | pl.Expr, name: str) -> None:
    assert output_name(source) == name


def test_an_item_without_a_name() -> None:
    with pytest.raises(ExpressionError, match="needs a name"):
        output_name("lower(host)")
    with pytest.raises(ExpressionError, match="is not a column") as star:
        output_name("*")
    assert "with_columns" in str(star.value.hint)


def test_constants_have_the_height_of_the_frame() -> None:
    frame = pl.DataFrame({"a": [1, 2, 3]})
    for sql in ("1", "'x'", "NULL", "1 IN (1, 2)", "ARRAY[1, 2]", "named_struct('x', 1)", "now()"):
        compiled = compile_expression(sql, Schema(dict(frame.schema)))
        assert len(evaluate(compiled, frame)[0]) == 3, sql
        assert len(evaluate(compiled, frame.clear())[0]) == 0, sql
        beside = frame.with_columns(compiled.expression.alias("x"))
        assert beside.height == 3, sql


def test_a_comparison_whose_side_is_one_value_for_a_whole_batch() -> None:
    """Seen in polars 2.1: a literal made by its optimizer, compared with a uniform CASE, comes as one row."""
    frame = pl.DataFrame({"i": [None, None]}, schema={"i": pl.Int64})
    schema = Schema(dict(frame.schema))
    for sql in (
        "NULLIF(NULL, i) = IF(1 IN (i, 1), 0, i)",
        "0 >= CASE WHEN i > 0 THEN 1 END",
        "NULLIF('', CASE WHEN i = i THEN 'x' END)",
    ):
        series, _ = evaluate(compile_expression(sql, schema), frame)
        assert len(series) == 2, sql


def test_division_of_floats_does_not_depend_on_the_height_of_the_batch() -> None:
    """polars multiplies with a reciprocal when a column is divided by one value, which differs in the last digit."""
    frame = pl.DataFrame({"x": [999999999.8999999 / 10 * 0.1, 99999999.99, 0.7, 1e300]})
    compiled = compile_expression("x / 0.1e0", Schema(dict(frame.schema)))
    wanted = [x / 0.1 for x in frame["x"]]
    assert evaluate(compiled, frame)[0].to_list() == wanted
    assert [evaluate(compiled, frame[row : row + 1])[0][0] for row in range(4)] == wanted


def test_json_numbers_and_escapes() -> None:
    document = json.dumps({"n": 1.5, "big": 2**60, "s": 'é\n"', "list": [1, {"k": None}]})
    for path, wanted in (
        ("$.n", "1.5"),
        ("$.big", str(2**60)),
        ("$.s", 'é\n"'),
        ("$['list'][0]", "1"),
        ("$.list[1].k", None),
    ):
        assert value(f"get_json_object(j, '{path.replace(chr(39), chr(39) * 2)}')", j=document) == wanted


def narrow(number: float) -> tuple[float, Any]:
    return number, pl.Float32


FLOATS: list[tuple[str, dict[str, Any], float]] = [
    ("f + g", {"f": narrow(0.1), "g": narrow(0.2)}, 0.3),
    ("f * i", {"f": narrow(1.1), "i": 7}, 7.7000003),
    ("f / i", {"f": narrow(0.1), "i": 3}, 0.033333335),
    ("i / f", {"f": narrow(1.1), "i": 7}, 6.363636),
    ("i - f", {"f": narrow(0.5), "i": 2**24 + 1}, 16777216.0),
    ("f + 1", {"f": narrow(16777216.0)}, 16777216.0),
    ("f % 2", {"f": narrow(-2.7)}, -0.70000005),
    ("-f", {"f": narrow(0.1)}, -0.1),
    ("abs(f)", {"f": narrow(-0.1)}, 0.1),
    ("greatest(f, i)", {"f": narrow(0.1), "i": 2**24 + 1}, 16777216.0),
    ("coalesce(f, 1)", {"f": narrow(0.1)}, 0.1),
    ("CASE WHEN i > 1 THEN f ELSE i END", {"f": narrow(0.1), "i": 2}, 0.1),
]


@pytest.mark.parametrize(("sql", "columns", "wanted"), FLOATS)
def test_float32_with_whole_numbers_is_float32(sql: str, columns: dict[str, Any], wanted: float) -> None:
    assert value(sql, **columns) == pl.Series([wanted], dtype=pl.Float32).item()
    assert value(f"typeof({sql})", **columns) == "float32"


@pytest.mark.parametrize(
    ("sql", "wanted"),
    [
        ("f + 0.1", 0.1 + 0.10000000149011612),
        ("f * d", 0.1 * 0.10000000149011612),
        ("d + f", 0.1 + 0.10000000149011612),
    ],
)
def test_float32_with_decimals_and_float64_is_float64(sql: str, wanted: float) -> None:
    assert value(sql, f=narrow(0.1), d=0.1) == wanted


def test_float32_is_compared_as_what_both_are() -> None:
    assert value("f = i", f=narrow(2.0**24), i=2**24 + 1) is True
    assert value("f = 16777217", f=narrow(2.0**24)) is True
    assert value("f = 0.1", f=narrow(0.1)) is False
    assert value("f = d", f=narrow(0.1), d=0.1) is False
