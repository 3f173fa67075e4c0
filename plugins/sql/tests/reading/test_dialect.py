"""The dialects: what parses, what comes back, and how mistakes are shown."""

from __future__ import annotations

import pytest
import sqlglot
from headrace.foundation.errors import ExpressionError
from headrace_sql.reading.parsing import parse
from sqlglot import exp

STATEMENTS = [
    "CREATE TABLE t (a INT, b AS a + 1, p AS PROCTIME(), ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND, "
    "PRIMARY KEY (a) NOT ENFORCED) WITH ('connector' = 'kafka', 'topic' = 'x')",
    "CREATE TABLE t (id BIGINT PRIMARY KEY NOT ENFORCED, at TIMESTAMP(3) METADATA FROM 'timestamp' VIRTUAL, "
    "r ROW<x INT, y ARRAY<STRING>>, m MAP<STRING, BIGINT>) PARTITIONED BY (id) WITH ('connector' = 'filesystem')",
    "CREATE TABLE IF NOT EXISTS t (a DECIMAL(12, 2) NOT NULL, PERIOD FOR SYSTEM_TIME) WITH (type = 'db', cacheTTLMs = 1000)",
    "CREATE TABLE t (ip VARCHAR HEADER, ts TIMESTAMP, WATERMARK wk FOR ts AS withOffset(ts, 2000)) WITH (type = 'rocketmq')",
    "CREATE TEMPORARY VIEW v (a, b) AS SELECT x, y FROM t",
    "CREATE FUNCTION f AS 'package.module:name'",
    "INSERT INTO s (a, b) SELECT x, y FROM t",
    "INSERT OVERWRITE s SELECT * FROM v",
    "INSERT INTO s SELECT * FROM v EMIT WITH DELAY '1' MINUTE BEFORE WATERMARK, WITHOUT DELAY AFTER WATERMARK",
    "SET 'table.exec.state.ttl' = '1 h'",
    "EXPLAIN SELECT a FROM t",
    "SELECT k, COUNT(*) FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) GROUP BY k, window_start, window_end",
    "SELECT s.x FROM t LEFT JOIN LATERAL TABLE(f(d)) AS s(x) ON TRUE",
    "SELECT s.x FROM t CROSS JOIN UNNEST(a) AS s(x)",
    "SELECT a.k FROM t AS a JOIN d FOR SYSTEM_TIME AS OF a.p AS x ON a.k = x.k",
    "SELECT FLOOR(ts TO HOUR), CEIL(x), COUNT(DISTINCT a) FILTER (WHERE b > 1) FROM t GROUP BY GROUPING SETS ((a), ())",
    "SELECT JSON_OBJECT(KEY 'a' VALUE b ABSENT ON NULL), JSON_ARRAY(a, b NULL ON NULL), JSON_OBJECTAGG(KEY a VALUE b NULL ON NULL) FROM t",
    "SELECT JSON_ARRAYAGG(a ABSENT ON NULL), JSON_ARRAY( ABSENT ON NULL) FROM t QUALIFY ROW_NUMBER() OVER (ORDER BY a) = 1",
    "SELECT * FROM b MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts MEASURES LAST(B.ts) AS e ONE ROW PER MATCH "
    "AFTER MATCH SKIP PAST LAST ROW PATTERN (A B+) WITHIN INTERVAL '5' SECOND DEFINE B AS B.p > A.p)",
]

