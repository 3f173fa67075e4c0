"""Jobs with the verb and the format: dead letters, pruned columns, SQL, both backends."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import headrace as hr
import pytest
from headrace.testing import MemorySink, MemorySource
from headrace_grok.operator import Grok

LINES = [
    b"10.0.0.1 GET /index.html 200 15/Jan/2024:10:23:45 +0100",
    b"10.0.0.2 POST /login 500 15/Jan/2024:10:23:46 +0100",
    b"nonsense",
    b"10.0.0.3 GET \xff 200 15/Jan/2024:10:23:46 +0100",
]
PATTERN = "^%{IP:client} %{WORD:method} %{NOTSPACE:path} %{INT:status:int} %{HTTPDATE:at}$"


def lines(**options: Any) -> hr.Stream:
    return hr.stream("tests", "grok").from_(MemorySource({"q": LINES}), format="grok", pattern=PATTERN, **options)


def reasons_of(sink: MemorySink) -> list[str]:
    return [str(row["reason"]) for row in sink.rows]


def test_lines_that_do_not_fit_are_dead_letters_with_reasons() -> None:
    good, bad = MemorySink(), MemorySink()
    lines().where("status >= 200").select("client", "status").dead_letters(lambda each: each.to(bad)).to(good).run(
        "light"
    )
    assert good.rows == [{"client": "10.0.0.1", "status": 200}, {"client": "10.0.0.2", "status": 500}]
    assert reasons_of(bad) == [
        "the pattern does not fit, not even its first part",
        "not valid UTF-8 at byte 13: invalid start byte",
    ]


def test_types_of_the_schema_count() -> None:
    schema = {"at": "timestamp", "status": "int16", "whole": "string"}
    found = lines(schema=schema, timestamp_format="%d/%b/%Y:%H:%M:%S %z", line_column="whole").collect()
    assert found.rows()[0] == (datetime(2024, 1, 15, 9, 23, 45, tzinfo=UTC), 200, LINES[0].decode())
    with pytest.raises(hr.OptionError, match="'at' is a timestamp, but no option says how its text is written"):
        lines(schema={"at": "timestamp"})
    with pytest.raises(hr.OptionError, match="cannot be date"):
        lines(schema={"at": "date"})
    with pytest.raises(hr.OptionError, match="did you mean 'status'"):
        lines(schema={"statu": "int64"})


def test_the_format_is_for_reading() -> None:
    from headrace_grok.codec import GrokCodec

    with pytest.raises(hr.PlanError, match="can only be read"):
        GrokCodec(GrokCodec.Settings.of({"pattern": "x"})).encoder(None)
    with pytest.raises(hr.OptionError, match="the option pattern"):
        GrokCodec.Settings.of({})
    with pytest.raises(hr.OptionError, match="give either pattern or patterns, not both"):
        GrokCodec.Settings.of({"pattern": "x", "patterns": ["y"]})


def test_a_column_is_replaced_where_the_field_has_something() -> None:
    records = [b'{"message": "<34>hello"}', b'{"message": "plain"}', b"{}"]
    stream = hr.stream("tests", "verb").from_(MemorySource({"q": records}), format="json", schema={"message": "string"})
    grokked = stream.grok("^<%{INT:priority:int}>%{GREEDYDATA:message}", overwrite="message", no_match="null")
    assert grokked.collect().rows() == [("hello", 34), ("plain", None), (None, None)]
    with pytest.raises(hr.PlanError, match=r"field 'message' of the patterns is a column already"):
        stream.grok("%{GREEDYDATA:message}")
    with pytest.raises(hr.PlanError, match="cannot be replaced by a field of another type"):
        stream.grok("%{INT:message:int}", overwrite="message")
    with pytest.raises(hr.PlanError, match="'x' in overwrite is not a field"):
        stream.grok("%{INT:n}", overwrite="x")
    with pytest.raises(hr.PlanError, match="did you mean 'message'"):
        stream.grok("%{INT:n}", on="massage")
    with pytest.raises(hr.OptionError, match="expected 'dead letter' or 'null'"):
        stream.grok("%{INT:n}", no_match="drop")


def test_a_table_of_sql(tmp_path: Path) -> None:
    (tmp_path / "lines.log").write_bytes(b"\n".join(LINES) + b"\n")
    text = """
        CREATE TABLE t (status INT, client STRING) WITH (
            'connector' = 'filesystem', 'path' = 'PATH', 'format' = 'grok', 'grok.pattern-definitions' = 'W [A-Z]+',
            'grok.pattern' = '^%{IP:client} %{W:method} %{DATA} %{INT:status} ');
        SELECT client, status FROM t WHERE status > 200"""
    made = hr.sql(text.replace("PATH", str(tmp_path / "lines.log")))
    assert made.collect().rows() == [("10.0.0.2", 500)]
    with pytest.raises(hr.ExpressionError, match=r"format 'grok' has no option 'patern'(.|\n)*did you mean 'pattern'"):
        hr.sql(
            "CREATE TABLE t (status INT) WITH ('connector' = 'filesystem', 'path' = 'x', 'format' = 'grok', 'grok.patern' = 'x');"
            "SELECT * FROM t"
        )


def test_a_plan_shows_the_patterns_and_whether_they_have_changed() -> None:
    """A state behind the verb is not used when the rows may be others, also where the change is in a definition."""
    described = [
        Grok(patterns, pattern_definitions={"D": definition}, engine=engine).describe()
        for patterns, definition, engine in (
            (["%{D:a}", "b", "c", "d"], "x", "auto"), (["%{D:a}", "b", "c", "d"], "x", "polars"), (["%{D:a}", "b", "c", "d"], "y", "auto"),
            (["%{D:a}", "b", "c", "e"], "x", "auto"),
        )
    ]  # fmt: skip
    assert described[0].startswith("message by %{D:a}, b, c and 1 more (")
    assert described[0] == described[1]
    assert len(set(described)) == 3


def _to_file(place: Path, stream: hr.Stream) -> Any:
    return stream.to_file(place, format="json")


def _read(place: Path) -> list[dict[str, Any]]:
    found = [json.loads(line) for part in place.glob("*.json") for line in part.read_text().splitlines()]
    return sorted(found, key=str)


@pytest.mark.slow
@pytest.mark.spark
def test_spark_gives_what_light_gives(tmp_path: Path) -> None:
    rows: dict[str, list[Any]] = {}
    source = tmp_path / "in.log"
    source.write_bytes(b"\n".join(LINES) + b"\n")
    for backend in ("light", "spark"):
        good, bad = tmp_path / backend / "good", tmp_path / backend / "bad"
        stream = hr.stream("tests", "grok").from_file(
            str(source), format="grok", pattern=PATTERN, line_column="message"
        )
        spread = stream.select("client", "message").grok(["GET %{NOTSPACE:page}", "(?<!x)POST %{NOTSPACE:form}"])
        letters = partial(_to_file, bad)
        spread.drop("message").dead_letters(letters).to_file(good, format="json").run(backend, show_progress=False)
        rows[backend] = [_read(good), sorted(str(row["reason"]) for row in _read(bad))]
    assert rows["spark"] == rows["light"]
    assert len(rows["light"][0]) == 2
