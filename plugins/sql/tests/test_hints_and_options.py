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
from headrace.errors import ExpressionError, HeadraceError, OptionError


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
        ("SELECT v /*+ OPTIONS('path' = 'x') */ FROM t", "a hint stands behind a table or behind SELECT"),
        ("SELECT w.v FROM (SELECT v FROM t) /*+ OPTIONS('path' = 'x') */ AS w", "a hint stands behind a table or behind SELECT"),
        ("WITH w AS (SELECT v FROM t) SELECT v FROM w /*+ OPTIONS('path' = 'x') */", "OPTIONS goes with tables, and 'w' is none"),
        ("SELECT /*+ BROADCATS(t) */ v FROM t", "unknown hint 'BROADCATS'"),
        ("SET 'table.exec.emit.early-fire.enable' = 'true'", "unknown option 'table.exec.emit.early-fire.enable'"),
        ("SET 'table.exec.stat.ttl' = '1 h'", "unknown option 'table.exec.stat.ttl'"),
        ("SET 'table.exec.legacy-cast-behaviour' = 'ENABLED'", "results would be other ones"),
        ("SET 'execution.runtime-mode' = 'batch'", "results would be other ones"),
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
        "SET 'execution.runtime-mode' = 'STREAMING'; SELECT /*+ STATE_TTL('t' = '1d'), BROADCAST(t) */ v FROM t"
    )
    assert [notice.split(" has no effect")[0] for notice in job.notices] == [
        "SET 'table.exec.mini-batch.enabled'", "SET 'taskmanager.numberOfTaskSlots'", "SET 'execution.runtime-mode'",
        "hint STATE_TTL", "hint BROADCAST",
    ]  # fmt: skip


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
    with pytest.raises(OptionError, match=r"late-fire\.enabled has no effect alone"):
        hr.sql(f"SET 'table.exec.emit.late-fire.enabled' = 'true'; {query}")
