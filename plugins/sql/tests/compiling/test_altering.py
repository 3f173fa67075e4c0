"""ALTER TABLE, VIEW and FUNCTION."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import headrace as hr
import polars as pl
import pytest
from headrace.foundation.errors import ExpressionError
from headrace_sql import SqlSession

TABLE = """CREATE TABLE t (`user` BIGINT, product STRING, amount INT, price AS amount * 2)
  WITH ('connector' = 'datagen', 'number-of-rows' = '2', 'fields.amount.kind' = 'sequence')"""


@pytest.fixture
def ask() -> Callable[[str], pl.DataFrame]:
    session = SqlSession()
    hr.sql(TABLE, session=session)

    def rows(text: str) -> pl.DataFrame:
        job = hr.sql(text, session=session)
        made: pl.DataFrame = job.collect() if job.script.queries else pl.DataFrame()
        return made

    return rows


def columns(ask: Callable[[str], pl.DataFrame], name: str = "t") -> list[tuple[Any, ...]]:
    return ask(f"DESCRIBE {name}").select("name", "type", "null", "key", "watermark").rows()


def test_columns_are_added_where_the_statement_says(ask: Callable[[str], pl.DataFrame]) -> None:
    ask("ALTER TABLE t ADD `order` INT COMMENT 'number' FIRST")
    ask(
        "ALTER TABLE t ADD (ts TIMESTAMP(3), category STRING AFTER product, PRIMARY KEY (`order`) NOT ENFORCED, "
        "WATERMARK FOR ts AS ts - INTERVAL '1' HOUR)"
    )
    assert columns(ask) == [
        ("order", "INT", False, "PRI(order)", None),
        ("user", "BIGINT", True, None, None),
        ("product", "STRING", True, None, None),
        ("category", "STRING", True, None, None),
        ("amount", "INT", True, None, None),
        ("price", "BIGINT", True, None, None),
        ("ts", "TIMESTAMP(3) *ROWTIME*", True, None, "ts - INTERVAL '1' HOUR"),
    ]
    ask("ALTER TABLE t MODIFY (amount DOUBLE NOT NULL, category STRING AFTER `order`, WATERMARK FOR ts AS ts)")
    assert [row[:3] for row in columns(ask)] == [
        ("order", "INT", False), ("category", "STRING", True), ("user", "BIGINT", True), ("product", "STRING", True),
        ("amount", "DOUBLE", False), ("price", "DOUBLE", True), ("ts", "TIMESTAMP(3) *ROWTIME*", True),
    ]  # fmt: skip
    ask("ALTER TABLE t DROP WATERMARK; ALTER TABLE t DROP PRIMARY KEY; ALTER TABLE t DROP (price, amount)")
    assert [row[0] for row in columns(ask)] == ["order", "category", "user", "product", "ts"]
    assert {row[3:] for row in columns(ask)} == {(None, None)}


def test_a_column_is_renamed_everywhere(ask: Callable[[str], pl.DataFrame]) -> None:
    ask("ALTER TABLE t ADD (ts TIMESTAMP(3) METADATA, PRIMARY KEY (amount) NOT ENFORCED, WATERMARK FOR ts AS ts)")
    ask("ALTER TABLE t RENAME amount TO n; ALTER TABLE t RENAME ts TO at")
    made = ask("SHOW CREATE TABLE t")["result"][0]
    for line in (
        "`n` INT",
        "price AS `n` * 2",
        "`at` TIMESTAMP(3) METADATA FROM 'ts'",
        "PRIMARY KEY (`n`)",
        "WATERMARK FOR `at` AS `at`",
    ):
        assert line in made


def test_options_are_set_and_reset(ask: Callable[[str], pl.DataFrame]) -> None:
    ask("ALTER TABLE t SET ('number-of-rows' = '5'); ALTER TABLE t RESET ('fields.amount.kind')")
    assert ask("SELECT COUNT(*) AS c FROM t")["c"].to_list() == [5]
    assert "kind" not in ask("SHOW CREATE TABLE t")["result"][0]


def test_tables_and_views_are_renamed(ask: Callable[[str], pl.DataFrame]) -> None:
    ask("CREATE VIEW v AS SELECT amount FROM t; ALTER VIEW v RENAME TO w")
    assert ask("SELECT COUNT(*) AS c FROM w")["c"].to_list() == [2]
    ask("ALTER VIEW w AS SELECT amount, 1 AS one FROM t")
    assert ask("SELECT * FROM w").columns == ["amount", "one"]
    ask("ALTER TABLE t RENAME TO u; ALTER VIEW w AS SELECT amount FROM u")
    assert ask("SHOW TABLES")["table name"].to_list() == ["u", "w"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ALTER TABLE nowhere SET ('a' = 'b')", "unknown table 'nowhere'"),
        ("ALTER TABLE t ADD product INT", "has a column 'product' already"),
        ("ALTER TABLE t MODIFY colour INT", "has no column 'colour'"),
        ("ALTER TABLE t DROP colour", "has no column 'colour'"),
        ("ALTER TABLE t DROP amount", "computed column 'price' uses column 'amount'"),
        ("ALTER TABLE t DROP WATERMARK", "has no WATERMARK"),
        ("ALTER TABLE t DROP PRIMARY KEY", "has no PRIMARY KEY"),
        ("ALTER TABLE t MODIFY PRIMARY KEY (product) NOT ENFORCED", "has no PRIMARY KEY"),
        ("ALTER TABLE t RENAME product TO amount", "has a column 'amount' already"),
        ("ALTER TABLE t ADD PARTITION (p = 1)", "partitions and distributions"),
        ("ALTER TABLE t DROP (`user`, product, price, amount)", "a column at least"),
        ("ALTER VIEW t AS SELECT 1", "'t' is a table"),
        ("ALTER TABLE t RENAME TO t", "there is 't' already"),
        ("ALTER FUNCTION f AS 'math:sqrt'", "unknown function 'f'"),
        ("ALTER MODEL m SET ('a' = 'b')", "models"),
    ],
)
def test_mistakes(ask: Callable[[str], pl.DataFrame], text: str, message: str) -> None:
    with pytest.raises(ExpressionError, match=message):
        ask(text)


def test_if_exists_lets_it_be(ask: Callable[[str], pl.DataFrame]) -> None:
    ask(
        "ALTER TABLE IF EXISTS nowhere SET ('a' = 'b'); ALTER VIEW IF EXISTS nowhere AS SELECT 1; ALTER FUNCTION IF EXISTS f AS 'a:b'"
    )
