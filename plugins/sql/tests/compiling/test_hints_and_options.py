"""Hints, options of SET, names in backticks, NOT NULL inside of types: nothing of a text is passed over in silence."""

# ruff: noqa: S608  # texts are put together from constants; one case, one line

from __future__ import annotations

import json
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import headrace as hr
import polars as pl
import pytest
from headrace.foundation.errors import ExpressionError, HeadraceError, OptionError


@pytest.fixture(autouse=True)
def tables(tmp_path: Path) -> None:
    """Table ``t`` (k, v, ts) over one.ndjson; two.ndjson has other rows. Table ``s`` writes to ``out``."""
    begin = datetime(2024, 1, 1)
    for name, values in (("one", (1, 2, 3)), ("two", (7, 8))):
        lines = [{"k": "a", "v": v, "ts": str(begin + timedelta(seconds=n))} for n, v in enumerate(values)]
        (tmp_path / f"{name}.ndjson").write_text("".join(json.dumps(line) + "\n" for line in lines))
    hr.sql(
        "CREATE TABLE t (k STRING, v INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) WITH ('connector' = 'file', "
        f"'path' = '{tmp_path / 'one.ndjson'}', 'format' = 'json'); "
        f"CREATE TABLE s (v INT) WITH ('connector' = 'file', 'path' = '{tmp_path / 'out'}', 'format' = 'json')"
    )


def rows(text: str) -> list[tuple[Any, ...]]:
    return sorted(hr.sql(text).collect().rows(), key=repr)


def test_options_behind_a_table_are_read_in_place_of_its_own(tmp_path: Path) -> None:
    hint = f"/*+ OPTIONS('path' = '{tmp_path / 'two.ndjson'}') */"
    assert rows(f"SELECT v FROM t {hint}") == [(7,), (8,)]
    assert rows(f"SELECT x.v FROM t {hint} AS x WHERE x.v > 7") == [(8,)]
    assert rows(f"SELECT a.v, b.v FROM t AS a JOIN t {hint} AS b ON a.v + 5 = b.v") == [(2, 7), (3, 8)]
    assert rows(f"SELECT v FROM t UNION ALL SELECT v FROM t {hint} UNION ALL SELECT v FROM t{hint}") == [
        (1,),
        (2,),
        (3,),
        (7,),
        (7,),
        (8,),
        (8,),
    ]
    window = f"TABLE(TUMBLE(TABLE t {hint}, DESCRIPTOR(ts), INTERVAL '1' HOUR))"
    assert rows(f"SELECT COUNT(*) FROM {window} GROUP BY window_start, window_end") == [(2,)]
    assert rows("SELECT v FROM t -- /*+ no hint */\n WHERE v = 1 /* + nor this */") == [(1,)]


