"""One copy of a table for the processes of a machine: mapped files, refreshes, and what is left behind."""

from __future__ import annotations

import fcntl
import gc
import json
import os
import pickle
import subprocess
import sys
import warnings
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import headrace as hr
import polars as pl
import pytest
from headrace.foundation.clock import ManualClock
from headrace.foundation.errors import JobError
from headrace_dimension import lookup_join, table_files
from headrace_dimension.shared_table import SharedTable, Sharing
from headrace_dimension.table import Lookup, Table
from headrace_dimension.table_files import TableFiles
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import examples

pytestmark = pytest.mark.skipif(not table_files.can_share(), reason="the system has no flock")
PIPE = hr.stream("test", "sharing")
KEY: Lookup = ("equal", ("k",))


def mapped(table: Table, directory: Path, schema: Any, lookup: Lookup) -> Table:
    files = TableFiles("t", directory)
    with files.loading():
        found = files.publish(*table.parts(), 0.0)
    files.close()
    return Sharing(files, schema, lookup).table(found)


def answers(table: Table, probes: pl.DataFrame) -> list[Any]:
    at, places = table.find(probes)
    return [at.tolist(), *table.take(pl.Series(places)).rows()]


TEXTS = st.sampled_from([None, "", "a", "b", "ab", "ü", "x" * 40, "a\x00b"])
NUMBERS = st.one_of(st.none(), st.integers(-3, 3))
NETWORKS = st.sampled_from([None, "10.0.0.0/8", "10.1.0.0/16", "10.1.2.3/32", "::/0", "2001:db8::/32"])
ROWS = st.lists(st.tuples(TEXTS, NUMBERS, NUMBERS, NETWORKS), max_size=20)


