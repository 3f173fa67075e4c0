"""Frames between stages in files."""

from __future__ import annotations

import resource
from pathlib import Path

import polars as pl
import pytest
from headrace.flow.messages import Queue
from headrace.foundation.errors import RetriableError
from headrace_spark.transit.blobs import Blobs, is_place, remove_blobs
from headrace_spark.transit.envelopes import Envelope, from_arrow, to_arrow

LARGE = pl.DataFrame({"n": range(50_000), "text": ["text"] * 50_000})
SMALL = LARGE.head(10)


def sent(blobs: Blobs | None, *frames: pl.DataFrame) -> list[Envelope]:
    envelopes = [Envelope("ship", Queue("q", "s"), 0, 0, each.height, "shuffle", rows=each) for each in frames]
    return list(from_arrow(to_arrow(envelopes, blobs)))


def test_a_large_frame_is_in_a_file_until_its_micro_batch_is_completed(tmp_path: Path) -> None:
    large, small = sent(Blobs(str(tmp_path), 7), LARGE, SMALL)
    assert (is_place(large.payload), is_place(small.payload)) == (True, False)
    for _ in range(2):  # a task may run again
        assert large.frame().equals(LARGE)
    assert small.frame().equals(SMALL)
    remove_blobs(str(tmp_path), 6)
    assert large.frame().equals(LARGE)
    remove_blobs(str(tmp_path), 7)
    with pytest.raises(RetriableError, match="rows of a micro-batch that is not completed cannot be read"):
        large.frame()


def test_a_task_that_runs_again_writes_other_files(tmp_path: Path) -> None:
    (first,), (second,) = sent(Blobs(str(tmp_path), 0), LARGE), sent(Blobs(str(tmp_path), 0), LARGE.reverse())
    assert first.payload != second.payload
    assert first.frame().equals(LARGE)


def test_a_frame_goes_through_java_where_no_file_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "blobs").write_text("no directory")
    (large,) = sent(Blobs(str(tmp_path), 0), LARGE)
    assert not is_place(large.payload)
    assert large.frame().equals(LARGE)


def test_a_worker_that_continues_after_its_run_makes_no_directory(tmp_path: Path) -> None:
    run = tmp_path / "run"
    (large,) = sent(Blobs(str(run), 0), LARGE)
    assert not is_place(large.payload)
    assert not run.exists()


def test_a_frame_goes_through_java_where_the_disk_is_full(tmp_path: Path) -> None:
    """A limit of the size of files fails the write in its middle, as a full disk does."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    try:
        (large,) = sent(Blobs(str(tmp_path), 3), LARGE)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not is_place(large.payload)
    assert large.frame().equals(LARGE)
    assert list((tmp_path / "blobs" / "3").iterdir()) == [], "what was written of it is removed"


@pytest.mark.parametrize("kept", [0, 100, 4096, -8, -9])
def test_a_file_that_is_not_as_it_was_written_is_refused(tmp_path: Path, kept: int) -> None:
    parts = pl.concat([LARGE, LARGE], rechunk=False)
    (large,) = sent(Blobs(str(tmp_path), 0), parts)
    (path,) = (tmp_path / "blobs" / "0").iterdir()
    content = path.read_bytes()
    path.write_bytes(content[:kept])
    if kept == -8:  # the mark behind the last batch says nothing
        assert large.frame().equals(parts)
        return
    with pytest.raises(RetriableError, match=f"cannot be read from {path}: "):
        large.frame()


def test_a_file_with_fewer_rows_is_refused(tmp_path: Path) -> None:
    (large,) = sent(Blobs(str(tmp_path), 0), LARGE)
    (path,) = (tmp_path / "blobs" / "0").iterdir()
    LARGE.head(-1).write_ipc_stream(path, compression="uncompressed")
    with pytest.raises(RetriableError, match=f"it has {LARGE.height - 1} rows of {LARGE.height}"):
        large.frame()


def test_without_files_every_frame_goes_through_java() -> None:
    (large,) = sent(None, LARGE)
    assert not is_place(large.payload)
    assert large.frame().equals(LARGE)
