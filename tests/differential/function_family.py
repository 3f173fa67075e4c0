"""Functions as SQL texts have them, and user functions: by column, batch by batch, row by row and as constants, each the same.

The expressions of columns have families of their own (``expression_family``); here is what only SQL says so: other names, other
arguments and results, patterns and paths, and functions that are registered. A value, NULL or a failure is the outcome of a row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import headrace as hr
from headrace.foundation.errors import ExpressionError, HeadraceError
from headrace.interfaces.sink import Sink

from tests.differential.choices import Choices
from tests.differential.comparing import shown
from tests.differential.families import Family
from tests.differential.kinds import BOOLEAN, DATE, DECIMAL, DOUBLE, INT, STRING, TIMESTAMP, Kind
from tests.differential.on_spark import rows_on_spark
from tests.differential.running import register, run_sql
from tests.differential.tables import TAME, WILD, Table, TableColumn
from tests.differential.writing import Writer

#: Calls; a letter in braces is a column: two texts, two small numbers, a condition, a double, a decimal, a date and a time.
FORMS = (
    "REGEXP({s}, {t})", "REGEXP_EXTRACT({s}, {t}, {i})", "REGEXP_EXTRACT({s}, '([a-z])(b?)', {i})", "REGEXP_REPLACE({s}, {t}, {s})",
    "SPLIT_INDEX({s}, {t}, {i})", "SPLIT_INDEX({s}, ',', {i})", "LPAD({s}, {i}, {t})", "RPAD({s}, {i}, {t})", "SUBSTR({s}, {i}, {j})",
    "SUBSTRING({s} FROM {i} FOR {j})", "TO_TIMESTAMP({s})", "TO_TIMESTAMP({s}, 'yyyy-MM-dd')", "TO_DATE({s})", "TO_DATE({s}, 'dd.MM.yyyy')",
    "DATE_FORMAT({x}, 'yyyyMMdd HH:mm')", "FROM_UNIXTIME({i})", "UNIX_TIMESTAMP({s})", "DATE_ADD({s}, {i})", "DATE_SUB({y}, {i})",
    "DATEDIFF({s}, {s})", "JSON_VALUE({s}, '$.a')", "JSON_VALUE({s}, '$.a' DEFAULT {t} ON EMPTY)", "JSON_QUERY({s}, '$.a')",
    "JSON_EXISTS({s}, '$.a')", "({s} IS JSON)", "({s} IS NOT JSON OBJECT)", "({s} IS JSON ARRAY)", "({s} IS JSON SCALAR)", "SIGN({d})",
    "SIGN({m})", "TRUNCATE({d}, 2)", "TRUNCATE({m}, 1)", "IF({b}, {s}, {t})", "IFNULL({s}, {t})", "KEYVALUE({s}, ',', '=', {t})",
    "HASH_CODE({s})", "PARSE_URL({s}, 'HOST')", "PARSE_URL({s}, 'QUERY', {t})", "({s} SIMILAR TO {t})", "({s} LIKE {t})",
    "({s} LIKE {t} ESCAPE '!')", "TRY_CAST({s} AS INT)", "TRY_CAST({s} AS DECIMAL(5, 1))", "CAST({s} AS INT)", "CAST({d} AS INT)",
    "CAST({m} AS STRING)", "CAST({d} AS STRING)", "CAST({b} AS STRING)", "CAST({x} AS STRING)", "CAST({x} AS DATE)", "INITCAP({s})",
    "OVERLAY({s} PLACING {t} FROM {i} FOR {j})", "POSITION({s} IN {t})", "LOCATE({s}, {t}, {i})", "TRIM(BOTH {t} FROM {s})",
    "TRIM(LEADING ' ' FROM {s})", "CONCAT_WS({s}, {t}, {s})", "CONCAT({s}, {t})", "CHR({i})", "ASCII({s})", "REPEAT({s}, {i})",
    "REVERSE({s})", "TIMESTAMPADD(MONTH, {i}, {x})", "TIMESTAMPDIFF(DAY, {x}, {y})", "EXTRACT(WEEK FROM {x})", "CEIL({x} TO HOUR)",
    "FLOOR({x} TO DAY)", "FLOOR({m})", "CEIL({d})", "ROUND({m}, 1)", "ROUND({d}, -1)", "POWER({d}, {i})", "MOD({i}, {j})", "ABS({m})",
    "ARRAY[{i}, {j}][2]", "ELEMENT(ARRAY[{s}])", "CARDINALITY(ARRAY[{s}, {t}])", "MAP[{s}, {i}, 'a', {j}]['a']",
    "STR_TO_MAP({s}, ',', '=')['a']",
    "CASE {i} WHEN {j} THEN {s} ELSE {t} END", "NULLIF({s}, {t})", "COALESCE({s}, {t}, 'z')",
    "GREATEST({i}, {j})", "LEAST({s}, {t})", "({i} BETWEEN SYMMETRIC {j} AND 2)", "({s} IN ({t}, 'a'))", "({d} IS DISTINCT FROM 0.5)",
    "u_next({i})", "u_twice({j})", "u_sum({i}, {j})", "u_tag({s})", "u_is_even({i})", "v_half({d})", "v_negative({i})", "v_length({s})",
    "v_minus({i}, {j})", "v_place({s}, {t}, {i})", "u_tag(u_end({s}))", "v_minus(u_next({i}), v_length({s}))",
)  # fmt: skip
_TEXTS = [*TAME["string"], *WILD["string"], "2024-02-29", "2024-02-29 12:30:00", "31.12.2023", '{"a": 1}', '{"a": [1]}', "[1, 2]", "(",
          "[",
          "a=1,b=2",
          "1.25", "-7", "http://h.de/p?a=b", "%b", "a!%", "(a|b)*"]  # fmt: skip
_NUMBERS = [0, 1, 2, -1, 3, 5, 12, -3]
COLUMNS: dict[str, tuple[Kind, list[Any]]] = {
    "s": (STRING, _TEXTS), "t": (STRING, _TEXTS), "i": (INT, _NUMBERS), "j": (INT, _NUMBERS), "b": (BOOLEAN, [True, False]),
    "d": (DOUBLE, TAME["double"]), "m": (DECIMAL, TAME["decimal"]), "y": (DATE, TAME["date"]), "x": (TIMESTAMP, TAME["timestamp"]),
}  # fmt: skip
_FAILS = "fails"
#: What no value can come of may be refused when the job is built, if it stands there as constants.
_REFUSED = "is refused"
#: Of a column fewer patterns are taken than of a job's own text (docs/adr/013-regular-expressions.md).
_PATTERN = "is not a pattern of a column"


@dataclass(frozen=True)
class Case:
    """A call, a table of its columns with the number of each row, how many rows a batch has, and which rows are tried as constants."""

    form: str
    table: Table
    batch: int
    constants: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.table}\nSELECT {_by_column(self.form)} in batches of {self.batch}, rows {self.constants} as constants"


def generate(choices: Choices) -> Case:
    """Return a call of one function over a few rows."""
    form = choices.pick(FORMS)
    names = [name for name in COLUMNS if "{" + name + "}" in form]
    columns = (TableColumn("id", INT), *(TableColumn(name, COLUMNS[name][0]) for name in names))
    rows = tuple(
        (number, *(None if choices.chance(12) else choices.pick(COLUMNS[name][1]) for name in names))
        for number in choices.repeat(1, 6, 85)
    )
    table = Table("t1", columns, rows, (0,) * len(rows))
    return Case(form, table, choices.pick([1, 2]), tuple(choices.some(range(len(rows)), 1, 2)))


def _by_column(form: str) -> str:
    return form.format(**{name: name for name in COLUMNS})


def _outcomes(table: Table, text: str, batch: int) -> dict[int, Any]:
    """Return the value of each row by its number; where the run fails, of each row by itself, then ``fails``."""
    try:
        found = run_sql([table], f"SELECT id, {text} AS z FROM t1", max_batch_records=batch)  # our own text
    except HeadraceError as error:
        if len(table.rows) == 1:
            return {table.rows[0][0]: _PATTERN if "is not a pattern that a column may give" in str(error) else _FAILS}
        alone = [Table("t1", table.columns, (row,), (0,)) for row in table.rows]
        return {number: value for each in alone for number, value in _outcomes(each, text, batch).items()}
    return {int(number): value for number, value in found.rows}


def _constant(table: Table, form: str, row: int) -> Any:
    writer = Writer("flink")
    values = {
        column.name: writer.literal(value, column.kind)
        for column, value in zip(table.columns, table.rows[row], strict=True)
    }
    try:
        found = run_sql([table], f"SELECT {form.format(**values)} AS z FROM t1 WHERE id = {row}")  # our own text
    except ExpressionError:
        return _REFUSED
    except HeadraceError:
        return _FAILS
    return next(iter(found.rows))[0]


def check(case: Case) -> str | None:
    """Return where a row has another value or failure than by column, or None."""
    text = _by_column(case.form)
    whole = _outcomes(case.table, text, 1000)
    others = {f"in batches of {case.batch}": _outcomes(case.table, text, case.batch)}
    others["as constants"] = {row: _constant(case.table, case.form, row) for row in case.constants}
    for way, found in others.items():
        for number, value in found.items():
            refused = whole[number] == _PATTERN or (value == _REFUSED and whole[number] in (None, _FAILS))
            if value != whole[number] and not refused:
                return f"row {number} by column: {shown([whole[number]])}, {way}: {shown([value])}"
    return None


def check_on_spark(case: Case) -> str | None:
    """Return where a row has another value or failure on Spark than on light, or None."""
    text = f"SELECT id, {_by_column(case.form)} AS z FROM t1"  # our own text
    expected = _outcomes(case.table, _by_column(case.form), 1000)
    failing = any(value in (_FAILS, _PATTERN) for value in expected.values())

    def made(sink: Sink) -> hr.Job:
        register([case.table])
        job = hr.sql(text, pipeline="job")
        stream: hr.Stream = next(iter(job.script.relations().values())).stream
        return stream.to(sink, name="result")

    try:
        rows = rows_on_spark(made, max_batch_records=case.batch)
    except HeadraceError:
        return None if failing else "it fails on Spark only"
    found = {int(number): value for number, value in rows}
    if failing or found != expected:
        return f"on light: {expected}, on Spark: {found}"
    return None


FAMILY = Family("functions", generate, check, str, weight=3, check_on_spark=check_on_spark)
