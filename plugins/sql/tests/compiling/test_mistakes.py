"""One mistake of each kind: what the message says, and which part of the text it underlines."""

from __future__ import annotations

import headrace as hr
import pytest
from headrace.foundation.errors import ExpressionError, JobError

TABLES = """
CREATE TABLE t (k STRING, v INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND)
  WITH ('connector' = 'filesystem', 'path' = 'x.ndjson', 'format' = 'json');
CREATE TABLE s (k STRING, n BIGINT) WITH ('connector' = 'blackhole');
"""
COUNTED = "; INSERT INTO o SELECT k, COUNT(*) FROM t GROUP BY k"
QUOTED = 'INSERT INTO s SELECT k, v FROM t WHERE k = "a"'


@pytest.mark.parametrize(
    ("text", "message", "underlined"),
    [
        ("SELECT nope FROM t", "unknown column 'nope'", "nope"),
        ("SELECT t.nope FROM t", "table 't' has no column 'nope'", "t.nope"),
        ("SELECT * FROM missing", "unknown table 'missing'", "missing"),
        ("SELECT FOO(k) FROM t", "unknown function 'foo'", "FOO"),
        ("SELECT k FROM t WHERE v", "the condition must be boolean", "v"),
        ("SELECT k FROM t WHERE k = 1", "cannot compare", "k = 1"),
        ("SELECT k, v FROM t GROUP BY k", "neither grouped by nor in an aggregate", "v"),
        ("SELECT SUM(SUM(v)) FROM t", "an aggregate cannot contain another aggregate", "SUM(v)"),
        ("SELECT k FROM t WHERE SUM(v) > 1", "is an aggregate function", "SUM(v)"),
        ("SELECT COUNT(*) FROM t GROUP BY TUMBLE(v, INTERVAL '1' MINUTE)", "'v' is not a time attribute", "v"),
        ("SELECT a.k FROM t a JOIN t b ON a.v = b.v WHERE k = 'x'", "column 'k' is in several tables", "k"),
        ("SELECT k FROM t UNION ALL SELECT v FROM t", "types that cannot be combined", None),
        (
            "SELECT SUM(v) OVER (PARTITION BY k ORDER BY v RANGE 3 PRECEDING) FROM t",
            "RANGE with a length needs an ascending time",
            None,
        ),
        ("SELECT LEAD(v) OVER (PARTITION BY k ORDER BY ts) FROM t", "would have to wait for later rows", None),
        ("SELECT LAG(v) OVER (PARTITION BY k) FROM t", "LAG needs ORDER BY", None),
        (
            "CREATE TABLE w (ts TIMESTAMP(3), WATERMARK FOR ts AS SOURCE_WATERMARK()) WITH ('connector' = 'datagen'); SELECT * FROM w",
            "tells no watermark of its own",
            None,
        ),
        ("SELECT * FROM TO_CHANGELOG(input => TABLE t, op => DESCRIPTOR(a, b))", "names exactly one column", "b"),
        ("SELECT * FROM TO_CHANGELOG(TABLE t, DESCRIPTOR(v))", "has a column 'v' already", None),
        (
            "SELECT * FROM TO_CHANGELOG(TABLE t, op_mapping => MAP['INSRT', 'x'])",
            "unknown kind of change 'INSRT'",
            "'INSRT'",
        ),
        (
            "SELECT * FROM TO_CHANGELOG(TABLE t, op_mapping => MAP['INSERT, DELETE', 'x', 'DELETE', 'y'])",
            "mapped twice",
            None,
        ),
        ("SELECT * FROM FROM_CHANGELOG(TABLE t)", "has no column 'op'", None),
        ("SELECT * FROM FROM_CHANGELOG(table => TABLE t)", "has no argument 'table'", None),
        ("INSERT INTO s SELECT k FROM t", "gives 1 columns", None),
        ("INSERT INTO s SELECT v, v FROM t", "column 'k' of the table is VARCHAR", None),
        ("INSERT INTO t2 SELECT k FROM t", "unknown table 't2'", "t2"),
        (
            "SET 'table.exec.emit.early-fire.enable' = 'true'",
            "unknown option 'table.exec.emit.early-fire.enable'",
            None,
        ),
        ("SET 'table.exec.mini-batch.enabled' = 'true'", None, None),
        ("SET 'nonsense' = '1'", "unknown option 'nonsense'", None),
        ("SELECT k, COUNT(*) FROM t GROUP BY k LIMIT 3", "LIMIT needs ORDER BY where results change", None),
        ("SELECT k FROM t ORDER BY ts OFFSET 3 ROWS", "OFFSET without LIMIT", None),
        ("SELECT DISTINCT ON (k) k FROM t", "DISTINCT ON is not supported", None),
        ("SELECT v::STRING FROM t", "syntax", "::"),
        (
            "SELECT k FROM t WHERE v = 1 OR (v, k) IN (SELECT v, k FROM t)",
            "can be combined with other conditions only by AND",
            None,
        ),
        (
            "SELECT * FROM t MATCH_RECOGNIZE (ORDER BY ts MEASURES A.v AS x PATTERN ((A B)+ {- C -}) DEFINE A AS A.v > 1)",
            "parts that are left out",
            None,
        ),
        (
            "SELECT * FROM t MATCH_RECOGNIZE (ORDER BY ts MEASURES A.v AS x PATTERN ((A | B)*) DEFINE A AS A.v > 1)",
            "it matches no row at all",
            None,
        ),
        ("SELECT LAG(v, 1, 'x') OVER (PARTITION BY k ORDER BY ts) FROM t", "another type than the column", "'x'"),
        ("SELECT COUNT(DISTINCT k, v) OVER (ORDER BY ts) FROM t", "takes fewer arguments", None),
        ("CREATE TABLE d (x DECIMAL(a, 2)) WITH ('connector' = 'blackhole')", "DECIMAL takes a precision", None),
    ],
)
def test_a_mistake_is_named_and_underlined(text: str, message: str | None, underlined: str | None) -> None:
    if message is None:  # an option of Flink's runtime: a notice, not an error
        assert hr.sql(TABLES + text).notices
        return
    with pytest.raises(ExpressionError) as caught:
        hr.sql(TABLES + text)
    error = caught.value
    assert message in error.message
    if underlined is not None:
        assert error.text is not None
        assert error.position is not None
        assert error.text[error.position : error.position + error.length] == underlined


