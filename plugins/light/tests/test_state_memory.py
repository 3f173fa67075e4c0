"""Keyed state with a limit for its memory: the same results and state, after any kill and from any checkpoint; what is refused."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import headrace as hr
import pytest
from headrace.foundation.errors import OptionError
from headrace.testing import MemorySink, MemorySource
from headrace_light import backend
from headrace_light.state_directory import DirectoryStateSettings, DirectoryStateStore
from killed_programs import kill_at
from light_spilling_job import run, spilling_job

from tests.effort import often_or_slow
from tests.eventually import eventually

HERE = Path(__file__).parent
Totals = dict[str, tuple[int, int, int]]
OFTEN = ["shard.after_settle"]
PLACES = ["shard.after_process", "shard.after_save", "checkpoint.after_save", "shard.after_settle"]


def write_input(directory: Path, *, records: int = 12_000, keys: int = 7_000, seed: int = 1) -> Totals:
    """Write files of events and return what the job is to come to."""
    rng = random.Random(seed)
    (directory / "input").mkdir(parents=True, exist_ok=True)
    totals = dict(totals_of(directory)) if seed > 1 else {}
    for number in range(2):
        with (directory / "input" / f"{seed}-{number}.ndjson").open("w") as file:
            for _ in range(records // 2):
                key, value = f"user-{rng.randrange(keys)}", rng.randrange(1000)
                n, s, m = totals.get(key, (0, 0, value))
                totals[key] = (n + 1, s + value, max(m, value))
                file.write(json.dumps({"k": key, "v": value}) + "\n")
    return totals


def totals_of(directory: Path) -> Totals:
    with sqlite3.connect(directory / "out.db") as database:
        return {key: (n, s, m) for key, n, s, m in database.execute("select k, n, s, m from totals")}


def test_rows_leave_memory_and_results_are_the_same(tmp_path: Path) -> None:
    wanted = write_input(tmp_path)
    run(tmp_path)
    assert totals_of(tmp_path) == wanted
    assert (tmp_path / "state" / "light" / "local" / "CURRENT").exists()


def test_memory_that_is_free_goes_back_to_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the C library keeps for later comes on top of the limit: with one, it keeps little."""
    kept: list[int] = []
    monkeypatch.setattr(backend, "keep_freed_memory", kept.append)
    for options in ({}, {"state_memory": "10 MB"}):
        rows = hr.stream("test", "kept").from_(MemorySource({"q": []}), format="json", schema={"k": "string"})
        rows.key_by("k").agg(n="count(*)").to(MemorySink()).run("light", show_progress=False, **options)
    assert kept == [64 * 2**20, 2**20]


def test_other_memory_or_none_goes_on_with_the_checkpoint(tmp_path: Path) -> None:
    write_input(tmp_path)
    run(tmp_path)
    limits: list[dict[str, Any]] = [{"state_memory": None}, {"state_memory": "1 MB"}, {"state_memory": 64_000_000}]
    for seed, options in enumerate(limits, start=2):
        wanted = write_input(tmp_path, records=2_000, keys=9_000, seed=seed)
        run(tmp_path, **options)
        assert totals_of(tmp_path) == wanted


def test_a_savepoint_goes_to_other_shards_with_other_memory(tmp_path: Path) -> None:
    write_input(tmp_path)
    job = spilling_job(tmp_path)
    options: dict[str, Any] = {"shards": 2, "show_progress": False, "checkpoint": tmp_path / "state"}
    handle = job.start("light", state_memory="1 MB", checkpoint_interval="100 ms", max_batch_records=2_000, **options)
    eventually(lambda: handle.status().records_read >= 12_000, "the whole input is read")
    handle.stop(savepoint=tmp_path / "savepoint")
    shutil.rmtree(tmp_path / "state")
    wanted = write_input(tmp_path, records=4_000, keys=12_000, seed=2)
    run(tmp_path, state_memory="2 MB", shards=3, from_savepoint=tmp_path / "savepoint")
    assert totals_of(tmp_path) == wanted


@pytest.mark.parametrize("place", often_or_slow(PLACES, OFTEN))
def test_a_kill_anywhere(tmp_path: Path, place: str) -> None:
    wanted = write_input(tmp_path)
    kill_at("light_spilling_job.py", tmp_path, place, (3,) if place in OFTEN else (2, 3, 2))
    assert totals_of(tmp_path) == wanted


