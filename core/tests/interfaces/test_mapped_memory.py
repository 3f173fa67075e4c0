"""Arrays and frames in mapped files say what they said in memory, and their room is given back."""

from __future__ import annotations

import errno
import gc
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from headrace.interfaces import mapped_memory
from headrace.interfaces.mapped_memory import MappedMemory
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import examples


@pytest.fixture
def memory(tmp_path: Path) -> MappedMemory:
    return MappedMemory(tmp_path, 1, file_bytes=1 << 20)


def test_arrays(memory: MappedMemory) -> None:
    values = np.arange(5_000, dtype=np.int64)
    made = memory.array(values)
    assert made is not values
    assert (made == values).all()
    made[7] = -1
    larger = memory.grown(made, 9_000, 3)
    assert larger[:8].tolist() == [0, 1, 2, 3, 4, 5, 6, -1]
    assert (larger[8:5_000] == values[8:]).all()
    assert (larger[5_000:] == 3).all()
    assert memory.size_bytes > 100_000


def test_frames(memory: MappedMemory) -> None:
    frame = pl.DataFrame(
        {"k": [1, None, 3], "t": ["a", None, "a longer text than fits into a view"], "f": [1.5, None, float("nan")]}
    ).with_columns(
        pl.col("t").cast(pl.Binary).alias("b"),
        pl.col("k").cast(pl.Decimal(20, 2)).alias("d"),
        pl.concat_list("k", "k").alias("l"),
        pl.struct("k", "t").alias("s"),
        pl.lit("x").cast(pl.Enum(["x", "y"])).alias("e"),
        pl.col("k").cast(pl.Datetime("us", "Europe/Berlin")).alias("ts"),
        pl.col("k").cast(pl.Duration("ms")).alias("du"),
        (pl.col("k") > 1).alias("bo"),
    )
    made = memory.frame(frame)
    assert made is not frame
    assert made.equals(frame)
    assert made.schema == frame.schema
    whole = frame.select(pl.col("k").cast(pl.Int128))
    assert memory.frame(whole) is whole  # Arrow's files do not have the type


def test_what_is_small_stays_in_memory(tmp_path: Path) -> None:
    memory = MappedMemory(tmp_path, 1 << 30)
    values, frame = np.zeros(10), pl.DataFrame({"a": [1]})
    assert memory.array(values) is values
    assert memory.frame(frame) is frame
    assert memory.size_bytes == 0


def test_room_is_used_again(memory: MappedMemory) -> None:
    for at in range(50):
        kept = memory.array(np.full(50_000, at))
        assert (kept == at).all()
        del kept
    assert memory.size_bytes <= 2 * 400_000 + 8192


def test_views_keep_their_room(memory: MappedMemory) -> None:
    view = memory.array(np.arange(10_000))[5_000:5_010]
    rows = memory.frame(
        pl.DataFrame({"t": [f"a text that is longer than a view, number {at}" for at in range(2_000)]})
    )[100:102]
    gc.collect()
    others = [memory.array(np.zeros(10_000)) for _ in range(20)]
    assert view.tolist() == list(range(5_000, 5_010))
    assert rows["t"].to_list() == [f"a text that is longer than a view, number {at}" for at in (100, 101)]
    assert all((other == 0).all() for other in others)


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 200_000), st.integers(0, 30)), max_size=60))
@settings(max_examples=examples(30), deadline=None)
def test_ranges_never_overlap(steps: list[tuple[bool, int, int]]) -> None:
    memory = MappedMemory("/dev/shm" if Path("/dev/shm").is_dir() else "/tmp", 1, file_bytes=1 << 18)
    there: list[tuple[int, Any]] = []
    for number, (adds, count, which) in enumerate(steps):
        if adds or not there:
            there.append((number % 250, memory.array(np.full(count, number % 250, dtype=np.uint8))))
        else:
            del there[which % len(there)]
        memory.trim()
    for value, values in there:
        assert (values == value).all()


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="resident memory is known on Linux only")
def test_resident_memory_is_let_go(tmp_path: Path) -> None:
    memory = MappedMemory(tmp_path, 1 << 20)
    values = [memory.array(np.arange(1 << 20)) for _ in range(4)]
    before = mapped_memory._resident_of_files()
    memory.trim()
    assert before - mapped_memory._resident_of_files() > 28 << 20
    assert all(int(each[123_456]) == 123_456 for each in values)


def test_a_full_disk_is_told_where_room_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failures = [OSError(errno.ENOSPC, "no room"), OSError(errno.ENOSPC, "no room")]
    real: Callable[..., None] = os.posix_fallocate

    def taken(*arguments: Any) -> None:
        if failures:
            raise failures.pop()
        real(*arguments)

    waited: list[int | None] = []

    def stored(action: Callable[[], Any]) -> Any:
        while True:
            try:
                return action()
            except OSError as error:
                waited.append(error.errno)

    monkeypatch.setattr(os, "posix_fallocate", taken)
    memory = MappedMemory(tmp_path, 1, stored=stored)
    assert memory.array(np.arange(100))[99] == 99
    assert waited == [errno.ENOSPC, errno.ENOSPC]


def test_files_have_no_name(memory: MappedMemory, tmp_path: Path) -> None:
    values = memory.array(np.arange(10_000))
    assert not list(tmp_path.iterdir())
    memory.close()
    memory.close()
    assert values[9_999] == 9_999
