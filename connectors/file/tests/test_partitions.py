"""Rows in directories of partitions."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import headrace as hr
import polars as pl
import pytest
from headrace.flow.schema import Schema
from headrace.foundation.errors import DataError, OptionError
from headrace_file.partitions import check_partition_columns, directory_name, divided


def test_names_of_directories() -> None:
    assert directory_name("day", "2024-01-31") == "day=2024-01-31"
    assert directory_name("k", "a/b=c%") == "k=a%2Fb%3Dc%25"
    assert directory_name("k", None) == directory_name("k", "") == "k=__DEFAULT_PARTITION__"
    assert directory_name("k", "..") == "k=.."
    with pytest.raises(DataError, match="too long"):
        directory_name("k", "x" * 254)


def test_rows_are_divided_in_their_order() -> None:
    frame = pl.DataFrame({"n": [1, 2, 3], "day": [date(2024, 2, 1), None, date(2024, 2, 1)], "ok": [True, False, True]})
    made = {folder: part["n"].to_list() for folder, part in divided(frame, ["day", "ok"])}
    assert made == {"day=2024-02-01/ok=true": [1, 3], "day=__DEFAULT_PARTITION__/ok=false": [2]}
    numbers = pl.DataFrame({"d": [Decimal("1.50")], "x": [1]}, schema_overrides={"d": pl.Decimal(5, 2)})
    assert [folder for folder, _ in divided(numbers, ["d"])] == ["d=1.50"]


@pytest.mark.parametrize(
    ("columns", "message"),
    [(["b"], "unknown column"), (["f"], "directories are named by"), (["a", "f"], "no other one is left|named by")],
)
def test_columns_that_cannot_be_used(columns: list[str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        check_partition_columns(columns, Schema({"a": pl.Int64(), "f": pl.Float64()}))


def test_a_value_that_is_too_long_goes_to_the_dead_letters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows: list[dict[str, Any]] = [{"k": "a", "n": 1}, {"k": "x" * 300, "n": 2}, {"k": "a", "n": 3}]
    (tmp_path / "in.ndjson").write_text("".join(f'{{"k": "{row["k"]}", "n": {row["n"]}}}\n' for row in rows))
    source = hr.stream("test", "long").from_file("in.ndjson", format="json", schema={"k": "string", "n": "int64"})
    source.to_file("out", partition_by=["k"]).run("light", show_progress=False)
    parts = list(tmp_path.glob("out/k=a/*.json"))
    assert sorted(line for part in parts for line in part.read_text().splitlines()) == ['{"n":1}', '{"n":3}']
    assert not list(tmp_path.glob("out/k=x*"))
    assert list(tmp_path.glob("dead-letters/**/*.json"))


def test_another_run_adds_nothing_and_replacing_empties_all_partitions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.ndjson").write_text('{"k": 1, "n": 1}\n{"k": 2, "n": 2}\n')

    def job() -> hr.Job:
        stream = hr.stream("test", "again").from_file("in.ndjson", format="json", schema={"k": "int64", "n": "int64"})
        made: hr.Job = stream.to_file("out", partition_by=["k"])
        return made

    def lines() -> list[str]:
        return sorted(part.parent.name + part.read_text() for part in tmp_path.glob("out/k=*/*.json"))

    job().run("light", show_progress=False)
    assert lines() == ['k=1{"n":1}\n', 'k=2{"n":2}\n']
    job().run("light", show_progress=False)
    assert lines() == ['k=1{"n":1}\n', 'k=2{"n":2}\n']
    (tmp_path / "in.ndjson").write_text('{"k": 3, "n": 3}\n')
    job().run("light", show_progress=False, replace_output=True)
    assert lines() == ['k=3{"n":3}\n']
