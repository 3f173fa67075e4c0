"""Changelogs in files: a column says what each row does; without it such jobs are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from headrace.flow.messages import CHANGE
from headrace.flow.schema import Schema
from headrace.foundation.errors import OptionError
from headrace.interfaces.sink import SinkBatch
from headrace_file import FileSink, FileSinkSettings
from sink_world import SCHEMA, make_sink, rows

WORDS = ["insert", "update_before", "update_after", "delete"]


def changes() -> SinkBatch:
    made = rows("q", 0, 4)
    return SinkBatch(made.queue, made.frame.with_columns(pl.Series(CHANGE, [0, 1, 2, 3], dtype=pl.Int8)))


@pytest.mark.parametrize("name", ["change", "op"])
def test_column_in_json(tmp_path: Path, name: str) -> None:
    make_sink(tmp_path, changes="column", change_column=name).batch_insert(changes())
    lines = [json.loads(line) for part in tmp_path.glob("*.json") for line in part.read_text().splitlines()]
    assert [line[name] for line in lines] == WORDS
    assert [line["id"] for line in lines] == [0, 1, 2, 3]


def test_column_in_parquet_and_csv(tmp_path: Path) -> None:
    make_sink(tmp_path, changes="column", format="parquet").batch_insert(changes())
    assert pl.read_parquet(next(tmp_path.glob("*.parquet")))["change"].to_list() == WORDS
    make_sink(tmp_path / "csv", changes="column", format="csv").batch_insert(changes())
    assert pl.read_csv(next((tmp_path / "csv").glob("*.csv")))["change"].to_list() == WORDS


def test_rows_that_are_only_added_are_inserts(tmp_path: Path) -> None:
    made = rows("q", 0, 2)
    make_sink(tmp_path, changes="column").batch_insert(SinkBatch(made.queue, made.frame))
    lines = next(tmp_path.glob("*.json")).read_text().splitlines()
    assert [json.loads(line)["change"] for line in lines] == ["insert", "insert"]


def sink_of(**options: Any) -> FileSink:
    return FileSink(FileSinkSettings.of({"path": "unused", **options}, plugin="file"))


def test_what_is_accepted() -> None:
    assert sink_of().accepts == "append"
    assert sink_of(changes="column").accepts == "changelog"
    with pytest.raises(OptionError, match="has a column 'text' itself"):
        sink_of(changes="column", change_column="text").check(SCHEMA)
    with pytest.raises(OptionError, match="not known when the job is built"):
        sink_of(changes="column").check(None)
    sink_of(changes="column").check(Schema.of({"a": "int64"}))
