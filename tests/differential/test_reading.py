"""What sinks have written is read as it stands there: by readers of the tests, not by headrace's."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.differential import script_family
from tests.differential.choices import Choices
from tests.differential.comparing import row_of
from tests.differential.kinds import BIGINT, BOOLEAN, STRING
from tests.differential.reading import csv_records, rows_written

KINDS = {"a": BIGINT, "b": BOOLEAN, "c": STRING}


@pytest.mark.parametrize(
    ("text", "records"),
    [
        ("a,b\n1,2\n", [["a", "b"], ["1", "2"]]), ("a\n\n", [["a"], [None]]), ('"",\n', [["", None]]),
        ('"a\n""b"",",c\n', [['a\n"b",', "c"]]), (",,\n", [[None, None, None]]),
    ],
)  # fmt: skip
def test_csv(text: str, records: list[list[str | None]]) -> None:
    assert list(csv_records(text)) == records


@pytest.mark.parametrize("text", ["a,b", 'a\n"x', "a,"])
def test_csv_that_is_cut_off(text: str) -> None:
    with pytest.raises((ValueError, IndexError)):
        list(csv_records(text))


def test_rows_that_are_there_after_all_changes(tmp_path: Path) -> None:
    (tmp_path / "0.csv").write_bytes(
        b'change,a,b,c\ninsert,1,true,\ninsert,2,,x\nupdate_before,2,,x\nupdate_after,3,,""\n'
    )
    expected = Counter([row_of((1, True, None)), row_of((3, None, ""))])
    assert rows_written("csv", tmp_path, KINDS) == expected
    lines = ['+I {"a":1,"b":true,"c":null}', '+I {"a":2,"b":null,"c":"x"}', '-D {"a":2,"b":null,"c":"x"}']
    assert rows_written("print", tmp_path, KINDS, "\n".join([*lines, '+I {"a":3,"c":""}\n'])) == expected
    (tmp_path / "json").mkdir()
    (tmp_path / "json" / "0.json").write_text('{"a":1,"b":true,"c":null}\n{"a":3,"b":null,"c":""}\n')
    assert rows_written("json", tmp_path / "json", KINDS) == expected
    (tmp_path / "parquet").mkdir()
    frame = pl.DataFrame({"a": [1, 3], "b": [True, None], "c": [None, ""]})
    frame.write_parquet(tmp_path / "parquet" / "0.parquet")
    assert rows_written("parquet", tmp_path / "parquet", KINDS) == expected


def test_what_is_taken_back_twice_is_not_forgotten(tmp_path: Path) -> None:
    (tmp_path / "0.csv").write_bytes(b"change,a,b,c\ndelete,1,true,x\n")
    assert rows_written("csv", tmp_path, KINDS) == Counter({row_of((1, True, "x")): -1})


def test_scripts_have_sinks_of_each_kind_and_breaks() -> None:
    cases: list[Any] = [script_family.generate(Choices.of_seed(seed)) for seed in range(80)]
    assert {sink for case in cases for sink in case.sinks} == {"json", "csv", "parquet", "print"}
    assert {bool(case.breaks) for case in cases} == {True, False}
    assert not [case for case in cases if case.breaks and "print" in case.sinks]