def test_options_behind_the_table_of_an_insert(tmp_path: Path) -> None:
    hr.sql(f"INSERT INTO s /*+ OPTIONS('path' = '{tmp_path / 'other'}') */ SELECT v FROM t").run("light")
    assert (tmp_path / "other").exists()
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT v FROM t /*+ OPTIONS('foo' = 'bar') */", "connector 'file' has no option 'foo'"),
        ("SELECT v FROM t /*+ OPTION('path' = 'x') */", "unknown hint 'OPTION' behind a table"),
        ("SELECT v FROM t /*+ OPTIONS(path = 'x') */", "OPTIONS takes 'key' = 'value'"),
        ("SELECT v /*+ OPTIONS('path' = 'x') */ FROM t", "a hint must follow a table or SELECT"),
        ("SELECT w.v FROM (SELECT v FROM t) /*+ OPTIONS('path' = 'x') */ AS w", "a hint must follow a table or SELECT"),
        ("WITH w AS (SELECT v FROM t) SELECT v FROM w /*+ OPTIONS('path' = 'x') */", "OPTIONS goes with tables, and 'w' is none"),
        ("SELECT /*+ BROADCATS(t) */ v FROM t", "unknown hint 'BROADCATS'"),
        ("SELECT /*+ BROADCAST(x) */ v FROM t", "BROADCAST: there is no table 'x' in FROM"),
        ("SELECT /*+ SHUFFLE_HASH */ v FROM t", "SHUFFLE_HASH names tables of FROM"),
        ("SELECT /*+ LOOKUP('table' = 't', 'asinc' = 'true') */ v FROM t", "LOOKUP has no option 'asinc'"),
        ("SELECT /*+ LOOKUP('async' = 'true') */ v FROM t", "LOOKUP needs the table"),
        ("SELECT /*+ LOOKUP('table' = 'x') */ v FROM t", "LOOKUP: there is no table 'x' in FROM"),
        ("SELECT /*+ LOOKUP('table' = 't', 'async' = 'maybe') */ v FROM t", "'async' is true or false, not 'maybe'"),
        ("SELECT /*+ LOOKUP('table' = 't', 'capacity' = '0') */ v FROM t", "'capacity' is a number from 1 on"),
        ("SELECT /*+ LOOKUP('table' = 't', 'capacity' = '²') */ v FROM t", "'capacity' is a number from 1 on"),
        ("SELECT /*+ LOOKUP('table' = 't', 'timeout' = 'x') */ v FROM t", "'x' is not a length of time"),
        ("SELECT /*+ LOOKUP('table' = 't', 'retry-predicate' = 'lookup_miss') */ v FROM t", "go together"),
        ("SELECT /*+ LOOKUP(t) */ v FROM t", "LOOKUP takes 'option' = 'value'"),
        ("SET 'table.exec.emit.early-fire.enable' = 'true'", "unknown option 'table.exec.emit.early-fire.enable'"),
        ("SET 'table.exec.stat.ttl' = '1 h'", "unknown option 'table.exec.stat.ttl'"),
        ("SET 'table.exec.legacy-cast-behaviour' = 'ENABLED'", "it would change the results"),
        ("SET 'execution.runtime-mode' = 'batch'", "it would change the results"),
    ],
)  # fmt: skip
def test_unknown_hints_and_options_are_errors(text: str, message: str) -> None:
    with pytest.raises(HeadraceError, match=message):
        hr.sql(text)


def test_hints_say_what_was_meant() -> None:
    with pytest.raises(ExpressionError) as caught:
        hr.sql("SELECT /*+ BROADCATS(t) */ v FROM t")
    assert caught.value.hint == "did you mean 'BROADCAST'?"
    with pytest.raises(ExpressionError) as caught:
        hr.sql("SET 'table.exec.stat.ttl' = '1 h'")
    assert caught.value.hint == "did you mean 'table.exec.state.ttl'?"


def test_what_has_no_effect_is_a_notice() -> None:
    job = hr.sql(
        "SET 'table.exec.mini-batch.enabled' = 'true'; SET 'taskmanager.numberOfTaskSlots' = '2'; "
        "SET 'execution.runtime-mode' = 'STREAMING'; SELECT /*+ MULTI_JOIN(t), BROADCAST(t) */ v FROM t"
    )
    assert [notice.split(" has no effect")[0] for notice in job.notices] == [
        "SET 'table.exec.mini-batch.enabled'", "SET 'taskmanager.numberOfTaskSlots'", "SET 'execution.runtime-mode'",
        "hint MULTI_JOIN", "hint BROADCAST",
    ]  # fmt: skip


def lengths(text: str) -> list[Any]:
    """Return how long the operators of a query keep state."""
    specs: list[Any] = [getattr(node, "spec", None) for node in hr.sql(text).plan().nodes.values()]
    return [spec.ttl_us for spec in specs if getattr(spec, "ttl_us", "none") != "none"]


