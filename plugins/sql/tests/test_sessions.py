"""Sessions: which tables a text knows."""

from __future__ import annotations

import headrace as hr
import polars as pl
import pytest
from headrace.foundation.errors import ExpressionError, OptionError
from headrace_sql import SqlSession
from headrace_sql.api import forget

NUMBERS = (
    "CREATE TABLE n (x BIGINT) WITH ('connector' = 'datagen', 'number-of-rows' = '{}', 'fields.x.kind' = 'sequence');"
)


def count(table: str, session: SqlSession | None = None) -> int:
    frame = hr.sql(f"SELECT COUNT(*) AS c FROM {table}", session=session).collect()  # noqa: S608
    return int(frame["c"][0])


def test_a_text_that_only_defines_serves_later_ones() -> None:
    hr.sql(NUMBERS.format(3))
    hr.sql("CREATE VIEW small AS SELECT x FROM n WHERE x < 2")
    assert count("small") == 2
    assert dict(hr.table("n").schema or {}) == {"x": pl.Int64()}


@pytest.mark.parametrize(
    "job",
    [
        "SELECT * FROM n",
        "EXPLAIN SELECT * FROM n",
        "CREATE TABLE s (x BIGINT) WITH ('connector' = 'blackhole'); INSERT INTO s SELECT x FROM n",
    ],
)
def test_jobs_do_not_see_each_others_tables(job: str) -> None:
    hr.sql(NUMBERS.format(3) + job)
    with pytest.raises(ExpressionError, match=r"(?s)unknown table 'n'.*keeps it to itself.*session"):
        count("n")
    with pytest.raises(ExpressionError, match=r"(?s)unknown table 'n'.*keeps it to itself"):
        hr.sql("INSERT INTO n SELECT 1")
    with pytest.raises(ExpressionError, match=r"(?s)unknown table 'n'.*keeps it to itself"):
        hr.table("n")


def test_jobs_of_one_name_of_a_table_are_apart() -> None:
    first, second = (hr.sql(NUMBERS.format(rows) + "SELECT COUNT(*) AS c FROM n") for rows in (3, 5))  # noqa: S608
    assert first.collect()["c"].to_list() == [3]
    assert second.collect()["c"].to_list() == [5]


def test_a_job_keeps_its_functions_too() -> None:
    hr.register("f", pl.DataFrame({"s": ["a b"]}))
    twice = hr.udf(returns="string", name="doubled")(lambda text: text * 2)
    made = hr.sql("CREATE FUNCTION doubled AS 'd'; SELECT doubled(s) AS s FROM f", functions={"d": twice})
    assert made.collect()["s"].to_list() == ["a ba b"]
    hr.sql("CREATE FUNCTION known AS 'd'", functions={"d": twice})
    assert hr.sql("SELECT known(s) AS s FROM f").collect()["s"].to_list() == ["a ba b"]


def test_a_table_of_a_job_does_not_replace_the_one_that_is_known() -> None:
    hr.sql(NUMBERS.format(3))
    assert hr.sql(NUMBERS.format(7) + "SELECT COUNT(*) AS c FROM n").collect()["c"].to_list() == [7]  # noqa: S608
    assert count("n") == 3


def test_texts_of_a_session_know_what_its_jobs_define_and_nobody_else_does() -> None:
    one, other = SqlSession(), SqlSession()
    hr.sql(NUMBERS.format(3) + "SELECT * FROM n", session=one)  # noqa: S608
    hr.sql(NUMBERS.format(5), session=other)
    hr.register("f", pl.DataFrame({"a": [1, 2]}), session=one)
    assert (count("n", one), count("n", other), count("f", one)) == (3, 5, 2)
    assert list(hr.table("f", session=one).schema or ()) == ["a"]
    for session in (other, None):
        with pytest.raises(ExpressionError, match="unknown table 'f'"):
            count("f", session)
    with pytest.raises(ExpressionError, match="unknown table 'n'"):
        count("n")
    one.forget()
    with pytest.raises(ExpressionError, match="unknown table 'n'"):
        count("n", one)


def test_a_new_definition_takes_the_place_of_what_had_the_name() -> None:
    session = SqlSession()
    hr.register("n", pl.DataFrame({"x": [1]}), session=session)
    hr.sql(NUMBERS.format(4), session=session)
    assert count("n", session) == 4
    hr.sql("CREATE VIEW n AS SELECT * FROM (VALUES (1), (2)) AS t(x)", session=session)
    assert count("n", session) == 2
    hr.sql(NUMBERS.format(6), session=session)
    assert count("n", session) == 6


def test_streams_of_a_session_are_read_by_its_texts() -> None:
    session = SqlSession()
    hr.sql(NUMBERS.format(4), session=session)
    hr.register("even", hr.table("n", session=session).where("x % 2 = 0"), session=session)
    assert count("even", session) == 2


def test_forget_empties_the_default_session_only() -> None:
    session = SqlSession()
    for each in (None, session):
        hr.sql(NUMBERS.format(2), session=each)
    forget()
    assert count("n", session) == 2
    with pytest.raises(ExpressionError, match="unknown table 'n'"):
        count("n")


def test_what_is_no_session_is_refused() -> None:
    with pytest.raises(OptionError, match="is not a session"):
        hr.sql("SELECT 1", session="mine")
