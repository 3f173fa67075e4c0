"""A table that was loaded in parts is the table that is made in memory: types, rows, order, and what a lookup finds."""

from __future__ import annotations

import errno
import tempfile
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import IO, Any

import headrace as hr
import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from headrace.foundation.clock import ManualClock
from headrace.foundation.errors import JobError
from headrace_dimension import loading, lookup_join, mapped_arrays, parted_rows
from headrace_dimension.lookup_join import LookupJoin
from headrace_dimension.mapped_arrays import MappedArrays
from headrace_dimension.parted_rows import PartedRows, can_part
from headrace_dimension.table import Table
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import examples

_INTEGERS = st.sampled_from([pl.Int8(), pl.UInt8(), pl.Int64(), pl.UInt64(), pl.Int32()])
_VALUES: dict[pl.DataType, Any] = {
    pl.String(): st.sampled_from(["", "a", "b", "ä€", "x" * 40]),
    pl.Binary(): st.binary(max_size=3),
    pl.Boolean(): st.booleans(),
    pl.Float64(): st.sampled_from([0.0, -0.0, 1.5, float("nan"), float("inf")]),
    pl.Date(): st.dates(date(1960, 1, 1), date(2100, 1, 1)),
    pl.Datetime("us", "UTC"): st.datetimes(datetime(1960, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC)),
    pl.Duration("us"): st.timedeltas(timedelta(-5), timedelta(5)),
    pl.Decimal(10, 2): st.integers(-999, 999).map(lambda n: Decimal(n) / 100),
}


def _values(kind: pl.DataType) -> Any:
    if not kind.is_integer():
        return _VALUES[kind]
    low, high = pl.select(kind.min().alias("a"), kind.max().alias("b")).row(0)  # type: ignore[attr-defined]
    return st.one_of(st.integers(max(low, -2), min(high, 5)), st.integers(low, high), st.sampled_from([low, high]))


@st.composite
def _tables(draw: Any) -> tuple[list[list[pl.DataFrame]], tuple[str, ...]]:
    """Batches of queues, and the columns that are keys."""
    kinds = draw(st.lists(st.one_of(_INTEGERS, st.sampled_from(list(_VALUES))), min_size=1, max_size=5))
    columns = {f"c{number}": kind for number, kind in enumerate(kinds)}
    keys = tuple(draw(st.lists(st.sampled_from(list(columns)), min_size=1, max_size=2, unique=True)))
    values = {name: st.one_of(st.none(), _values(kind)) for name, kind in columns.items()}

    def frame() -> pl.DataFrame:
        rows = draw(st.lists(st.fixed_dictionaries(values), max_size=12))
        return pl.DataFrame(rows, schema=columns)

    return [[frame() for _ in range(draw(st.integers(0, 3)))] for _ in range(draw(st.integers(1, 3)))], keys


def _rows(frame: pl.DataFrame) -> list[Any]:
    return [tuple(repr(value) for value in row) for row in frame.iter_rows()]


@settings(max_examples=examples(60), deadline=None)
@given(_tables(), st.booleans())
def test_in_parts_and_in_memory(given: tuple[list[list[pl.DataFrame]], tuple[str, ...]], few_values: bool) -> None:
    queues, keys = given
    frames = [frame for queue in queues for frame in queue]
    if not frames:
        return
    whole = pl.concat(frames)
    parted = PartedRows(dict(whole.schema), keys, tempfile.TemporaryFile)
    # Queues are loaded side by side: their batches come in turn.
    for turn in range(3):
        for number, queue in reversed(list(enumerate(queues))):
            if turn < len(queue):
                parted.add(number, queue[turn])
    with pytest.MonkeyPatch.context() as patch:
        if few_values:
            patch.setattr(parted_rows, "dictionary_pays", lambda different, rows: True)
        made = Table(*parted.table_parts())
        parted.close()
    wanted = Table.of(whole, ("equal", keys))
    assert made.height == wanted.height
    probes = whole.select(keys)
    at, places = made.find(probes)
    wanted_at, wanted_places = wanted.find(probes)
    assert at.tolist() == wanted_at.tolist()
    rows, wanted_rows = made.take(pl.Series(places)), wanted.take(pl.Series(wanted_places))
    assert rows.schema == wanted_rows.schema
    assert _rows(rows) == _rows(wanted_rows)
    assert _rows(made.take(pl.Series([None], dtype=pl.Int64))) == _rows(wanted.take(pl.Series([None], dtype=pl.Int64)))
    if not few_values and whole.drop_nulls(keys).height:  # values of rows without a key are in neither
        parts, wanted_parts = made.parts()[0], wanted.parts()[0]
        for name in parts:
            if name.startswith("key ") or not pa.types.is_dictionary(parts[name].type):
                assert parts[name].to_pylist().__repr__() == wanted_parts[name].to_pylist().__repr__(), name


