"""Files of all three formats: damage is told, columns are matched by names, and those that nobody uses are not read."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import headrace as hr
import pyarrow as pa
import pytest
from headrace.flow.messages import ReadPosition
from headrace.interfaces.source import EARLIEST
from headrace_dimension.arrow import ArrowSource
from headrace_dimension.columnar_files import ColumnarFileSettings, ColumnarFileSource
from headrace_dimension.orc import OrcSource
from headrace_dimension.parquet import ParquetSource
from pyarrow import orc
from pyarrow import parquet as pq

NO_WAIT = timedelta(0)
PIPE = hr.stream("test", "files")
Save = Callable[[pa.Table, Path], None]


def save_parquet(table: pa.Table, path: Path) -> None:
    pq.write_table(table, path, row_group_size=10)


def save_orc(table: pa.Table, path: Path) -> None:
    orc.write_table(table, path, stripe_size=1, batch_size=1024)


def save_arrow(table: pa.Table, path: Path) -> None:
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_file(path, table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=10)


FORMATS: tuple[tuple[type[ColumnarFileSource], Save], ...] = (
    (ParquetSource, save_parquet),
    (OrcSource, save_orc),
    (ArrowSource, save_arrow),
)
each_format = pytest.mark.parametrize(("kind", "save"), FORMATS, ids=[kind.plugin for kind, _ in FORMATS])


def source(kind: type[ColumnarFileSource], path: object, **options: Any) -> ColumnarFileSource:
    return kind(ColumnarFileSettings.of({"path": str(path), **options}, plugin=kind.plugin))


@each_format
def test_rows_of_many_groups(kind: type[ColumnarFileSource], save: Save, tmp_path: Path) -> None:
    count = 5_000
    save(pa.table({"a": list(range(count)), "b": [f"text {n}" for n in range(count)]}), tmp_path / f"a{kind.ending}")
    made = source(kind, tmp_path)
    [queue] = made.queues()
    reader = made.open(queue, ReadPosition(1_234))
    assert reader.latest == count
    found = []
    while (batch := reader.poll(777, NO_WAIT)) is not None:
        assert batch.frame is not None
        assert batch.frame["a"].to_list() == batch.offsets.tolist()
        found += batch.frame["b"].to_list()
    assert found == [f"text {n}" for n in range(1_234, count)]
    reader.close()
    verb = getattr(PIPE, f"from_{kind.plugin}")
    assert verb(str(tmp_path)).where("a >= 4998").select("b").collect().rows() == [("text 4998",), ("text 4999",)]


def test_ranges_end_with_groups(tmp_path: Path) -> None:
    save_parquet(pa.table({"a": list(range(25))}), tmp_path / "a.parquet")
    made = source(ParquetSource, tmp_path)
    reader = made.open(next(iter(made.queues())), EARLIEST)
    assert [reader.position_after(rows).offset for rows in (4, 10, 19, 20, 24, 25, 99)] == [4, 10, 10, 20, 20, 25, 25]
    reader.seek(ReadPosition(5))
    assert [reader.position_after(rows).offset for rows in (4, 5, 14, 15)] == [9, 10, 10, 20]
    reader.close()


@each_format
def test_damaged_files(kind: type[ColumnarFileSource], save: Save, tmp_path: Path) -> None:
    path = tmp_path / f"a{kind.ending}"
    table = pa.table({"a": list(range(3_000)), "b": [f"text {n * 7919 % 3000}" for n in range(3_000)]})
    save(table, path)
    whole = path.read_bytes()
    made = source(kind, path)
    made.use_format(None, None, made.schema())
    [queue] = made.queues()
    for content in (whole[: len(whole) // 2], b"no such file" * 10, b""):
        path.write_bytes(content)
        with pytest.raises(hr.BrokenQueueError, match=f"cannot be read as a file of {kind.plugin}"):
            made.open(queue, EARLIEST)
        with pytest.raises(hr.JobError, match=f"cannot be read as a file of {kind.plugin}"):
            source(kind, path).schema()
    # Another column type in the middle of a file is found, or the bytes were not used: never an error of another kind.
    for at in range(8, len(whole), max(1, len(whole) // 40)):
        path.write_bytes(whole[:at] + bytes(each ^ 0xFF for each in whole[at : at + 40]) + whole[at + 40 :])
        try:
            reader = made.open(queue, EARLIEST)
            while reader.poll(1_000, NO_WAIT) is not None:
                pass
            reader.close()
        except hr.BrokenQueueError as error:
            assert kind.plugin in str(error)  # noqa: PT017


@each_format
def test_columns_are_matched_by_names(kind: type[ColumnarFileSource], save: Save, tmp_path: Path) -> None:
    save(pa.table({"b": ["x"], "a": pa.array([1], pa.int32())}), tmp_path / f"1{kind.ending}")
    save(pa.table({"a": pa.array([2], pa.int64()), "c": [True]}), tmp_path / f"2{kind.ending}")
    verb = getattr(PIPE, f"from_{kind.plugin}")
    rows = verb(str(tmp_path), schema={"a": "int64", "b": "string"})
    assert sorted(rows.collect().rows()) == [(1, "x"), (2, None)]
    made = source(kind, tmp_path)
    made.use_format(None, None, hr.Schema.of({"a": "string"}))
    with pytest.raises(
        hr.BrokenQueueError, match="column 'a' is int32 in the file, which cannot be converted to string"
    ):
        made.open(sorted(made.queues())[0], EARLIEST)
    made.use_format(None, None, hr.Schema.of({"d": "string"}))
    with pytest.raises(hr.BrokenQueueError, match="none of the columns 'd'"):
        made.open(sorted(made.queues())[0], EARLIEST)
    with pytest.raises(hr.OptionError, match="have no format"):
        verb(str(tmp_path), format="json", schema={"a": "int64"})


def changing_tables() -> list[pa.Table]:
    """Return tables of one directory whose columns have other types, units, zones, scales and another order in each."""
    moment = datetime(2026, 1, 1, 12, 0, 0, 5000, tzinfo=UTC)
    first = {
        "id": pa.array([1, 2], pa.int32()),
        "at": pa.array([moment, None], pa.timestamp("ns", "UTC")),
        "amount": pa.array([Decimal("1.50"), None], pa.decimal128(9, 2)),
        "kind": pa.array(["a", "b"]).dictionary_encode(),
        "place": pa.array(
            [{"x": 1, "seen": [moment]}, None],
            pa.struct([("x", pa.int64()), ("seen", pa.list_(pa.timestamp("ns", "UTC")))]),
        ),
        "left_out": pa.array([1, 2]),
    }
    second = {
        "kind": pa.array(["c", None]),
        "place": pa.array(
            [{"x": 3, "seen": [moment, None]}, {"x": None, "seen": None}],
            pa.struct([("x", pa.int64()), ("seen", pa.list_(pa.timestamp("ms", "Asia/Tokyo")))]),
        ),
        "at": pa.array([moment, None], pa.timestamp("ms", "Europe/Vienna")),
        "id": pa.array([3, 4], pa.int64()),
        "amount": pa.array([Decimal("2.5"), None], pa.decimal128(7, 1)),
    }
    return [pa.table(first), pa.table(second), pa.table({"id": pa.array([5], pa.int16())})]


def plain(table: pa.Table) -> pa.Table:
    """Return a table that ORC can hold: without dictionaries."""
    types = [each.type.value_type if pa.types.is_dictionary(each.type) else each.type for each in table.schema]
    return table.cast(pa.schema(list(zip(table.schema.names, types, strict=True))))


CHANGING = {"id": "int64", "at": "timestamp", "amount": "decimal(12, 2)", "kind": "string"}


def changing_rows(
    kind: type[ColumnarFileSource], save: Save, place: Path, backend: str, **options: Any
) -> list[dict[str, Any]]:
    (place / "in").mkdir()
    for number, table in enumerate(changing_tables()):
        save(plain(table) if kind is OrcSource else table, place / "in" / f"{number}{kind.ending}")
    opened = getattr(hr.stream("tests", "changing"), f"from_{kind.plugin}")
    seen = "struct<x: int64, seen: array<timestamp>>"
    stream = opened(str(place / "in"), schema={**CHANGING, "place": seen})
    stream.to_file(place / "out", format="json").run(backend, show_progress=False, **options)
    found = [json.loads(line) for part in (place / "out").rglob("*.json") for line in part.read_text().splitlines()]
    return sorted(found, key=lambda row: int(row["id"]))


MOMENT = "2026-01-01T12:00:00.005000Z"
ROWS_OF_CHANGING = [
    {"id": 1, "at": MOMENT, "amount": "1.50", "kind": "a", "place": {"x": 1, "seen": [MOMENT]}},
    {"id": 2, "at": None, "amount": None, "kind": "b", "place": None},
    {"id": 3, "at": MOMENT, "amount": "2.50", "kind": "c", "place": {"x": 3, "seen": [MOMENT, None]}},
    {"id": 4, "at": None, "amount": None, "kind": None, "place": {"x": None, "seen": None}},
    {"id": 5, "at": None, "amount": None, "kind": None, "place": None},
]


@each_format
@pytest.mark.parametrize("workers", [1, 2])
def test_columns_that_change_between_files(
    kind: type[ColumnarFileSource], save: Save, workers: int, tmp_path: Path
) -> None:
    assert changing_rows(kind, save, tmp_path, "light", workers=workers) == ROWS_OF_CHANGING


@pytest.mark.slow
@pytest.mark.spark
@each_format
def test_columns_that_change_between_files_on_spark(kind: type[ColumnarFileSource], save: Save, tmp_path: Path) -> None:
    assert changing_rows(kind, save, tmp_path, "spark") == ROWS_OF_CHANGING


def test_integers_that_are_too_large(tmp_path: Path) -> None:
    save_parquet(pa.table({"a": [1, 2**40]}), tmp_path / "a.parquet")
    made = source(ParquetSource, tmp_path)
    made.use_format(None, None, hr.Schema.of({"a": "int32"}))
    reader = made.open(next(iter(made.queues())), EARLIEST)
    with pytest.raises(hr.BrokenQueueError, match="column 'a' has values that are not in the range of int32"):
        reader.poll(10, NO_WAIT)
    reader.close()


@each_format
def test_columns_that_nobody_uses_are_not_read(
    kind: type[ColumnarFileSource], save: Save, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(pa.table({"a": [1, 2], "b": ["x", "y"], "c": [0.5, 1.5]}), tmp_path / f"a{kind.ending}")
    asked: list[list[str]] = []
    opened = kind.open_file

    def open_file(path: str) -> Any:
        file = opened(path)
        read = file.read

        def noted(group: int, columns: list[str]) -> Any:
            asked.append(list(columns))
            return read(group, columns)

        monkeypatch.setattr(file, "read", noted)
        return file

    monkeypatch.setattr(kind, "open_file", staticmethod(open_file))
    verb = getattr(PIPE, f"from_{kind.plugin}")
    assert verb(str(tmp_path)).where("c > 1").select("a").collect().rows() == [(2,)]
    assert asked == [["a", "c"]]
    asked.clear()
    assert verb(str(tmp_path)).select(one="1").collect().rows() == [(1,), (1,)]
    assert asked == [["a"]]
