"""Offsets of a stopped job on light: shown, moved where that is right, and refused where rows would be wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import headrace as hr
import pytest
from headrace.foundation.errors import CheckpointError
from headrace.interfaces.backend import JobState
from headrace.testing import MemorySink, MemorySource
from headrace_light.backend import LightBackend

from tests.eventually import eventually

SCHEMA = {"n": "int64"}
BODIES = [b'{"n": %d}' % number for number in range(10)]


def copying(sink: MemorySink) -> Any:
    return hr.stream("t", "copy").from_(MemorySource({"q": BODIES}), format="json", schema=SCHEMA).to(sink)


def test_a_job_goes_on_where_it_is_told(tmp_path: Path) -> None:
    checkpoint = str(tmp_path / "state")
    copying(MemorySink()).run("light", checkpoint=checkpoint)
    backend = LightBackend()
    [queue] = backend.stored_positions(checkpoint)
    assert backend.stored_positions(checkpoint) == {queue: 10}
    plan = copying(MemorySink()).plan()
    assert backend.move_positions(plan, checkpoint, {queue: 7}) == {queue: 7}
    sink = MemorySink()
    report = copying(sink).run("light", checkpoint=checkpoint)
    assert (report.records_read, [row["n"] for row in sink.rows]) == (3, [7, 8, 9])


@pytest.mark.parametrize(
    ("queue", "offset", "message"), [("other/q", 1, "has no queue 'other/q'"), (None, -1, "-1 is not an offset")]
)
def test_what_does_not_exist_is_refused(tmp_path: Path, queue: str | None, offset: int, message: str) -> None:
    checkpoint = str(tmp_path / "state")
    copying(MemorySink()).run("light", checkpoint=checkpoint)
    backend = LightBackend()
    before = backend.stored_positions(checkpoint)
    with pytest.raises(CheckpointError, match=message):
        backend.move_positions(copying(MemorySink()).plan(), checkpoint, {queue or next(iter(before)): offset})
    assert backend.stored_positions(checkpoint) == before


def test_a_job_with_keyed_state_is_not_moved(tmp_path: Path) -> None:
    checkpoint = str(tmp_path / "state")

    def job() -> Any:
        stream = hr.stream("t", "keyed").from_(MemorySource({"q": BODIES}), format="json", schema=SCHEMA)
        return stream.key_by("n").agg(c="count(*)").to_file(str(tmp_path / "out"), format="json", changes="column")

    job().run("light", checkpoint=checkpoint)
    backend = LightBackend()
    [queue] = backend.stored_positions(checkpoint)
    with pytest.raises(CheckpointError, match="keyed state"):
        backend.move_positions(job().plan(), checkpoint, {queue: 0})


def test_files_are_not_moved_as_they_need_a_place_in_bytes(tmp_path: Path) -> None:
    checkpoint, events = str(tmp_path / "state"), tmp_path / "events.ndjson"
    events.write_bytes(b"\n".join(BODIES) + b"\n")
    job = hr.stream("t", "files").from_file(str(events), format="json", schema=SCHEMA).to(MemorySink())
    job.run("light", checkpoint=checkpoint)
    [queue] = LightBackend().stored_positions(checkpoint)
    with pytest.raises(CheckpointError, match="more than an offset"):
        LightBackend().move_positions(job.plan(), checkpoint, {queue: 0})


def test_a_running_job_is_not_moved(tmp_path: Path) -> None:
    checkpoint = str(tmp_path / "state")
    copying(MemorySink()).run("light", checkpoint=checkpoint)
    refused = pytest.raises(CheckpointError, match="in use by another running job")
    with copying(MemorySink()).start("light", checkpoint=checkpoint), refused:
        LightBackend().stored_positions(checkpoint)


def test_there_is_no_checkpoint_yet(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="is not a checkpoint of a job that has started"):
        LightBackend().stored_positions(str(tmp_path))


def test_a_prepared_job_has_touched_nothing_and_then_runs(tmp_path: Path) -> None:
    checkpoint = tmp_path / "state"
    source, sink, old = MemorySource({"q": BODIES}), MemorySink(), MemorySink()
    job = hr.stream("t", "copy").from_(source, format="json", schema=SCHEMA).to(sink)
    with copying(old).start("light", checkpoint=str(checkpoint)):
        eventually(lambda: len(old.rows) == len(BODIES), "the old job has read its input")
        prepared = job.prepare("light", checkpoint=str(checkpoint), until="end")  # while the old one has the checkpoint
        assert source.opened == []
    report = prepared.start().wait()
    assert report.state is JobState.FINISHED
    assert sink.rows == []  # the old one has read them: the checkpoint says so