@settings(max_examples=examples(40), deadline=None)
@given(rows=ROWS, kind=st.sampled_from(["one key", "two keys", "range", "prefix"]))
def test_a_mapped_table_answers_as_the_one_that_was_written(
    rows: list[Any], kind: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    schema = {"t": pl.String(), "low": pl.Int64(), "high": pl.Int64(), "network": pl.String()}
    frame = pl.DataFrame(rows, schema=schema, orient="row").with_row_index("row")
    lookup: Lookup = {
        "one key": ("equal", ("t",)), "two keys": ("equal", ("t", "low")),
        "range": ("range", ("low", "high")), "prefix": ("prefix", ("network",)),
    }[kind]  # fmt: skip
    probes = {
        "one key": pl.DataFrame({"t": [None, "", "a", "b", "ü", "x" * 40]}, schema={"t": pl.String()}),
        "two keys": pl.DataFrame({"t": ["a", "a", "b", None], "low": [1, None, -3, 0]}),
        "range": pl.DataFrame({"n": [-4, -3, 0, 2, 3, 4, None]}),
        "prefix": pl.DataFrame({"ip": ["10.1.2.3", "10.9.9.9", "::1", "2001:db8::1", "no", None]}),
    }[kind]
    table = Table.of(frame, lookup)
    found = mapped(table, tmp_path_factory.mktemp("tables"), frame.schema, lookup)
    assert answers(found, probes) == answers(table, probes)
    everything = pl.Series(range(found.height), dtype=pl.Int64)
    if kind in ("range", "prefix"):
        assert found.take(everything).equals(frame)


def test_columns_of_every_kind_come_back_from_the_file(tmp_path: Path) -> None:
    frame = pl.DataFrame({"k": ["a", "b"]}).with_columns(
        pl.Series("when", [0, None]).cast(pl.Datetime("us", "UTC")),
        pl.Series("amount", ["1.50", "2.25"]).str.to_decimal(scale=2),
        pl.Series("yes", [True, None]),
        pl.Series("bytes", [b"\x00", b""]),
        pl.Series("tags", [["x"], []], dtype=pl.List(pl.String)),
        pl.Series("nothing", [None, None], dtype=pl.String),
        pl.Series("number", [0.5, None]),
    )
    table = mapped(Table.of(frame, KEY), tmp_path, frame.schema, KEY)
    at, places = table.find(frame.select("k"))
    assert at.tolist() == [0, 1]
    assert table.take(pl.Series(places)).equals(frame.drop("k"))


_WORKER = """
import json, os, pickle, sys
import polars as pl
spec = pickle.loads(open(sys.argv[1], "rb").read())
at, places = spec.table().find(pl.DataFrame({"k": ["user-7", "user-nobody"]}))
maps = open("/proc/self/maps").read()
print(json.dumps([at.tolist(), sorted({line.split()[4] for line in maps.splitlines() if "table-1.arrow" in line})]), flush=True)
sys.stdin.readline()
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/maps"), reason="the system does not tell what is mapped")
def test_worker_processes_map_the_same_file_and_only_one_loads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    source = tmp_path / "table.ndjson"
    source.write_text("".join(json.dumps({"k": f"user-{n}", "v": n}) + "\n" for n in range(1000)))
    table = PIPE.from_file(str(source), format="json", schema={"k": "string", "v": "int64"})
    spec = lookup_join.LookupJoin(table, "k")
    (tmp_path / "spec").write_bytes(pickle.dumps(spec))
    command = [sys.executable, "-c", _WORKER, str(tmp_path / "spec")]
    environment = {**os.environ, "TMPDIR": str(tmp_path), "POLARS_MAX_THREADS": "1"}
    found = []
    workers: list[subprocess.Popen[str]] = []
    try:
        for _ in range(2):
            workers.append(
                subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
            )
            assert workers[-1].stdout is not None
            found.append(json.loads(workers[-1].stdout.readline()))
            source.unlink(missing_ok=True)  # the second could not load it
    finally:
        for worker in workers:
            worker.communicate("\n")
    (at, inodes), other = found
    assert at == [0]
    assert len(inodes) == 1
    assert other == [at, inodes]
    directory = TableFiles(spec._token).directory
    assert directory.is_dir()
    del spec, table
    gc.collect()
    assert not directory.exists(), "it goes with the stream that it was made for"


@pytest.fixture
def two(tmp_path: Path) -> Iterator[tuple[ManualClock, list[SharedTable]]]:
    """The views that two processes have of one table."""
    clock = ManualClock()
    schema = {"k": pl.String(), "v": pl.Int64()}
    tables = [
        SharedTable("t", timedelta(minutes=1), clock, Sharing(TableFiles("t", tmp_path), schema, KEY)) for _ in range(2)
    ]
    yield clock, tables
    for table in tables:
        table.close()


class Loads:
    """Loads tables that tell how many were loaded before them."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> Table:
        self.count += 1
        return Table.of(pl.DataFrame({"k": ["a"], "v": [self.count]}), KEY)


def value(table: SharedTable, load: Any) -> int:
    found = table.current(load)
    table.wait()
    _, places = found.find(pl.DataFrame({"k": ["a"]}))
    return int(found.take(pl.Series(places))["v"][0])


def test_one_process_refreshes_the_table_for_all(two: Any, tmp_path: Path) -> None:
    clock, (one, other) = two
    load = Loads()
    assert (value(one, load), value(other, load)) == (1, 1)
    clock.advance(60)
    assert value(one, load) == 1, "the lookup that finds it old is served by the one before"
    assert value(one, load) == 2
    assert (value(other, load), value(other, load)) == (1, 2), "the other one maps what is there"
    assert load.count == 2
    assert [path.name for path in (tmp_path / "t").glob("*.arrow*")] == ["table-2.arrow"]
    clock.advance(59)
    assert (value(other, load), load.count) == (2, 2)


def test_a_process_that_comes_later_counts_the_age_of_the_table_from_when_it_was_loaded(two: Any) -> None:
    clock, (one, other) = two
    load = Loads()
    value(one, load)
    clock.advance(40)
    value(other, load)
    clock.advance(20)
    value(other, load)
    assert (value(other, load), load.count) == (2, 2)


def test_a_table_that_cannot_be_written_is_the_own_copy_of_the_process(
    two: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "t" / "table-1.arrow.new").mkdir(parents=True)
    _, (one, _) = two
    assert value(one, Loads()) == 1
    assert "cannot be shared" in caplog.text


def test_what_killed_jobs_left_is_removed_and_what_is_used_stays(tmp_path: Path) -> None:
    files = {name: TableFiles(name, tmp_path) for name in ("used", "left", "new")}
    for name, one in files.items():
        with one.loading():
            one.publish(*Table.of(pl.DataFrame({"k": [name]}), KEY).parts(), 0.0)
    for name in ("used", "left"):
        os.utime(files[name].directory, (0, 0))
    files["left"].close()
    late = TableFiles("late", tmp_path)
    with late.loading():
        pass
    for one in (*files.values(), late):
        one.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["late", "new", "used"]


def test_a_directory_that_others_can_write_to_is_not_used(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(JobError, match="is accessible to other users"), TableFiles("t", tmp_path).loading():
        pass


def test_tables_are_forgotten_with_their_streams() -> None:
    gc.collect()  # what tests before have left
    before = len(lookup_join._tables)
    table = PIPE.from_file("nowhere.ndjson", format="json", schema={"k": "string", "v": "int64"})
    specs = [lookup_join.LookupJoin(table, "k") for _ in range(3)]
    assert len({spec._token for spec in specs}) == 1
    assert len(lookup_join._tables) == before + 1
    del table, specs
    gc.collect()
    assert len(lookup_join._tables) == before


def test_the_lock_of_a_table_that_nobody_refers_to_is_released(tmp_path: Path) -> None:
    """The copies of a job's verbs in other processes are dropped when the job ends; nobody closes them."""
    files = TableFiles("t", tmp_path)
    with files.loading():
        pass
    with (files.directory / "users.lock").open("rb") as lock:
        with pytest.raises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            del files
            gc.collect()
        assert warned == []
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
