"""The rows of parquet files: in order, from any offset, and what is told of files that do not fit."""

from __future__ import annotations

import pickle
from datetime import timedelta
from pathlib import Path
from typing import Any

import headrace as hr
import polars as pl
import pytest
from headrace.flow.messages import ReadPosition
from headrace.foundation.errors import DataError, JobError, OptionError
from headrace.interfaces.source import EARLIEST, LATEST
from headrace.testing import MemorySink
from headrace_dimension.parquet import ParquetSettings, ParquetSource
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import examples

PIPE = hr.stream("test", "parquet")
NO_WAIT = timedelta(0)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two files, of 25 rows in groups of 10 and of 5 rows."""
    place = tmp_path_factory.mktemp("parquet")
    rows = pl.DataFrame({"k": [f"user-{n}" for n in range(30)], "v": range(30)})
    rows[:25].write_parquet(place / "a.parquet", row_group_size=10)
    rows[25:].write_parquet(place / "b.parquet")
    return place


def source(path: object, **options: Any) -> ParquetSource:
    return ParquetSource(ParquetSettings.of({"path": str(path), **options}, plugin="parquet"))


@settings(max_examples=examples(20), deadline=None)
@given(start=st.integers(0, 25), sizes=st.lists(st.integers(1, 12), max_size=12))
def test_reads_from_any_offset_in_any_steps(place: Path, start: int, sizes: list[int]) -> None:
    made = source(place)
    first = next(queue for queue in made.queues() if queue.name.endswith("a.parquet"))
    reader = made.open(first, ReadPosition(start))
    found: list[int] = []
    for size in [*sizes, *[7] * 20]:
        batch = reader.poll(size, NO_WAIT)
        if batch is None:
            break
        assert batch.frame is not None
        assert batch.frame.height <= size
        assert batch.frame["v"].to_list() == batch.offsets.tolist()
        found += batch.offsets.tolist()
        assert reader.position == ReadPosition(found[-1] + 1)
    reader.close()
    assert found == list(range(start, 25))


def test_seeks_and_tells_what_it_holds(place: Path) -> None:
    made = pickle.loads(pickle.dumps(source(place)))  # noqa: S301
    queue = sorted(made.queues())[0]
    reader = made.open(queue, LATEST)
    assert (reader.earliest, reader.latest, reader.position) == (0, 25, ReadPosition(25))
    assert reader.poll(5, NO_WAIT) is None
    reader.seek(ReadPosition(12))
    assert reader.poll(2, NO_WAIT).offsets.tolist() == [12, 13]
    reader.close()
    with pytest.raises(DataError, match="which has 25 rows"):
        made.open(queue, ReadPosition(26))


def test_a_table_from_parquet(place: Path) -> None:
    table = PIPE.from_parquet(str(place / "*.parquet"), columns=["k", "v"]).where("v >= 20")
    sink = MemorySink()
    rows = PIPE.from_parquet(str(place / "b.parquet")).rename(v="n")
    rows.lookup_join(table, on="k").to(sink).run("light")
    assert sorted((row["k"], row["n"], row["v"]) for row in sink.rows) == [(f"user-{n}", n, n) for n in range(25, 30)]


def test_types_that_streams_do_not_have_are_those_that_they_have(tmp_path: Path) -> None:
    frame = pl.DataFrame({"c": ["a", "b"], "t": [0, 1_000_000]}).with_columns(
        pl.col("c").cast(pl.Categorical), pl.col("t").cast(pl.Datetime("ns", "UTC"))
    )
    frame.write_parquet(tmp_path / "a.parquet")
    made = source(tmp_path)
    assert dict(made.schema()) == {"c": pl.String(), "t": pl.Datetime("us", "UTC")}
    batch = made.open(next(iter(made.queues())), EARLIEST).poll(10, NO_WAIT)
    assert batch is not None
    assert batch.frame is not None
    assert batch.frame["c"].to_list() == ["a", "b"]


def test_mistakes_are_named(place: Path, tmp_path: Path) -> None:
    with pytest.raises(JobError, match="there is no file"):
        source(tmp_path / "none").schema()
    with pytest.raises(OptionError, match="no column 'w'"):
        source(place, columns=["w"]).schema()
    pl.DataFrame({"other": [1]}).write_parquet(tmp_path / "z.parquet")
    (tmp_path / "a.parquet").write_bytes((place / "b.parquet").read_bytes())
    made = source(tmp_path)
    last = sorted(made.queues())[-1]
    with pytest.raises(DataError, match="the file has none of the columns 'k', 'v'"):
        made.open(last, EARLIEST)