SECOND, HOUR, DAY = 1_000_000, 3_600_000_000, 86_400_000_000


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT /*+ STATE_TTL('t' = '1 d') */ k, SUM(v) FROM t GROUP BY k", [DAY]),
        ("SELECT /*+ STATE_TTL(o = '1d') */ k, SUM(v) FROM t AS o GROUP BY k", [DAY]),
        ("SELECT /*+ STATE_TTL('o' = '1d') */ k, COUNT(*) FROM (SELECT k FROM t) AS o GROUP BY k", [DAY]),
        ("SELECT /*+ STATE_TTL('a' = '1d', 'b' = '2 h') */ a.v FROM t a JOIN t b ON a.k = b.k", [(DAY, 2 * HOUR)]),
        ("SELECT /*+ STATE_TTL('a' = '1d', 'b' = '1 d') */ a.v FROM t a, t b WHERE a.k = b.k", [DAY]),
        ("SELECT /*+ STATE_TTL('b' = '1d') */ a.v FROM t a LEFT JOIN t b ON a.k = b.k", [(5 * SECOND, DAY)]),
        ("SELECT /*+ STATE_TTL('b' = '0 s') */ a.v FROM t a LEFT JOIN t b ON a.k = b.k", [(5 * SECOND, None)]),
        (
            "SELECT /*+ STATE_TTL('a' = '1d', 'c' = '2 h') */ a.v FROM t a JOIN t b ON a.k = b.k JOIN t c ON a.k = c.k",
            [(DAY, 5 * SECOND), (5 * SECOND, 2 * HOUR)],
        ),
        ("SELECT DISTINCT k FROM (SELECT /*+ STATE_TTL('t' = '1d') */ k, SUM(v) FROM t GROUP BY k)", [DAY, 5 * SECOND]),
    ],
)
def test_state_ttl_of_a_table(query: str, expected: list[Any]) -> None:
    assert lengths(f"SET 'table.exec.state.ttl' = '5 s'; {query}") == expected


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT /*+ STATE_TTL('t' = '1d') */ v FROM t", "STATE_TTL of 't' has no effect"),
        (
            "SELECT /*+ STATE_TTL('t' = '1d') */ COUNT(*) FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' DAY)) AS t "
            "GROUP BY window_start, window_end",
            "STATE_TTL of 't' has no effect",
        ),
        (
            "SELECT /*+ STATE_TTL('a' = '1d') */ a.v FROM t a JOIN t b ON a.k = b.k AND a.ts BETWEEN b.ts AND "
            "b.ts + INTERVAL '1' HOUR",
            "STATE_TTL of 'a' has no effect",
        ),
        ("SELECT /*+ STATE_TTL('u' = '1d') */ k, SUM(v) FROM t GROUP BY k", "there is no table 'u' in FROM"),
        ("SELECT /*+ STATE_TTL('t' = '1 x') */ k, SUM(v) FROM t GROUP BY k", "'1 x' is not a length of time"),
        ("SELECT /*+ STATE_TTL('t') */ k, SUM(v) FROM t GROUP BY k", "STATE_TTL takes 'table' = 'time'"),
        ("SELECT /*+ STATE_TTL */ k, SUM(v) FROM t GROUP BY k", "STATE_TTL takes 'table' = 'time'"),
    ],
)
def test_state_ttl_that_cannot_be_heeded_is_refused(query: str, message: str) -> None:
    with pytest.raises((ExpressionError, hr.OptionError), match=message):
        hr.sql(query).plan()


TABLE = "CREATE TABLE records (v INT) WITH ('connector' = 'filesystem', 'path' = '/tmp/nothing', 'format' = '{}', {}); "


@pytest.mark.parametrize("value", ["true", "false"])
@pytest.mark.parametrize("name", ["json", "csv"])
def test_what_becomes_of_records_that_cannot_be_parsed_is_a_notice(name: str, value: str) -> None:
    job = hr.sql(TABLE.format(name, f"'{name}.ignore-parse-errors' = '{value}'") + "SELECT v FROM records")
    [notice] = job.notices
    assert f"'{name}.ignore-parse-errors' has no effect" in notice
    assert "dead letters" in notice


@pytest.mark.parametrize(
    ("name", "option", "why"),
    [("json", "json.fail-on-missing-field", "is NULL"), ("csv", "csv.allow-comments", "is a record")],
)
def test_options_of_formats_that_would_change_rows_are_refused(name: str, option: str, why: str) -> None:
    with pytest.raises(ExpressionError, match=f"{option}.* is not supported: .*{why}"):
        hr.sql(TABLE.format(name, f"'{option}' = 'true'") + "SELECT v FROM records").plan()
    assert hr.sql(TABLE.format(name, f"'{option}' = 'false'") + "SELECT v FROM records").notices == ()


@pytest.mark.parametrize("name", ["A", 'A"', '"A"', "a b", "a``b", "(A", "A|B", "x-", "*"])
def test_variables_of_patterns_in_backticks(name: str) -> None:
    text = (
        f'SELECT * FROM t MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts MEASURES `{name}`.v AS x, LAST(B.v) AS `y"` '
        f"AFTER MATCH SKIP TO LAST B PATTERN (`{name}` B+? C) DEFINE `{name}` AS `{name}`.v < 3, B AS B.v > `{name}`.v)"
    )
    made = hr.sql(text).collect()
    assert made.columns == ["k", "x", 'y"']
    assert made.rows() == [("a", 1, 2)]


