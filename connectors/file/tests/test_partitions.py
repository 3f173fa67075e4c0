"""Rows in directories of partitions."""

from __future__ import annotations

import os
import shutil
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import headrace as hr
import polars as pl
import pytest
from headrace.flow.messages import Position
from headrace.flow.schema import Schema
from headrace.foundation.clock import SystemClock
from headrace.foundation.errors import DataError, OptionError
from headrace_file import partitions, parts, queue_state
from headrace_file.partitions import check_partition_columns, directory_name, divided
from headrace_file.parts import list_positions


def test_names_of_directories() -> None:
    assert directory_name("day", "2024-01-31") == "day=2024-01-31"
    assert directory_name("k", "a/b=c%") == "k=a%2Fb%3Dc%25"
    assert directory_name("k", None) == directory_name("k", "") == "k=__DEFAULT_PARTITION__"
    assert directory_name("k", "..") == "k=.."
    assert directory_name("größe", "日本 +&{x}") == "größe=日本 +&%7Bx%7D"
    # Readers leave out names with these beginnings and this end.
    assert directory_name("_k", "_x") == "%5Fk=_x"
    assert directory_name(".k", ".tmp") == "%2Ek=%2Etmp"
    assert directory_name("k", "a.tmp.b") == "k=a.tmp.b"
    for value in ("x" * 254, "é" * 127):
        with pytest.raises(DataError, match="too long"):
            directory_name("k", value)


def test_rows_are_divided_in_their_order() -> None:
    frame = pl.DataFrame({"n": [1, 2, 3], "day": [date(2024, 2, 1), None, date(2024, 2, 1)], "ok": [True, False, True]})
    made = {folder: part["n"].to_list() for folder, part in divided(frame, ["day", "ok"])}
    assert made == {"day=2024-02-01/ok=true": [1, 3], "day=__DEFAULT_PARTITION__/ok=false": [2]}
    numbers = pl.DataFrame({"d": [Decimal("1.50")], "x": [1]}, schema_overrides={"d": pl.Decimal(5, 2)})
    assert [folder for folder, _ in divided(numbers, ["d"])] == ["d=1.50"]


def test_values_with_one_directory_are_one_part() -> None:
    frame = pl.DataFrame({"k": [None, "", "a", "__DEFAULT_PARTITION__", None], "n": [1, 2, 3, 4, 5]})
    made = [(folder, part["n"].to_list(), part["k"].to_list()) for folder, part in divided(frame, ["k"])]
    assert made == [
        ("k=__DEFAULT_PARTITION__", [1, 2, 4, 5], [None, "", "__DEFAULT_PARTITION__", None]),
        ("k=a", [3], ["a"]),
    ]


def test_all_directories_above_a_part_are_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    monkeypatch.setattr(queue_state, "sync_directory", lambda path: synced.append(os.path.relpath(path, tmp_path)))
    for name in ("tmp", "state"):
        (tmp_path / "_headrace" / name).mkdir(parents=True)
    key = "0123456789abcdef"
    state = queue_state.QueueState(
        str(tmp_path),
        str(tmp_path / "_headrace"),
        key,
        clock=SystemClock(),
        lock_timeout=timedelta(seconds=1),
        fsync=True,
    )
    assert state.commit_several({"a=1/b=2/c=3/part": b"x", "a=2/b=1/c=1/part": b"y"}, None, Position(1, 0))
    assert (tmp_path / "a=1/b=2/c=3/part").read_bytes() == b"x"
    assert {"a=1/b=2/c=3", "a=1/b=2", "a=1", "a=2/b=1/c=1", "a=2/b=1", "a=2", "."} <= set(synced)


def test_a_partition_may_go_while_positions_are_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "part-q-0123456789abcdef-0000000000000000007-0000000000.json"
    for folder in ("k=1", "k=2"):
        (tmp_path / folder).mkdir()
    (tmp_path / "k=2" / name).touch()
    listed = partitions.folders_of(str(tmp_path))
    assert next(listed) == str(tmp_path)
    assert os.path.basename(next(listed)) in ("k=1", "k=2")
    for folder in ("k=1", "k=2"):
        shutil.rmtree(tmp_path / folder)
    assert len(list(listed)) == 1
    monkeypatch.setattr(parts, "folders_of", lambda folder: iter([folder, f"{folder}/k=2"]))
    assert list_positions(str(tmp_path)) == {}
    with pytest.raises(FileNotFoundError):
        list_positions(str(tmp_path / "none"))


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


def test_one_partition_is_replaced_and_its_rows_do_not_count_for_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.ndjson").write_text('{"k": 1, "n": 1}\n{"k": 2, "n": 2}\n')

    def stream() -> hr.Stream:
        return hr.stream("test", "one").from_file("in.ndjson", format="json", schema={"k": "int64", "n": "int64"})

    def lines() -> list[str]:
        return sorted(part.parent.name + part.read_text() for part in tmp_path.glob("out/k=*/*.json"))

    stream().drop("k").to_file("out", partition={"k": "1"}).run("light", show_progress=False)
    assert lines() == ['k=1{"n":1}\n{"n":2}\n']
    stream().to_file("out", partition_by=["k"]).run("light", show_progress=False)
    assert lines() == ['k=1{"n":1}\n', 'k=1{"n":1}\n{"n":2}\n', 'k=2{"n":2}\n']
    job = stream().drop("k").to_file("out", partition={"k": "1"})
    job.run("light", show_progress=False, replace_output=True)
    assert lines() == ['k=1{"n":1}\n{"n":2}\n', 'k=2{"n":2}\n']
    with pytest.raises(OptionError, match="too long"):
        stream().to_file("out", partition={"k": "x" * 300})