@pytest.mark.slow
def test_kills_at_any_moment(tmp_path: Path) -> None:
    wanted = write_input(tmp_path, records=400_000, keys=60_000)
    rng, kills = random.Random(7), 0
    while True:
        process = subprocess.Popen(
            [sys.executable, str(HERE / "light_spilling_job.py"), str(tmp_path)], env={**os.environ, "PYTHONPATH": str(HERE)}
        )  # fmt: skip
        try:
            code = process.wait(rng.uniform(0.8, 3.0))
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
            kills += 1
        if code == 0:
            break
        assert code == -signal.SIGKILL
    assert totals_of(tmp_path) == wanted
    print(f"{kills} kills")


def test_a_damaged_local_store_is_never_trusted(tmp_path: Path) -> None:
    write_input(tmp_path, records=24_000, keys=16_000)
    run(tmp_path)
    files = list((tmp_path / "state" / "light" / "local").glob("*.sst"))
    assert files
    for path in files:  # the rows, not the index behind them
        content = bytearray(path.read_bytes())
        for place in range(0, len(content) // 2, 97):
            content[place] ^= 0x55
        path.write_bytes(content)
    wanted = write_input(tmp_path, records=4_000, keys=16_000, seed=2)
    with pytest.raises(hr.HeadraceError, match="local rows of the state"):
        run(tmp_path)
    run(tmp_path)
    assert totals_of(tmp_path) == wanted


def test_a_local_store_that_is_no_database_is_made_anew(tmp_path: Path) -> None:
    write_input(tmp_path)
    run(tmp_path)
    (tmp_path / "state" / "light" / "local" / "CURRENT").write_bytes(b"nonsense")
    wanted = write_input(tmp_path, records=4_000, seed=2)
    run(tmp_path)
    assert totals_of(tmp_path) == wanted


def test_a_job_that_begins_anew_does_not_meet_rows_of_another_run(tmp_path: Path) -> None:
    write_input(tmp_path)
    run(tmp_path)
    light = tmp_path / "state" / "light"
    shutil.move(light / "local", tmp_path / "local")
    shutil.rmtree(tmp_path / "state")
    (tmp_path / "out.db").unlink()
    light.mkdir(parents=True)
    shutil.move(tmp_path / "local", light / "local")
    shutil.rmtree(tmp_path / "input")
    wanted = write_input(tmp_path)
    run(tmp_path)
    assert totals_of(tmp_path) == wanted


def test_the_disk_is_used_again_by_the_next_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_input(tmp_path, records=24_000)
    run(tmp_path, shards=1, checkpoint_interval="1 ms")  # one behind each batch, also where all of them take 50 ms
    caplog.set_level("INFO", logger="headrace_light")
    wanted = write_input(tmp_path, records=2_000, seed=2)
    run(tmp_path, shards=1)
    assert totals_of(tmp_path) == wanted
    assert "are on the local disk already" in caplog.text
    # Nobody knows whether a copy was made at one moment.
    local = tmp_path / "state" / "light" / "local"
    shutil.copytree(local, tmp_path / "copy")
    shutil.move(local, tmp_path / "before")
    shutil.move(tmp_path / "copy", local)
    caplog.clear()
    wanted = write_input(tmp_path, records=1_000, seed=3)
    run(tmp_path, shards=1)
    assert totals_of(tmp_path) == wanted
    assert "are on the local disk already" not in caplog.text


def test_an_older_checkpoint_does_not_meet_newer_rows(tmp_path: Path) -> None:
    write_input(tmp_path)
    run(tmp_path)
    shutil.copytree(tmp_path / "state", tmp_path / "copy")
    write_input(tmp_path, keys=12_000, seed=2)
    run(tmp_path)
    shutil.rmtree(tmp_path / "copy" / "light" / "local")
    shutil.move(tmp_path / "state" / "light" / "local", tmp_path / "copy" / "light" / "local")
    shutil.rmtree(tmp_path / "state")
    shutil.move(tmp_path / "copy", tmp_path / "state")
    wanted = totals_of(tmp_path)
    run(tmp_path, sinks_ahead="write")
    assert totals_of(tmp_path) == wanted


def test_versions_are_forgotten_when_they_have_rolled(tmp_path: Path) -> None:
    wanted = write_input(tmp_path, records=4_000, keys=1_000)
    run(tmp_path, checkpoint_interval="1 ms", max_batch_records=200)
    assert totals_of(tmp_path) == wanted
    for shard in (tmp_path / "state" / "light" / "state").iterdir():
        numbers = sorted(int(path.name.partition(".")[0]) for path in shard.iterdir())
        assert 1 < numbers[0] < numbers[-1]


def test_forgotten_versions_are_gone(tmp_path: Path) -> None:
    store = DirectoryStateStore(DirectoryStateSettings(path=str(tmp_path)))
    for version in range(1, 5):
        store.save("a/0", version, b"%d" % version)
    store.forget_before("a/0", 3)
    assert [(number, content) for number, content, _ in store.load("a/0")] == [(3, b"3"), (4, b"4")]


def a_job(**schema: str) -> Any:
    return hr.stream("test", "memory").from_(MemorySource({"q": []}), format="json", schema={"k": "string", **schema})


@pytest.mark.parametrize("value", ["much", "0", 12, "-1 GB", "500 kB"])
def test_unusable_sizes_are_refused(value: Any) -> None:
    job = a_job().key_by("k").agg(n="count(*)").to(MemorySink())
    with pytest.raises(OptionError, match="unusable value") as caught:
        job.run("light", state_memory=value)
    assert caught.value.option == "state_memory"


def test_verbs_that_stay_in_memory_are_refused() -> None:
    stream = a_job(ts="timestamp").key_by("k")
    sessions = stream.window(hr.session("1 min", on="ts"), emit=hr.emit(before="10 s")).agg(n="count(*)")
    with pytest.raises(OptionError, match="in memory") as caught:
        sessions.to(MemorySink()).run("light", state_memory="1 GB")
    assert caught.value.option == "state_memory"


def test_mapped_files_need_pyarrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace_light.state_memory.find_spec", lambda name: None)
    with pytest.raises(OptionError, match="needs pyarrow"):
        a_job().key_by("k").deduplicate().to(MemorySink()).run("light", state_memory="1 GB")


def test_without_a_checkpoint_rows_are_in_a_temporary_directory() -> None:
    rng = random.Random(3)
    bodies = [json.dumps({"k": f"user-{rng.randrange(9_000)}", "v": 1}).encode() for _ in range(12_000)]
    results = []
    for memory in (None, "1 MB"):
        sink = MemorySink()
        stream = hr.stream("test", "memory").from_(
            MemorySource({"q": bodies}), format="json", schema={"k": "string", "v": "int64"}
        )
        stream.key_by("k").agg(n="count(*)", s="sum(v)").to(sink).run("light", show_progress=False, state_memory=memory)
        results.append(sink.rows)
    assert results[0] == results[1]


def test_sql_with_worker_processes(tmp_path: Path) -> None:
    wanted = write_input(tmp_path)
    text = """
    CREATE TABLE events (k STRING, v BIGINT) WITH ('connector' = 'file', 'path' = 'DIRECTORY/input/*.ndjson', 'format' = 'json');
    CREATE TABLE totals (k STRING, n BIGINT, s BIGINT, m BIGINT, PRIMARY KEY (k) NOT ENFORCED)
      WITH ('connector' = 'sqlite', 'database' = 'DIRECTORY/out.db', 'table' = 'totals', 'create-table' = 'true');
    INSERT INTO totals SELECT k, COUNT(*), SUM(v), MAX(v) FROM events GROUP BY k;
    """.replace("DIRECTORY", str(tmp_path))
    options: dict[str, Any] = {"max_batch_records": 2_000, "checkpoint_interval": "50 ms", "show_progress": False}
    hr.sql(text).run("light", workers=2, state_memory="1 MB", checkpoint=tmp_path / "state", **options)
    assert totals_of(tmp_path) == wanted


def test_rows_of_changing_counts_are_counted(tmp_path: Path) -> None:
    rng = random.Random(4)
    bodies = [json.dumps({"k": f"user-{rng.randrange(6_000)}"}).encode() for _ in range(12_000)]
    results = []
    for memory in (None, "1 MB"):
        sink = MemorySink()
        stream = hr.stream("test", "memory").from_(MemorySource({"q": bodies}), format="json", schema={"k": "string"})
        counts = stream.key_by("k").agg(n="count(*)").key_by("n").agg(users="count(*)", total="sum(n)")
        counts.to(sink).run("light", show_progress=False, max_batch_records=2_000, state_memory=memory)
        results.append((sink.rows, sink.kinds))
    assert results[0] == results[1]