def test_names_with_quotes_in_other_places() -> None:
    hr.register("u", pl.DataFrame({"a": [1, 1], 'A"': [2, 3], '"A"': [3, 4], "x`y": [4, 5], "p,q": [9, 8]}))
    ranked = 'SELECT *, ROW_NUMBER() OVER (PARTITION BY a ORDER BY `"A"` DESC, `p,q`) AS `r"` FROM u'
    assert rows(f'SELECT `A"`, `x``y` FROM ({ranked}) WHERE `r"` = 1') == [(3, 5)]
    assert rows('SELECT `A"` FROM u ORDER BY `p,q`, `A"` LIMIT 1') == [(3,)]
    assert rows('SELECT l.`"A"` FROM u AS l JOIN u AS r ON l.`"A"` = r.`"A"` AND l.`"A"` = r.`x``y` - 1') == [
        (3,),
        (4,),
    ]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("MAP<STRING NOT NULL, INT NOT NULL>", pl.List(pl.Struct({"key": pl.String, "value": pl.Int32}))),
        ("MAP<STRING NOT NULL, INT NULL> NOT NULL", pl.List(pl.Struct({"key": pl.String, "value": pl.Int32}))),
        ("ARRAY<INT NOT NULL> NOT NULL", pl.List(pl.Int32)),
        ("INT ARRAY", pl.List(pl.Int32)),
        ("INT NOT NULL ARRAY", pl.List(pl.Int32)),
        ("INT NOT NULL ARRAY NOT NULL ARRAY NULL", pl.List(pl.List(pl.Int32))),
        ("MAP<STRING, INT NOT NULL ARRAY>", pl.List(pl.Struct({"key": pl.String, "value": pl.List(pl.Int32)}))),
        ("ARRAY<ARRAY<STRING NOT NULL> NOT NULL>", pl.List(pl.List(pl.String))),
        (
            "MAP<STRING, ARRAY<INT NOT NULL> NOT NULL>",
            pl.List(pl.Struct({"key": pl.String, "value": pl.List(pl.Int32)})),
        ),
        (
            "ROW<a INT NOT NULL, b ARRAY<STRING NOT NULL> NOT NULL> NOT NULL",
            pl.Struct({"a": pl.Int32, "b": pl.List(pl.String)}),
        ),
        ("INT NOT NULL", pl.Int32()),
    ],
)
def test_not_null_inside_of_types(kind: str, expected: pl.DataType, tmp_path: Path) -> None:
    options = f"WITH ('connector' = 'file', 'path' = '{tmp_path / 'one.ndjson'}', 'format' = 'json')"
    made = hr.sql(
        f"CREATE TABLE n (x {kind}, y INT NOT NULL COMMENT 'y', PRIMARY KEY (y) NOT ENFORCED) {options}; SELECT x FROM n"
    ).collect()
    assert made.schema["x"] == expected


def test_late_rows_behind_emit_after_watermark(tmp_path: Path) -> None:
    seconds = [1, 2, 5000, 3, 4000, 9000, 4, 5001]  # the fourth is an hour and a half late, the seventh more
    lines = [{"ts": str(datetime(2024, 1, 1) + timedelta(seconds=second))} for second in seconds]
    (tmp_path / "l.ndjson").write_text("".join(json.dumps(line) + "\n" for line in lines))
    hr.sql(
        "CREATE TABLE l (ts TIMESTAMP(3), WATERMARK FOR ts AS ts) WITH ('connector' = 'file', "
        f"'path' = '{tmp_path / 'l.ndjson'}', 'format' = 'json'); "
        "CREATE TABLE c (w TIMESTAMP(3), n BIGINT) WITH ('connector' = 'blackhole')"
    )
    query = "INSERT INTO c SELECT TUMBLE_START(ts, INTERVAL '1' MINUTE), COUNT(*) FROM l GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE)"

    def counts(text: str) -> list[int]:
        return [count for _, count in sorted(hr.sql(text).collect().rows())]

    # Windows begin at 0, 3960, 4980 and 9000 seconds. The row of second 5001 comes 3939 seconds behind the end of its window.
    assert counts(query) == [2, 1, 1]
    assert counts(f"{query} EMIT WITHOUT DELAY AFTER WATERMARK") == [2, 1, 1, 1]
    assert counts(f"SET 'table.exec.emit.allow-lateness' = '2 h'; {query} EMIT WITHOUT DELAY AFTER WATERMARK") == [
        3,
        1,
        2,
        1,
    ]
    assert counts(f"SET 'table.exec.state.ttl' = '3 h'; {query} EMIT WITHOUT DELAY AFTER WATERMARK") == [4, 1, 2, 1]
    with pytest.raises(OptionError, match=r"late-fire\.enabled has no effect without"):
        hr.sql(f"SET 'table.exec.emit.late-fire.enabled' = 'true'; {query}")


