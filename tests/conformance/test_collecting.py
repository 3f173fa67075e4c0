"""Rows of a stream as frames."""

from __future__ import annotations

import logging
from pathlib import Path

import headrace as hr
import polars as pl
import pytest


def numbers(place: Path, *bad: str) -> hr.Stream:
    place.write_text("".join(f'{{"n": {n}, "k": "{"ab"[n % 2]}"}}\n' for n in range(100)) + "".join(bad))
    return hr.stream("test", "frames").from_file(str(place), format="json", schema={"n": "int64", "k": "string"})


def test_collect_gives_the_rows(tmp_path: Path) -> None:
    stream = numbers(tmp_path / "in.ndjson").where("n < 3")
    assert stream.collect().rows() == [(0, "a"), (1, "b"), (2, "a")]
    assert stream.columns == ["n", "k"]


def test_rows_that_change_are_given_as_they_are_at_the_end(tmp_path: Path) -> None:
    counted = numbers(tmp_path / "in.ndjson").key_by("k").agg(c="count(*)")
    assert sorted(counted.collect(max_batch_records=10).rows()) == [("a", 50), ("b", 50)]
    changes = counted.collect(changes=True, max_batch_records=10)
    assert set(changes["op"]) > {"+I"}
    assert sorted(counted.head(5).rows()) == [("a", 50), ("b", 50)]


def test_head_stops_reading(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stream = numbers(tmp_path / "in.ndjson")
    assert stream.head(3)["n"].to_list() == [0, 1, 2]
    assert stream.head(500).height == 100
    stream.show(2)
    assert "shape: (2, 2)" in capsys.readouterr().out


def test_dead_letters_are_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    with caplog.at_level(logging.WARNING):
        assert numbers(tmp_path / "in.ndjson", "nonsense\n", "{}x\n").collect().height == 100
    [said] = [each.getMessage() for each in caplog.records if "dead letters" in each.getMessage()]
    assert "test.frames: 2 records are not in the result" in said


def test_streams_are_shown_by_their_columns(tmp_path: Path) -> None:
    stream = numbers(tmp_path / "in.ndjson")
    assert repr(stream) == "<stream of test.frames: n: int64, k: string>"
    assert "<td>k</td><td>string</td>" in stream._repr_html_()
    assert "changing" in repr(stream.key_by("k").agg(c="count(*)"))
    assert isinstance(stream.collect(), pl.DataFrame)
