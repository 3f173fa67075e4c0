"""What a job keeps is for its own user: checkpoints, state, order log, requests and savepoints hold what records hold."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import headrace as hr
import pytest
from headrace.foundation.private_files import make_private_directory


@pytest.fixture(autouse=True)
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def open_to_others(directory: Path) -> list[str]:
    """Return the files below a directory that others could read if they came so far."""
    files = [path for path in directory.rglob("*") if path.is_file()]
    assert files
    return [str(path.relative_to(directory)) for path in files if stat.S_IMODE(path.stat().st_mode) & 0o077]


@pytest.mark.parametrize("state_store", ["directory", "rocksdb"])
def test_checkpoint_and_savepoint(tmp_path: Path, state_store: str) -> None:
    (tmp_path / "in.ndjson").write_text("".join(json.dumps({"k": f"k{n % 3}", "v": n}) + "\n" for n in range(100)))
    stream = hr.stream("private", "sums").from_file(
        tmp_path / "in.ndjson", format="json", schema={"k": "string", "v": "int64"}
    )
    job = stream.key_by("k").agg(total="sum(v)").to_file(tmp_path / "out", format="json", changes="column")
    handle = job.start("light", checkpoint=tmp_path / "state", state_store=state_store, show_progress=False)
    handle.savepoint(tmp_path / "saved")
    handle.stop()
    assert stat.S_IMODE((tmp_path / "state" / "light").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "saved").stat().st_mode) == 0o700
    assert open_to_others(tmp_path / "saved") == []
    assert stat.S_IMODE((tmp_path / "state").stat().st_mode) == 0o700
    # What libraries write for us is safe because nobody else comes into the directory.
    assert state_store == "rocksdb" or open_to_others(tmp_path / "state" / "light") == []
    assert open_to_others(tmp_path / "state" / "control") == []


def test_directory_of_before_is_closed(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir(mode=0o777)
    make_private_directory(tmp_path / "old")
    make_private_directory(tmp_path / "a" / "b")
    assert stat.S_IMODE((tmp_path / "old").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "a" / "b").stat().st_mode) == 0o700
