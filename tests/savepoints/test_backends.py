"""Savepoints between the backends: a job goes from one to the other and back, with other numbers of shards and another name."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from headrace.foundation.errors import CheckpointError
from headrace.foundation.faults import VARIABLE
from headrace.runtime.savepoints import Savepoint

from tests.conformance.case import differences, outputs
from tests.conformance.running import ROOT
from tests.formats.jobs import VERBS, job
from tests.formats.keep import lay_out, wait_for_records, within
from tests.savepoints.killed_job import READ
from tests.savepoints.places import run_to_the_end, stop_at

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1200)]
#: Windows behind windows and without a key, a join of two queues, a table of keys with timers.
SOME = ("twice", "join-within", "process")
SPARK = {"master": "local[2]"}


@pytest.mark.parametrize("verbs", [SOME, pytest.param(VERBS, marks=pytest.mark.slow)], ids=["some", "all"])
def test_from_light_to_spark_and_back(tmp_path: Path, verbs: tuple[str, ...]) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    whole.mkdir()
    parts.mkdir()
    run_to_the_end(partial(job, *verbs), whole, "light", shards=2)
    build = partial(job, *verbs)
    first = stop_at(build, parts, "light", clicks=90, orders=40, read=130, shards=2, max_batch_records=40)
    fork = partial(job, *verbs, name="fork")
    second = stop_at(
        fork, parts, "spark", clicks=170, orders=80, read=120, shards=3, from_savepoint=first,
        max_micro_batch_records=60, checkpoint="checkpoint", **SPARK,
    )  # fmt: skip
    assert Savepoint.read(second).place.shards == dict.fromkeys(Savepoint.read(first).place.shards, 3)
    with pytest.raises(CheckpointError, match="has already started"):
        run_to_the_end(fork, parts, "spark", from_savepoint=second, checkpoint="checkpoint", **SPARK)
    run_to_the_end(build, parts, "light", shards=1, from_savepoint=second)
    assert differences(outputs(parts), outputs(whole)) == []


def test_a_running_spark_job_writes_a_savepoint_and_goes_on(tmp_path: Path) -> None:
    """Taken between micro-batches, while later ones run; a start with the same arguments goes on from the checkpoint."""
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    whole.mkdir()
    parts.mkdir()
    build = partial(job, "aggregate")
    run_to_the_end(build, whole, "light")
    lay_out(parts, clicks_count=100, orders_count=0)
    with within(parts):
        handle = build().start("spark", shards=2, **SPARK)
        try:
            wait_for_records(handle, 100)
            savepoint = handle.savepoint(parts / "savepoint")
            with pytest.raises(CheckpointError, match="exists already"):
                handle.savepoint(parts / "savepoint")
        finally:
            handle.stop(savepoint=parts / "stopped")
        with pytest.raises(CheckpointError, match="the job has ended"):
            handle.savepoint(parts / "late")
    assert not Savepoint.read(savepoint).place.stopped
    assert [each.name for each in parts.iterdir() if each.name.startswith(".")] == []
    options = {"from_savepoint": parts / "stopped", "checkpoint": "checkpoint", "shards": 3, **SPARK}
    run_to_the_end(build, parts, "spark", **options)
    run_to_the_end(build, parts, "spark", **options)
    assert differences(outputs(parts), outputs(whole)) == []
    with pytest.raises(CheckpointError, match="came after the savepoint"):
        run_to_the_end(build, parts, "spark", from_savepoint=savepoint, **SPARK)


# Every run kills light so: plugins/light/tests/test_savepoints.py. A program with a Spark of its own takes seconds.
@pytest.mark.slow
@pytest.mark.parametrize("fault", ["savepoint.after_state:2", "savepoint.before_end:1"])
def test_a_kill_leaves_no_half_savepoint_and_the_job_goes_on(tmp_path: Path, fault: str) -> None:
    """``kill -9`` of the driver program, with its Java process, while it writes."""
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    whole.mkdir()
    parts.mkdir()
    verbs = ("aggregate", "join-within")
    run_to_the_end(partial(job, *verbs), whole, "light")
    lay_out(parts, clicks_count=90, orders_count=READ - 90)
    command = [sys.executable, "-m", "tests.savepoints.killed_job", "spark"]
    environment = {**os.environ, VARIABLE: f"{fault}:kill", "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(command, cwd=parts, env=environment, start_new_session=True)
    try:
        assert process.wait(300) == -signal.SIGKILL
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert not (parts / "savepoint").exists()
    assert [each.name for each in parts.iterdir() if each.name.startswith(".savepoint.")] != [], "it was writing"
    run_to_the_end(partial(job, *verbs), parts, "spark", checkpoint="checkpoint", shards=3, **SPARK)
    assert differences(outputs(parts), outputs(whole)) == []
