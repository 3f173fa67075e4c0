"""What the print sink prints, and where."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import headrace as hr
import polars as pl
import pytest
from headrace.flow.messages import CHANGE, INDEX, OFFSET, ROW
from headrace.flow.rows import pack_rows
from headrace.interfaces.registry import default_registry
from headrace.testing import MemorySource
from headrace_print.sink import PrintSettings, PrintSink

SCHEMA = hr.Schema.of({"name": "string", "count": "int64"})


def batch(rows: Sequence[dict[str, Any]], schema: hr.Schema = SCHEMA) -> hr.SinkBatch:
    frame = pl.DataFrame(rows, schema=dict(schema), orient="row")
    return hr.SinkBatch(hr.Queue("q"), with_header(frame))


def with_header(frame: pl.DataFrame) -> pl.DataFrame:
    offsets = pl.Series(OFFSET, range(frame.height), dtype=pl.Int64)
    return frame.with_columns(offsets, pl.lit(0, dtype=pl.Int32).alias(INDEX))


def opened(schema: hr.Schema | None = SCHEMA, **options: Any) -> PrintSink:
    sink = PrintSink(PrintSettings.of(options, plugin="print"))
    sink.check(schema)
    sink.open()
    return sink


def test_json_lines(capsys: pytest.CaptureFixture[str]) -> None:
    opened().batch_insert(batch([{"name": "Zürich\n", "count": 1}, {"name": None, "count": None}]))
    assert capsys.readouterr() == ('{"name":"Zürich\\n","count":1}\n{"name":null,"count":null}\n', "")


def test_rows_of_unknown_columns_keep_their_own_keys(capsys: pytest.CaptureFixture[str]) -> None:
    frame = with_header(pl.DataFrame({ROW: pack_rows([{"a": 1}, {"b": [1, "x"]}])}))
    opened(None).batch_insert(hr.SinkBatch(hr.Queue("q"), frame))
    assert capsys.readouterr().out == '{"a":1}\n{"b":[1,"x"]}\n'


def test_target_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    opened(target="stderr").batch_insert(batch([{"name": "a", "count": 1}]))
    assert capsys.readouterr() == ("", '{"name":"a","count":1}\n')


def test_limit_counts_over_batches_and_says_once_that_it_is_reached(capsys: pytest.CaptureFixture[str]) -> None:
    sink = opened(limit=3)
    for first in (0, 2, 4):
        sink.batch_insert(batch([{"name": "x", "count": first}, {"name": "x", "count": first + 1}]))
    printed = capsys.readouterr()
    assert [line[-3:] for line in printed.out.splitlines()] == [":0}", ":1}", ":2}"]
    assert printed.err == "print: the limit of 3 rows is reached; further rows are only counted\n"


def test_limit_of_zero_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    opened(limit=0).batch_insert(batch([{"name": "x", "count": 1}]))
    assert capsys.readouterr() == ("", "")


def test_table_is_aligned_and_begins_anew_when_it_grows_wider(capsys: pytest.CaptureFixture[str]) -> None:
    sink = opened(format="table")
    sink.batch_insert(batch([{"name": "ab", "count": 5}, {"name": None, "count": 123456}]))
    sink.batch_insert(batch([{"name": "x", "count": 7}]))
    sink.batch_insert(batch([{"name": "漢字 wide", "count": None}]))
    assert capsys.readouterr().out.splitlines() == [
        "name  count",
        "────  ──────",
        "ab         5",
        "NULL  123456",
        "x          7",
        "",
        "name       count",
        "─────────  ──────",
        "漢字 wide    NULL",
    ]


def test_table_shows_other_columns_with_a_header_of_their_own(capsys: pytest.CaptureFixture[str]) -> None:
    sink = opened(None, format="table")
    for rows in ([{"a": 1}], [{"b": "x"}]):
        sink.batch_insert(hr.SinkBatch(hr.Queue("q"), with_header(pl.DataFrame({ROW: pack_rows(rows)}))))
    assert capsys.readouterr().out.splitlines() == ["a", "─", "1", "", "b", "─", "x"]


def test_table_cells_do_not_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    sink = opened(format="table")
    sink.batch_insert(batch([{"name": "\x1b[31mred\nline\x9b2J\u202e", "count": 1}, {"name": "y" * 200, "count": 2}]))
    rows = capsys.readouterr().out.splitlines()[2:]
    assert rows[0].startswith(r"\x1b[31mred\nline\x9b2J\u202e ")
    assert rows[1] == "y" * 59 + "…      2"


def test_what_the_terminal_cannot_show_is_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    opened().batch_insert(batch([{"name": "ü", "count": 1}]))
    assert raw.getvalue() == b'{"name":"\\xfc","count":1}\n'


def test_a_reader_that_has_gone_stops_the_job_and_no_row_is_blamed(monkeypatch: pytest.MonkeyPatch) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    stream = os.fdopen(write_end, "w", encoding="utf-8")
    monkeypatch.setattr(sys, "stdout", stream)
    with pytest.raises(hr.JobError, match=r"cannot print to stdout: .*Broken pipe") as failure:
        opened().batch_insert(batch([{"name": "a", "count": 1}]))
    assert isinstance(failure.value.__cause__, BrokenPipeError)
    with pytest.raises(BrokenPipeError):
        stream.close()


def test_it_is_found_by_name_and_its_options_are_checked() -> None:
    assert default_registry().find("sink", "print") is PrintSink
    with pytest.raises(hr.OptionError, match=r"unknown option 'limt'.*\n.*did you mean 'limit'"):
        PrintSettings.of({"limt": 3}, plugin="print")
    for wrong in ({"limit": -1}, {"format": "xml"}, {"target": "file"}):
        with pytest.raises(hr.OptionError, match=f"option '{next(iter(wrong))}'"):
            PrintSettings.of(wrong, plugin="print")


def test_print_verb_ends_a_job(capsys: pytest.CaptureFixture[str]) -> None:
    source = MemorySource({"q": [b'{"name": "a", "count": %d}' % number for number in range(5)]})
    stream = hr.stream("test", "printing").from_(source, format="json", schema=SCHEMA)
    report = stream.where("count >= 3").print().run("light")
    assert capsys.readouterr().out == '{"name":"a","count":3}\n{"name":"a","count":4}\n'
    assert report.rows_written == {"to_print": 2}


def test_importing_the_plugin_imports_nothing_heavy() -> None:
    code = "import sys, headrace_print.plugin; print('polars' in sys.modules, 'headrace_print.sink' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False False\n"


def changes() -> hr.SinkBatch:
    made = batch([{"name": "a\u2028b", "count": n} for n in range(4)])
    return hr.SinkBatch(made.queue, made.frame.with_columns(pl.Series(CHANGE, [0, 1, 2, 3], dtype=pl.Int8)))


def test_changes_are_marked(capsys: pytest.CaptureFixture[str]) -> None:
    opened().batch_insert(changes())
    lines = capsys.readouterr().out.split("\n")
    assert [line[:3] for line in lines] == ["+I ", "-U ", "+U ", "-D ", ""]
    assert lines[1].endswith('"count":1}')


def test_changes_in_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    opened(format="table").batch_insert(changes())
    lines = capsys.readouterr().out.split("\n")
    assert [line[:3] for line in lines[2:6]] == ["+I ", "-U ", "+U ", "-D "]
    assert lines[0].split() == ["name", "count"]