def test_texts_that_get_too_long_for_32_bits_have_64(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mapped_arrays, "TEXTS_MAX", 10)
    made = MappedArrays(tempfile.TemporaryFile)
    for piece in (["abc", None], ["defgh"], [], ["i" * 20, "", None], ["z"]):
        made.append("texts", pa.array(piece, type=pa.string()))
    array = made.mapped()["texts"]
    assert array.type == pa.large_string()
    array.validate(full=True)
    assert array.to_pylist() == ["abc", None, "defgh", "i" * 20, "", None, "z"]


def test_columns_that_cannot_be_parted() -> None:
    assert can_part({"a": pl.Int64(), "b": pl.String(), "c": pl.Decimal(10, 2)})
    assert not can_part({"a": pl.Int64(), "b": pl.List(pl.Int64())})
    assert not can_part({"a": pl.Struct({"b": pl.Int64()})})


def _users(directory: Path) -> Any:
    for number in range(3):
        names = [f"user {n}" for n in range(number * 4_000, number * 4_000 + 4_000)]
        frame = pl.DataFrame({"name": names, "n": np.arange(4_000), "group": ["a", "b"] * 2_000})
        frame.write_parquet(directory / f"users-{number}.parquet")
    return hr.stream("test", "users").from_parquet(str(directory / "*.parquet"))


def test_a_large_table_of_several_files_is_loaded_in_parts_and_refreshed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "PARTED_BYTES", 50_000)
    made: list[PartedRows] = []

    def noted(*given: Any) -> PartedRows:
        made.append(PartedRows(*given))
        return made[-1]

    monkeypatch.setattr(loading, "PartedRows", noted)
    spec = LookupJoin(_users(tmp_path), "name", threads=3)
    table = spec.table()
    assert (table.height, len(made)) == (12_000, 1)
    _, places = table.find(pl.DataFrame({"name": ["user 0", "user 11999", "nobody", "user 5000"]}))
    assert table.take(pl.Series(places))["n"].to_list() == [0, 3_999, 1_000]
    spec.reload()
    assert len(made) == 2
    assert spec.table() is not table
    assert len(table.find(pl.DataFrame({"name": ["user 0"]}))[0]) == 1  # who has the old one can use it


def test_a_refresh_for_which_nobody_waits_uses_one_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[int] = []
    load = loading.load_table

    def noted(*given: Any, threads: int, **options: Any) -> Any:
        used.append(threads)
        return load(*given, threads=threads, **options)

    monkeypatch.setattr(lookup_join, "load_table", noted)
    spec = LookupJoin(_users(tmp_path), "name", threads=3, refresh="1 h")
    clock = ManualClock()
    spec._table.clock = clock
    spec.table()
    clock.advance(3_600)
    spec.table()
    spec._table.wait()
    assert used == [3, 1]
    clock.advance(7_200)
    spec.table()  # no row came for a whole interval: this one waits
    assert used == [3, 1, 3]


def test_a_small_table_is_loaded_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "PartedRows", None)
    assert LookupJoin(_users(tmp_path), "name").table().height == 12_000


_temporary_file = tempfile.TemporaryFile


class _FullDisk:
    """A file on a disk that becomes full."""

    def __init__(self, room: int) -> None:
        self._file = _temporary_file()
        self._room = room

    def write(self, content: Any) -> int:
        self._room -= memoryview(content).nbytes
        if self._room < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return self._file.write(content)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> Any:
        return self._file

    def __exit__(self, *_: object) -> None:
        self._file.close()


@pytest.mark.parametrize("room", [0, 100_000])
def test_a_full_disk_is_told_and_the_table_in_use_stays(
    room: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "PARTED_BYTES", 50_000)
    spec = LookupJoin(_users(tmp_path), "name", threads=1)
    table = spec.table()

    def full(*_: object) -> IO[bytes]:
        return _FullDisk(room)  # type: ignore[return-value]

    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    with pytest.raises(JobError, match="No space left on device") as caught:
        spec.reload()
    assert "TMPDIR" in str(caught.value.hint)
    assert spec.table() is table


def test_without_a_place_for_files_a_large_table_is_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(loading, "PARTED_BYTES", 50_000)

    def refused() -> IO[bytes]:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(tempfile, "TemporaryFile", refused)
    assert LookupJoin(_users(tmp_path), "name").table().height == 12_000
    assert "is loaded in memory" in caplog.text