@pytest.mark.parametrize(
    "kind", ["MULTISET<INT>", "INT MULTISET", "INT NOT NULL MULTISET", "ARRAY<MULTISET<INT NOT NULL>>"]
)
def test_a_multiset_is_refused_with_what_to_write(kind: str) -> None:
    with pytest.raises(ExpressionError, match=r"type MULTISET is not supported: .*ARRAY<…>, .*MAP<…, INT>"):
        hr.sql(f"CREATE TABLE many (v {kind}) WITH ('connector' = 'print')")


def test_a_column_may_be_called_multiset() -> None:
    hr.register("named", pl.DataFrame({"multiset": [1, 5]}))
    assert hr.sql("SELECT multiset FROM named WHERE multiset < 3").collect().rows() == [(1,)]


@pytest.mark.parametrize("word", ["UNION", "UNION ALL"])
def test_columns_of_processing_time_come_through_set_operations(word: str, tmp_path: Path) -> None:
    made = hr.sql(
        "CREATE TABLE timed (v INT, p AS PROCTIME()) WITH ('connector' = 'file', "
        f"'path' = '{tmp_path / 'one.ndjson'}', 'format' = 'json'); SELECT v, p FROM timed {word} SELECT v, p FROM timed"
    ).collect()
    assert made.columns == ["v", "p"]
    assert (set(made["v"]), made["p"].null_count()) == ({1, 2, 3}, 0)


def idle_timeouts(text: str) -> list[Any]:
    """Return after how many microseconds a query no longer waits for its tables."""
    specs: list[Any] = [getattr(node, "spec", None) for node in hr.sql(text).plan().nodes.values()]
    return [spec.idle_timeout_us for spec in specs if getattr(spec, "name", "") == "watermark"]


OF_TABLE = "FROM t /*+ OPTIONS('scan.watermark.idle-timeout' = '2 h') */"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT v FROM t", 60 * SECOND),
        ("SET 'table.exec.source.idle-timeout' = '5 s'; SELECT v FROM t", 5 * SECOND),
        ("SET 'table.exec.source.idle-timeout' = '0 ms'; SELECT v FROM t", None),
        (f"SELECT v {OF_TABLE}", 2 * HOUR),
        (f"SET 'table.exec.source.idle-timeout' = '5 s'; SELECT v {OF_TABLE}", 2 * HOUR),
        ("SET 'table.exec.source.idle-timeout' = '5 s'; RESET; SELECT v FROM t", 60 * SECOND),
    ],
)
def test_how_long_a_table_without_records_is_waited_for(text: str, expected: int | None) -> None:
    assert idle_timeouts(text) == [expected]


def test_the_first_query_that_reads_a_table_says_for_how_long_it_is_waited_for() -> None:
    insert = "INSERT INTO s SELECT v FROM t"
    text = f"SET 'table.exec.source.idle-timeout' = '5 s'; {insert}; SET 'table.exec.source.idle-timeout' = '7 s'; {insert}"
    assert idle_timeouts(text) == [5 * SECOND]


def test_other_options_of_watermarks_have_no_effect() -> None:
    job = hr.sql("SELECT v FROM t /*+ OPTIONS('scan.watermark.alignment.group' = 'g') */")
    assert [notice.split(" has no effect")[0] for notice in job.notices] == [
        "table 't': option 'scan.watermark.alignment.group'"
    ]
    job = hr.sql("INSERT INTO s /*+ OPTIONS('scan.watermark.idle-timeout' = '2 s') */ SELECT v FROM t")
    assert job.notices == ()


@pytest.mark.parametrize(
    "text",
    [
        "SET 'table.exec.source.idle-timeout' = 'soon'; SELECT v FROM t",
        "SELECT v FROM t /*+ OPTIONS('scan.watermark.idle-timeout' = 'soon') */",
    ],
)
def test_an_idle_timeout_that_is_no_length_of_time(text: str) -> None:
    with pytest.raises(HeadraceError, match="'soon' is not a length of time"):
        hr.sql(text)
