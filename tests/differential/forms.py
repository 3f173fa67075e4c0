"""How operators and functions are written in headrace's SQL and in DuckDB's.

Where the two mean different things, the text for DuckDB says what Flink means, with a comment why.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Form:
    """The text of a call; ``{0}``, ``{1}`` … are its arguments. ``duckdb`` is empty where it is the same."""

    flink: str
    duckdb: str = ""

    def written(self, dialect: str, arguments: list[str]) -> str:
        return (self.duckdb or self.flink if dialect == "duckdb" else self.flink).format(*arguments)


FORMS: dict[str, Form] = {
    # Numbers.
    "add": Form("({0} + {1})"),
    "subtract": Form("({0} - {1})"),
    "multiply": Form("({0} * {1})"),
    "negate": Form("(- {0})"),
    "divide whole": Form("({0} / NULLIF({1}, 0))", "({0} // NULLIF({1}, 0))"),  # Flink cuts toward zero, as DuckDB's //
    "divide double": Form("({0} / NULLIF({1}, CAST(0 AS DOUBLE)))"),
    "modulo": Form("MOD({0}, NULLIF({1}, 0))", "({0} % NULLIF({1}, 0))"),
    "absolute": Form("ABS({0})"),
    "floor": Form("FLOOR({0})"),
    "ceiling": Form("CEIL({0})"),
    "sign": Form("SIGN({0})"),
    # GREATEST and LEAST are NULL in Flink when any argument is; DuckDB leaves NULLs out.
    "greatest": Form(
        "GREATEST({0}, {1})", "CASE WHEN {0} IS NULL OR {1} IS NULL THEN NULL ELSE GREATEST({0}, {1}) END"
    ),
    "least": Form("LEAST({0}, {1})", "CASE WHEN {0} IS NULL OR {1} IS NULL THEN NULL ELSE LEAST({0}, {1}) END"),
    # Comparisons and logic.
    "=": Form("({0} = {1})"),
    "<>": Form("({0} <> {1})"),
    "<": Form("({0} < {1})"),
    "<=": Form("({0} <= {1})"),
    ">": Form("({0} > {1})"),
    ">=": Form("({0} >= {1})"),
    "distinct from": Form("({0} IS DISTINCT FROM {1})"),
    "not distinct from": Form("({0} IS NOT DISTINCT FROM {1})"),
    "between": Form("({0} BETWEEN {1} AND {2})"),
    "not between": Form("({0} NOT BETWEEN {1} AND {2})"),
    "in": Form("({0} IN ({1}, {2}))"),
    "not in": Form("({0} NOT IN ({1}, {2}))"),
    "and": Form("({0} AND {1})"),
    "or": Form("({0} OR {1})"),
    "not": Form("(NOT {0})"),
    "is null": Form("({0} IS NULL)"),
    "is not null": Form("({0} IS NOT NULL)"),
    "is true": Form("({0} IS TRUE)"),
    "is not true": Form("({0} IS NOT TRUE)"),
    "is false": Form("({0} IS FALSE)"),
    "is not false": Form("({0} IS NOT FALSE)"),
    "is unknown": Form("({0} IS UNKNOWN)", "({0} IS NULL)"),
    "like": Form("({0} LIKE {1})"),
    "not like": Form("({0} NOT LIKE {1})"),
    # Choices.
    "case": Form("CASE WHEN {0} THEN {1} ELSE {2} END"),
    "case without else": Form("CASE WHEN {0} THEN {1} END"),
    "case of": Form("CASE {0} WHEN {1} THEN {2} ELSE {3} END"),
    "if": Form("IF({0}, {1}, {2})"),
    "coalesce": Form("COALESCE({0}, {1})"),
    "coalesce of three": Form("COALESCE({0}, {1}, {2})"),
    "nullif": Form("NULLIF({0}, {1})"),
    # Texts.
    "upper": Form("UPPER({0})"),
    "lower": Form("LOWER({0})"),
    "length": Form("CHAR_LENGTH({0})", "LENGTH({0})"),
    "concatenate": Form("({0} || {1})"),
    # CONCAT with NULL is NULL in Flink; DuckDB's CONCAT leaves NULLs out.
    "concat": Form("CONCAT({0}, {1})", "({0} || {1})"),
    "substring": Form("SUBSTRING({0}, {1}, {2})"),
    "substring from": Form("SUBSTRING({0} FROM {1})", "SUBSTRING({0}, {1})"),
    "replace": Form("REPLACE({0}, {1}, {2})"),
    "trim": Form("TRIM({0})"),
    "position": Form("POSITION({0} IN {1})"),
    "reverse": Form("REVERSE({0})"),
    # Times.
    "year": Form("EXTRACT(YEAR FROM {0})"),
    "month": Form("EXTRACT(MONTH FROM {0})"),
    "day": Form("EXTRACT(DAY FROM {0})"),
    "hour": Form("EXTRACT(HOUR FROM {0})"),
    "next day": Form(
        "({0} + INTERVAL '1' DAY)", "CAST({0} + INTERVAL '1' DAY AS DATE)"
    ),  # DuckDB makes a TIMESTAMP of it
    "hour later": Form("({0} + INTERVAL '1' HOUR)"),
    "second before": Form("({0} - INTERVAL '1' SECOND)"),
    # Casts.
    "to bigint": Form("CAST({0} AS BIGINT)"),
    "to int": Form("CAST({0} AS INT)"),
    "to double": Form("CAST({0} AS DOUBLE)"),
    "cut to bigint": Form("CAST({0} AS BIGINT)", "CAST(TRUNC({0}) AS BIGINT)"),  # Flink cuts toward zero; DuckDB rounds
    "to decimal": Form("CAST({0} AS DECIMAL(10, 2))"),
    "to text": Form("CAST({0} AS STRING)", "CAST({0} AS VARCHAR)"),
    "boolean to text": Form("CAST({0} AS STRING)", "UPPER(CAST({0} AS VARCHAR))"),  # Flink writes TRUE and FALSE
    "date to timestamp": Form("CAST({0} AS TIMESTAMP(3))", "CAST({0} AS TIMESTAMP)"),
    "timestamp to date": Form("CAST({0} AS DATE)"),
    "narrow to int": Form("CAST({0} AS INT)"),
    "float to double": Form("CAST({0} AS DOUBLE)"),
    # Arrays and maps. A place behind the end is NULL in both.
    "element": Form("{0}[{1}]"),
    "text element": Form("{0}[{1}]"),
    **{f"field {name}": Form("{0}." + name) for name in "xyz"},
    "value of key": Form("{0}[{1}]", "(LIST_FILTER({0}, e -> e.key = {1})[1]).value"),
    "size": Form("CARDINALITY({0})", "LEN({0})"),
    "element of two": Form("ARRAY[{0}, {1}][2]", "[{0}, {1}][2]"),
    "value of map": Form("MAP['a', {0}, 'b', {1}]['b']", "{1}"),
    # User functions: what user_functions.py computes.
    "u_next": Form("u_next({0})", "({0} + 1)"),
    "u_twice": Form("u_twice({0})", "COALESCE(2 * {0}, -1)"),
    "u_sum": Form("u_sum({0}, {1})", "({0} + {1})"),
    "u_tag": Form("u_tag({0})", "COALESCE('<' || {0} || '>', 'none')"),
    "u_end": Form("u_end({0})", "({0} || '!')"),
    "u_is_even": Form("u_is_even({0})", "({0} % 2 = 0)"),
    "v_half": Form("v_half({0})", "({0} / 2.0)"),
    "v_negative": Form("v_negative({0})", "(- CAST({0} AS BIGINT))"),
    "v_length": Form("v_length({0})", "LENGTH({0})"),
    "v_minus": Form("v_minus({0}, {1})", "(CAST({0} AS BIGINT) - CAST({1} AS BIGINT))"),
    "v_place": Form("v_place({0}, {1}, {2})", "(LENGTH({0}) - LENGTH({1}) + {2})"),
}

#: Conditions with functions that DuckDB has not, or not with this meaning: the type of their argument, and the text.
OWN_CONDITIONS: dict[str, tuple[str, str]] = {
    "own levenshtein": ("string", "(LEVENSHTEIN({0}, 'ab') > 1)"),
    "own regexp": ("string", "REGEXP({0}, '^[a-c]+$')"),
    "own split": ("string", "(SPLIT_INDEX({0}, ',', 0) = '12')"),
    "own similar": ("string", "({0} SIMILAR TO '(a|b)%')"),
    "own digit": ("string", "IS_DIGIT({0})"),
    "own md5": ("string", "(MD5({0}) < '8')"),
    "own initcap": ("string", "(INITCAP({0}) = {0})"),
    "own json": ("string", "(JSON_VALUE({0}, '$.a') IS NULL)"),
    "own extract": ("string", "(REGEXP_EXTRACT({0}, '([0-9]+)', 1) IS NULL)"),
    "own array": ("string", "(CARDINALITY(SPLIT({0}, ',')) > 1)"),
    "own tag": ("string", "(u_tag({0}) > '<a')"),
    "own bin": ("int", "(BIN({0}) LIKE '%1%')"),
    "own hex": ("bigint", "(HEX({0}) > '3')"),
    "own root": ("double", "(SQRT(ABS({0})) > 1)"),
    "own half": ("double", "(v_half({0}) > 1)"),
    "own cut": ("decimal", "(TRUNCATE({0}, 1) > 0)"),
    "own format": ("timestamp", "(DATE_FORMAT({0}, 'HH') = '23')"),
    "own quarter": ("date", "(QUARTER({0}) = 1)"),
    "own octets": ("bytes", "(OCTET_LENGTH({0}) > 1)"),
}
FORMS |= {name: Form(text) for name, (_, text) in OWN_CONDITIONS.items()}

#: Aggregate functions; ``{0}`` is the argument with DISTINCT before it where there is one, ``{filter}`` the clause behind it.
AGGREGATES: dict[str, Form] = {
    "count rows": Form("COUNT(*){filter}"),
    "count": Form("COUNT({0}){filter}"),
    "sum": Form("SUM({0}){filter}"),
    "min": Form("MIN({0}){filter}"),
    "max": Form("MAX({0}){filter}"),
    # AVG of whole numbers is a whole number in Flink, cut toward zero.
    "average whole": Form("AVG({0}){filter}", "(SUM({0}){filter} // COUNT({0}){filter})"),
    "average": Form("AVG({0}){filter}"),
    # AVG of DECIMAL(p, 2) has six decimals in Flink, rounded half away from zero; of DuckDB it is a DOUBLE.
    "average decimal": Form(
        "AVG({0}){filter}",
        "(SIGN(SUM({0}){filter}) * ((2 * ABS(CAST(SUM({0}){filter} * 100 AS HUGEINT)) * 10000 + COUNT({0}){filter})"
        " // (2 * COUNT({0}){filter})) * CAST(0.000001 AS DECIMAL(18, 6)))",
    ),
    # Flink passes NULLs over.
    "first value": Form("FIRST_VALUE({0}){filter}", "FIRST_VALUE({0} IGNORE NULLS){filter}"),
    "last value": Form("LAST_VALUE({0}){filter}", "LAST_VALUE({0} IGNORE NULLS){filter}"),
    "size of all": Form("CARDINALITY(ARRAY_AGG({0}){filter})", "LEN(LIST({0}){filter})"),
    "lag": Form("LAG({0}){filter}"),
    "lag 3": Form("LAG({0}, 3){filter}"),
    "a_squares": Form("a_squares({0}){filter}", "COALESCE(SUM(CAST({0} AS HUGEINT) * {0}){filter}, 0)"),
    "a_spread": Form("a_spread({0}){filter}", "(MAX({0}){filter} - MIN({0}){filter})"),
    "a_products": Form("a_products({0}, {1}){filter}", "COALESCE(SUM(CAST({0} AS HUGEINT) * {1}){filter}, 0)"),
}

#: Table functions: how they are called, and in DuckDB the query that stands for the call.
TABLE_FUNCTIONS: dict[str, Form] = {
    "t_count": Form("t_count({0})", "SELECT n, 2 * n FROM (SELECT UNNEST(RANGE(CAST(ABS({0}) % 4 AS BIGINT))) AS n)"),
    "t_parts": Form("t_parts({0})", "SELECT UNNEST(STRING_SPLIT({0}, ','))"),
    "t_twice": Form("t_twice({0})", "SELECT {0}, UNNEST([1, 2])"),
}
