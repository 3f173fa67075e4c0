# ruff: noqa: S608  # texts of SQL are what is tested
"""CREATE TABLE … LIKE and AS, DROP, temporary and permanent definitions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import headrace as hr
import polars as pl
import pytest
from headrace.foundation.errors import ExpressionError
from headrace_sql import SqlSession

NUMBERS = "CREATE TABLE n (x BIGINT, y AS x * 2) WITH ('connector' = 'datagen', 'number-of-rows' = '{}', 'fields.x.kind' = 'sequence');"
ORDERS = """
CREATE TABLE orders (`user` BIGINT COMMENT 'who', product VARCHAR(10) NOT NULL, ts TIMESTAMP(3), pt AS PROCTIME(),
  twice AS `user` * 2, at TIMESTAMP(3) METADATA FROM 'timestamp' VIRTUAL, PRIMARY KEY (`user`) NOT ENFORCED,
  WATERMARK FOR ts AS ts - INTERVAL '5' SECOND) COMMENT 'all' PARTITIONED BY (product) WITH ('connector' = 'kafka', 'topic' = 't')
"""


@pytest.fixture
def ask() -> Callable[[str], Any]:
    """Return what gives the rows of a text in one session."""
    session = SqlSession()

    def rows(text: str) -> Any:
        job = hr.sql(text, session=session)
        return job.collect() if job.script.inserts or job.script.queries else None

    return rows


def created(ask: Callable[[str], Any], name: str) -> str:
    return str(ask(f"SHOW CREATE TABLE {name}")["result"][0])


def test_like_takes_everything_and_the_table_wins_over_options(ask: Callable[[str], Any]) -> None:
    ask(ORDERS)
    ask("CREATE TABLE more (n INT) WITH ('topic' = 'u') LIKE orders")
    made = created(ask, "more")
    assert "`user` BIGINT COMMENT 'who'" in made
    assert "product VARCHAR(10) NOT NULL" in made
    assert "at TIMESTAMP(3) METADATA FROM 'timestamp' VIRTUAL" in made
    assert made.index("n INT") < made.index("WATERMARK FOR ts AS ts - INTERVAL '5' SECOND")
    assert "PARTITIONED BY (product)" in made
    assert "'connector' = 'kafka'" in made
    assert "'topic' = 'u'" in made
    assert "'topic' = 't'" not in made


def test_like_leaves_out_what_it_is_told(ask: Callable[[str], Any]) -> None:
    ask(ORDERS)
    ask("CREATE TABLE plain WITH ('connector' = 'print') LIKE orders (EXCLUDING ALL INCLUDING GENERATED)")
    assert created(ask, "plain") == (
        "CREATE TABLE `default_catalog`.`default_database`.`plain` (\n  `user` BIGINT COMMENT 'who',\n"
        "  product VARCHAR(10) NOT NULL,\n  ts TIMESTAMP(3),\n  pt AS PROCTIME(),\n  twice AS `user` * 2\n)\n"
        "WITH (\n  'connector' = 'print'\n)"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("CREATE TABLE c WITH ('topic' = 'u') LIKE orders (INCLUDING OPTIONS)", "option 'topic' already"),
        ("CREATE TABLE c (product INT) LIKE orders", "has 'product' already"),
        ("CREATE TABLE c (WATERMARK FOR ts AS ts) LIKE orders", "already"),
        ("CREATE TABLE c (twice AS 1) LIKE orders", "has 'twice' already"),
        ("CREATE TABLE c LIKE nowhere", "unknown table 'nowhere'"),
        ("CREATE TABLE c LIKE orders (INCLUDING COLUMNS)", "expected one of"),
    ],
)
def test_mistakes_of_like(ask: Callable[[str], Any], text: str, message: str) -> None:
    ask(ORDERS)
    with pytest.raises(ExpressionError, match=message):
        ask(text)


def test_overwriting_takes_the_part_of_the_new_table(ask: Callable[[str], Any]) -> None:
    ask(ORDERS)
    ask(
        "CREATE TABLE c (WATERMARK FOR ts AS ts, twice AS 1) LIKE orders (OVERWRITING WATERMARKS OVERWRITING GENERATED)"
    )
    made = created(ask, "c")
    assert made.count("WATERMARK") == 1
    assert "WATERMARK FOR ts AS ts,\n" in made
    assert "twice AS 1" in made


@pytest.mark.parametrize("backend", ["light", pytest.param("spark", marks=pytest.mark.spark)])
def test_a_table_as_a_query_is_defined_and_filled(backend: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    text = (
        f"{NUMBERS.format(4)} CREATE TABLE doubled (note STRING, y DOUBLE) WITH ('connector' = 'filesystem', 'path' = '{out}', "
        "'format' = 'json') AS SELECT x, y, ARRAY[x] AS a, MAP['k', x] AS m FROM n WHERE x > 1"
    )
    session = SqlSession()
    hr.sql(text, session=session).run(backend, checkpoint=tmp_path / "state", show_progress=False)
    found = hr.sql("SELECT * FROM doubled", session=session).collect()
    assert dict(found.schema)["y"] == pl.Float64()
    wanted = [(None, x, x * 2.0, [x], [{"key": "k", "value": x}]) for x in (2, 3)]
    assert sorted(found.rows(), key=lambda row: row[1]) == wanted


def test_a_table_as_a_query_may_order_the_columns(ask: Callable[[str], Any]) -> None:
    ask(NUMBERS.format(3))
    frame = ask("CREATE TABLE swapped (y, x) WITH ('connector' = 'print') AS SELECT x, y FROM n")
    assert frame.columns == ["y", "x"]
    assert sorted(frame.rows()) == [(2 * x, x) for x in range(3)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("CREATE TABLE c (z) WITH ('connector' = 'print') AS SELECT x FROM n", "gives no column 'z'"),
        ("CREATE TABLE c (x) WITH ('connector' = 'print') AS SELECT x, y FROM n", "also gives 'y'"),
        ("CREATE TABLE c (x, z INT) WITH ('connector' = 'print') AS SELECT x FROM n", "with and without a type"),
        ("CREATE TABLE c PARTITIONED BY (x) WITH ('connector' = 'print') AS SELECT x FROM n", "no PARTITIONED BY"),
        ("CREATE TEMPORARY TABLE c WITH ('connector' = 'print') AS SELECT x FROM n", "no temporary table"),
        ("CREATE TABLE c WITH ('connector' = 'print') AS SELECT NULL AS z FROM n", "CAST it"),
        ("CREATE OR REPLACE TABLE c WITH ('connector' = 'print') AS SELECT x FROM n", "REPLACE TABLE"),
        ("CREATE TABLE c (x INT)", "has no option|has no connector"),
    ],
)
def test_mistakes_of_a_table_as_a_query(ask: Callable[[str], Any], text: str, message: str) -> None:
    ask(NUMBERS.format(3))
    with pytest.raises(ExpressionError, match=message):
        ask(f"{text}; SELECT * FROM c")


def test_what_is_dropped_is_known_no_more(ask: Callable[[str], Any]) -> None:
    ask(NUMBERS.format(3) + "CREATE VIEW v AS SELECT x FROM n")
    ask("DROP VIEW v; DROP TABLE n")
    for name in ("v", "n"):
        with pytest.raises(ExpressionError, match=f"unknown table '{name}'"):
            ask(f"SELECT * FROM {name}")
        ask(f"DROP TABLE IF EXISTS {name}")
    ask(NUMBERS.format(2) + "DROP TABLE n;" + NUMBERS.format(5))
    assert ask("SELECT COUNT(*) AS c FROM n")["c"].to_list() == [5]


def test_an_insert_before_a_drop_writes_into_the_table_as_it_was(ask: Callable[[str], Any]) -> None:
    frame = ask(
        NUMBERS.format(2) + "CREATE TABLE s (a BIGINT) WITH ('connector' = 'print'); INSERT INTO s SELECT x FROM n; "
        "DROP TABLE s; DROP TABLE n"
    )
    assert frame["a"].to_list() == [0, 1]
    assert ask("SHOW TABLES")["table name"].to_list() == []


def test_a_mistake_in_a_text_leaves_nothing_of_it(ask: Callable[[str], Any]) -> None:
    ask(NUMBERS.format(3))
    with pytest.raises(ExpressionError, match="unknown table 'nowhere'"):
        ask("CREATE VIEW v AS SELECT 1 AS a; DROP TABLE n; SET 'table.local-time-zone' = 'UTC'; SELECT * FROM nowhere")
    assert ask("SHOW TABLES")["table name"].to_list() == ["n"]
    assert ask("SET").rows() == []


def test_a_temporary_table_stands_in_front_of_a_permanent_one(ask: Callable[[str], Any]) -> None:
    ask(NUMBERS.format(3))
    ask(NUMBERS.format(7).replace("CREATE TABLE", "CREATE TEMPORARY TABLE"))
    assert ask("SELECT COUNT(*) AS c FROM n")["c"].to_list() == [7]
    with pytest.raises(ExpressionError, match="DROP TEMPORARY TABLE n first"):
        ask("DROP TABLE n")
    ask(NUMBERS.format(4))  # the permanent one, behind it
    assert ask("SELECT COUNT(*) AS c FROM n")["c"].to_list() == [7]
    ask("DROP TEMPORARY TABLE n")
    assert ask("SELECT COUNT(*) AS c FROM n")["c"].to_list() == [4]
    with pytest.raises(ExpressionError, match="no temporary table"):
        ask("DROP TEMPORARY TABLE n")


def test_kinds_are_not_mixed_up(ask: Callable[[str], Any]) -> None:
    ask(NUMBERS.format(3) + "CREATE VIEW v AS SELECT x FROM n")
    for text, message in (
        ("DROP TABLE v", "'v' is a view"),
        ("DROP VIEW n", "'n' is a table"),
        ("ALTER TABLE v SET ('a' = 'b')", "'v' is a view"),
        ("CREATE TABLE c LIKE v", "'v' is not a table"),
        ("SHOW CREATE TABLE v", "'v' is a view"),
        ("INSERT INTO v SELECT 1", "'v' is not a table"),
    ):
        with pytest.raises(ExpressionError, match=message):
            ask(text)


def test_registered_frames_can_be_dropped() -> None:
    session = SqlSession()
    hr.register("f", pl.DataFrame({"a": [1]}), session=session)
    assert hr.sql("SHOW TABLES", session=session).collect().rows() == [("f",)]
    hr.sql("DROP TABLE f", session=session)
    with pytest.raises(ExpressionError, match="unknown table 'f'"):
        hr.sql("SELECT * FROM f", session=session)


def test_spellings_of_old_texts_are_read(ask: Callable[[str], Any]) -> None:
    ask(
        "create table t (a INT, b VARCHAR,) with (type = es, hosts='http://h:9200', `index` = 'i', batchSize = 1000, x.y-z = true,);"
    )
    made = created(ask, "t")
    for line in ("'type' = 'es'", "'hosts' = 'http://h:9200'", "'batchSize' = '1000'", "'x.y-z' = 'true'"):
        assert line.lower() in made.lower()
    assert ask("CREATE TABLE m (a INT,) WITH (type = datagen, number-of-rows = 2,); SELECT COUNT(*) AS c, FROM m")[
        "c"
    ].to_list() == [2]