@pytest.mark.parametrize(
    ("sink", "message"),
    [
        (
            "CREATE TABLE o (k STRING, n BIGINT) WITH ('connector' = 'jdbc', 'table-name' = 'x')",
            r"table 'o': required option is missing \[job 'sql.mistakes', plugin 'mysql', option 'database'\]\n"
            r"  hint: WITH \(…, 'url' = '…'\)",
        ),
        (
            "CREATE TABLE o (k STRING, n BIGINT) WITH ('connector' = 'jdbc', 'url' = 'jdbc:mysql://h/d')",
            r"table 'o': required option is missing .*option 'table'\]\n  hint: WITH \(…, 'table-name' = '…'\)",
        ),
        (
            "CREATE TABLE o (k STRING, n BIGINT) WITH ('connector' = 'upsert-kafka', 'topic' = 't', "
            "'properties.bootstrap.servers' = 'h:1', 'key.format' = 'json', 'value.format' = 'json')",
            "table 'o' has no PRIMARY KEY, which connector 'upsert-kafka' needs",
        ),
    ],
)
def test_what_a_table_lacks_is_said_in_the_words_of_the_text(sink: str, message: str) -> None:
    pytest.importorskip("headrace_mysql")
    pytest.importorskip("headrace_kafka")
    with pytest.raises(JobError, match=f"(?s){message}"):
        hr.sql(TABLES + sink + COUNTED, pipeline="mistakes")


def test_a_text_in_double_quotes_and_a_window_without_a_watermark() -> None:
    with pytest.raises(ExpressionError, match="text stands in single quotes: 'text'"):
        hr.sql(TABLES + QUOTED)
    table = TABLES.replace(", WATERMARK FOR ts AS ts - INTERVAL '1' SECOND", "")
    text = "SELECT COUNT(*) FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) GROUP BY window_start, window_end"
    with pytest.raises(
        ExpressionError,
        match=r"DESCRIPTOR needs a time attribute, and 'ts' is none(?s:.*)WATERMARK FOR ts in its table",
    ):
        hr.sql(table + text)


def test_a_long_line_is_shown_around_the_mistake() -> None:
    text = " ".join(["SELECT", "k, " * 200, "nope FROM t"])
    with pytest.raises(ExpressionError) as caught:
        hr.sql(TABLES + text)
    lines = str(caught.value).splitlines()
    [place] = [at for at, line in enumerate(lines) if set(line.strip()) == {"^"}]
    shown = lines[place - 1]
    assert len(shown) < 180
    assert shown[lines[place].index("^") : lines[place].rindex("^") + 1] == "nope"


def test_unknown_options_get_the_nearest_name() -> None:
    text = "CREATE TABLE t (k STRING) WITH ('connector' = 'kafka', 'topik' = 'x'); SELECT k FROM t"
    with pytest.raises(ExpressionError) as caught:
        hr.sql(text)
    assert "no option 'topik'" in caught.value.message
    assert "'topic'" in str(caught.value.hint)
    with pytest.raises(ExpressionError, match="unknown connector 'kafak'"):
        hr.sql("CREATE TABLE t2 (k STRING) WITH ('connector' = 'kafak'); SELECT k FROM t2")


def test_a_text_without_insert_has_nothing_to_run() -> None:
    job = hr.sql(TABLES)
    with pytest.raises(JobError, match="nothing to run"):
        job.plan()
    with pytest.raises(JobError, match="nothing to run"):
        job.collect()


@pytest.mark.parametrize("text", ["", TABLES])
def test_a_text_that_only_defines_has_nothing_to_run(text: str) -> None:
    with pytest.raises(JobError, match="the text has no INSERT INTO and no SELECT, so there is nothing to run"):
        hr.sql(text).run("light")