DEFINITIONS = [
    "CREATE TABLE t (a INT) COMMENT 'c' WITH ('x' = 'y') LIKE c.d.u (EXCLUDING ALL INCLUDING OPTIONS)",
    "CREATE TABLE t (b, a) WITH ('x' = 'y') AS SELECT a, b FROM u",
    "CREATE TEMPORARY FUNCTION IF NOT EXISTS f AS 'm:f' LANGUAGE PYTHON",
    "CREATE CATALOG IF NOT EXISTS c COMMENT 'x' WITH ('type' = 'file')",
    "CREATE DATABASE c.d",
    "DROP TEMPORARY VIEW IF EXISTS v",
    "DROP DATABASE d CASCADE",
    "ALTER TABLE t ADD (a INT FIRST, b INT AFTER c, WATERMARK FOR ts AS ts)",
    "ALTER TABLE IF EXISTS t DROP (a, b)",
    "ALTER TABLE t DROP WATERMARK",
    "ALTER TABLE t DROP PRIMARY KEY",
    "ALTER TABLE t RENAME a TO b",
    "ALTER TABLE t RENAME TO u",
    "ALTER TABLE t SET ('a' = 'b')",
    "ALTER TABLE t RESET ('a')",
    "ALTER VIEW v AS SELECT a FROM t",
    "ALTER FUNCTION f AS 'm:g' LANGUAGE PYTHON",
    "ALTER CATALOG c COMMENT 'x'",
    "USE CATALOG c",
    "USE c.d",
    "SHOW TABLES FROM c.d NOT LIKE 'a%'",
    "SHOW CREATE TABLE t",
    "SHOW USER FUNCTIONS",
    "DESCRIBE EXTENDED t",
    "DESCRIBE CATALOG EXTENDED c",
    "RESET 'a'",
    "SET",
]


@pytest.mark.parametrize("text", DEFINITIONS)
def test_statements_about_definitions_are_written_as_they_are_read(text: str) -> None:
    assert sqlglot.parse_one(text, read="flink").sql(dialect="flink") == text


@pytest.mark.parametrize("text", STATEMENTS)
def test_statements_come_back_as_they_were(text: str) -> None:
    once = sqlglot.parse_one(text, read="flink")
    shown = once.sql(dialect="flink")
    again = sqlglot.parse_one(shown, read="flink")
    assert again.sql(dialect="flink") == shown
    assert again == once


def test_the_dialects_are_registered_for_others() -> None:
    assert sqlglot.parse_one("SELECT `a` FROM t", read="flink").sql(dialect="duckdb") == 'SELECT "a" FROM t'
    node = sqlglot.parse_one('SELECT a FROM t WHERE b = "x"', read="blink")
    assert isinstance(node.find(exp.Literal), exp.Literal)


def test_a_statement_set_holds_its_inserts() -> None:
    text = "EXECUTE STATEMENT SET BEGIN INSERT INTO a SELECT x FROM t; INSERT INTO b SELECT x FROM t; END;"
    found, _ = parse(text)
    assert [type(each) for each in found] == [exp.Insert, exp.Insert, exp.EndStatement]


def test_blink_is_known_by_its_options() -> None:
    assert parse("CREATE TABLE t (a INT) WITH (type = 'print')")[1] == "blink"
    assert parse("CREATE TABLE t (a INT) WITH ('connector' = 'print')")[1] == "flink"


@pytest.mark.parametrize(
    ("text", "message", "place"),
    [
        ("SELEC a FROM t", "SELEC is not a statement", (1, 1)),
        ("CREATE TABLE t (\n  a INT,\n  b FOO) WITH ()", "expected the type of column b, not 'FOO'", (3, 5)),
        ("INSERT INTO s\nSELECT a FRM t", "unexpected 't'", (2, 14)),
        ("CREATE TABLE t (a INT) WITH ('connector' 'print')", "expected = behind the option's name", (1, 42)),
        ("CREATE TABLE t (a INT) LIKE", "expected a name", (1, 24)),
        (
            "SELECT a FROM TABLE(JUMP(TABLE t, DESCRIPTOR(ts), INTERVAL '1' DAY))",
            "JUMP is not a window function",
            (1, 21),
        ),
        ("SELECT CAST(a AS FOO) FROM t", "unknown type 'FOO'", (1, 18)),
        ("DROP t", "expected CATALOG, DATABASE, TABLE, VIEW or FUNCTION", (1, 6)),
        ("DELETE FROM t", "not supported: DELETE: rows in a sink are changed by", (1, 1)),
        ("CREATE FUNCTION f AS 'x' USING JAR 'a.jar'", "not supported: USING JAR: no Java runs here", (1, 26)),
    ],
)
def test_mistakes_are_shown_where_they_are(text: str, message: str, place: tuple[int, int]) -> None:
    with pytest.raises(ExpressionError) as caught:
        parse(text)
    assert message in caught.value.message
    assert f"\n  line {place[0]}, column {place[1]}:\n" in str(caught.value)
    assert "^" in str(caught.value)
