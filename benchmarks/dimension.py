"""What a dimension table of ten million rows costs: memory, loading, lookups, and the processes of a machine together.

    python -m benchmarks.dimension [--rows 10000000] [--only mysql] [--threads 1 2 4]   # everything, or some, as JSON lines
    python -m benchmarks.dimension memory|dict|polars|workers ROWS           # one measurement, as JSON
    python -m benchmarks.dimension files ROWS THREADS parquet|csv DIRECTORY  # loading from files
    python -m benchmarks.dimension mysql ROWS THREADS DATABASE               # loading from the table ``users``

Keys are texts of 16 to 32 bytes; with them come a group (one of 1,000 texts), a level (0 to 9) and a number below 10^6.
Raw size is that of the bytes themselves: the key, the text of the group, one byte, four bytes. Batches are 10,000 probes,
half of which are in the table. Each measurement is a process of its own on one core. MySQL is a server that is started
for it. Loading has two cores; from files it is followed by a
refresh.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from benchmarks.measure import ROOT, measure

PROBES = 10_000
BATCHES = 60
SCHEMA = {"name": "string", "group": "string", "level": "int64", "number": "int64"}
DATABASE = "headrace_benchmark_dimension"
ALONE = ("memory", "dict", "polars", "workers")
KINDS = (*ALONE, "parquet", "csv", "mysql")
FILES = 4
MYSQL_RANGES = 16


def users(rows: int) -> pl.DataFrame:
    """Return the table, the same one every time; ``id`` is for MySQL."""
    random = np.random.default_rng(7)
    number = pl.Series("number", random.integers(0, 1_000_000, rows))
    return pl.DataFrame({"id": pl.Series(range(1, rows + 1), dtype=pl.Int64), "number": number}).select(
        "id",
        (pl.lit("user-") + (pl.col("id") * 7_919 + 100_000_000_000).cast(pl.String)
         + pl.lit("@example.org").str.slice(0, (pl.col("id") % 17).cast(pl.Int64))).alias("name"),
        (pl.lit("group-") + (pl.col("number") % 1_000).cast(pl.String)).alias("group"),
        (pl.col("number") % 10).alias("level"),
        "number",
    )  # fmt: skip


def batches(frame: pl.DataFrame) -> list[pl.DataFrame]:
    """Return batches of probes, half of them in the table, at random places."""
    random = np.random.default_rng(11)
    made = []
    for _ in range(BATCHES):
        there = frame["name"].gather(random.integers(0, frame.height, PROBES // 2))
        absent = there.str.replace("user-", "nobody-", literal=True)
        made.append(pl.DataFrame({"name": pl.concat([there, absent]).sample(fraction=1, shuffle=True, seed=1)}))
    return made


def _per_second(look_up: Callable[[pl.DataFrame], int], probes: list[pl.DataFrame]) -> dict[str, float]:
    """Return lookups per second of CPU over all batches, of the best of five rounds, and the share that was found."""
    best, found = float("inf"), 0
    for _ in range(5):
        begun = time.process_time()
        found = sum(look_up(batch) for batch in probes)
        best = min(best, time.process_time() - begun)
    return {"lookups_per_second": len(probes) * PROBES / best, "found": found / (len(probes) * PROBES)}


def _resident_bytes() -> int:
    import psutil

    return int(psutil.Process().memory_info().rss)


def memory(rows: int) -> dict[str, Any]:
    """Measure bytes per row and lookups of a table in memory, and what this process takes while one is refreshed."""
    from headrace_dimension.shared_table import SharedTable
    from headrace_dimension.table import Table

    frame = users(rows).drop("id")
    raw = int(frame["name"].str.len_bytes().sum()) + int(frame["group"].str.len_bytes().sum()) + 5 * rows
    probes = batches(frame)
    begun = time.process_time()
    shared = SharedTable("users", None)
    table = shared.current(lambda: Table.of(frame, ("equal", ("name",))))
    indexed = time.process_time() - begun

    def find(batch: pl.DataFrame) -> int:
        return len(table.find(batch)[0])

    def join(batch: pl.DataFrame) -> int:
        at, places = table.find(batch)
        return pl.concat([batch.select(pl.all().gather(pl.Series(at))), table.take(pl.Series(places))],
                         how="horizontal").height  # fmt: skip

    found = _per_second(find, probes)
    return {
        "raw_bytes_per_row": raw / rows, "bytes_per_row": table.bytes() / rows, "index_seconds": indexed, **found,
        "rows_per_second": _per_second(join, probes)["lookups_per_second"],
    }  # fmt: skip


def dict_(rows: int) -> dict[str, Any]:
    """Measure a dict of tuples, probed in a loop."""
    before = _resident_bytes()
    frame = users(rows).drop("id")
    probes = batches(frame)
    table = {name: (group, level, number) for name, group, level, number in frame.iter_rows()}
    del frame

    def find(batch: pl.DataFrame) -> int:
        get = table.get
        return sum(get(name) is not None for name in batch["name"].to_list())

    return {"bytes_per_row": (_resident_bytes() - before) / rows, **_per_second(find, probes)}


def polars(rows: int) -> dict[str, Any]:
    """Measure polars' own join of each batch with the whole table."""
    frame = users(rows).drop("id")
    probes = batches(frame)[:2]

    def find(batch: pl.DataFrame) -> int:
        return batch.join(frame, on="name").height

    begun = time.process_time()
    found = sum(find(batch) for batch in probes)
    return {
        "bytes_per_row": frame.estimated_size() / rows,
        "lookups_per_second": len(probes) * PROBES / (time.process_time() - begun),
        "found": found / (len(probes) * PROBES),
    }


_WORKER = """
import json, pickle, sys
import polars as pl
from benchmarks.dimension import mapped_memory
spec = pickle.loads(open(sys.argv[1], "rb").read())
import time
begun = time.perf_counter()
table = spec.table()
seconds = time.perf_counter() - begun
for batch in pl.read_parquet(sys.argv[2]).iter_slices(10_000):
    table.find(batch)
print(json.dumps([seconds, table.height]), flush=True)
for line in sys.stdin:
    print(json.dumps(mapped_memory()), flush=True)
"""


def mapped_memory() -> dict[str, float]:
    """Return how much of the table's file this process has mapped and has resident, and its share of that (PSS), in MB."""
    import psutil

    found = {"mapped": 0.0, "resident": 0.0, "share": 0.0}
    for one in psutil.Process().memory_maps():
        if "headrace-tables-" in one.path:
            found["mapped"] += one.size / 1e6
            found["resident"] += one.rss / 1e6
            found["share"] += one.pss / 1e6
    return {**found, "process_pss": psutil.Process().memory_full_info().pss / 1e6}


def workers(rows: int) -> dict[str, Any]:
    """Measure two worker processes that use one table, as Spark's do: the first loads it, the second maps it."""
    import headrace as hr
    from headrace_dimension.lookup_join import LookupJoin

    with tempfile.TemporaryDirectory(prefix="headrace-benchmark-") as place:
        frame = users(rows).drop("id")
        frame.write_ndjson(f"{place}/users.ndjson")
        pl.concat(batches(frame)).write_parquet(f"{place}/probes.parquet")
        del frame
        table = hr.stream("benchmark", "users").from_file(f"{place}/users.ndjson", format="json", schema=SCHEMA)
        Path(f"{place}/spec").write_bytes(pickle.dumps(LookupJoin(table, "name")))
        command = [sys.executable, "-c", _WORKER, f"{place}/spec", f"{place}/probes.parquet"]
        environment = {**os.environ, "TMPDIR": place}
        running: list[subprocess.Popen[str]] = []
        seconds = []
        for _ in range(2):
            running.append(subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                            env=environment))  # fmt: skip
            stdout = running[-1].stdout
            assert stdout is not None
            seconds.append(json.loads(stdout.readline())[0])
        found = []
        for one in running:
            assert one.stdin is not None
            assert one.stdout is not None
            one.stdin.write("\n")
            one.stdin.flush()
            found.append(json.loads(one.stdout.readline()))
        for one in running:
            one.communicate()
    return {"load_seconds": seconds[0], "map_seconds": seconds[1], "processes": found}


def mysql(rows: int, threads: int, database: str) -> dict[str, Any]:
    """Load the table from MySQL (HEADRACE_TEST_MYSQL) through lookup_join."""
    import headrace as hr

    from tests.servers.mysql import MySQLServer

    server = MySQLServer.from_variable(os.environ[MySQLServer.variable])
    login: dict[str, Any] = {
        "host": server.host, "port": server.port, "user": server.user, "password": server.password,
    }  # fmt: skip
    pipe = hr.stream("benchmark", "users")
    wanted = {"columns": ["id", *SCHEMA], "range_size": -(-rows // MYSQL_RANGES)}
    table = pipe.from_mysql("users", database=database, **login, **wanted).select(*SCHEMA)
    return _loaded(table, rows, threads, refresh=False)


def files(rows: int, threads: int, kind: str, place: str) -> dict[str, Any]:
    """Load the table from parquet or csv files, as ``_written_files`` wrote them, through lookup_join."""
    import headrace as hr

    pipe = hr.stream("benchmark", "users")
    if kind == "parquet":
        return _loaded(pipe.from_parquet(f"{place}/*.parquet"), rows, threads)
    table = pipe.from_file(f"{place}/*.csv", format="csv", header=True, schema=SCHEMA)
    return _loaded(table, rows, threads)


def _loaded(table: Any, rows: int, threads: int, *, refresh: bool = True) -> dict[str, Any]:
    """Load a table, then refresh it; tell seconds and memory of both."""
    from headrace_dimension.lookup_join import LookupJoin

    spec = LookupJoin(table, "name", threads=threads)
    figures: dict[str, Any] = {"before_mb": _resident_bytes() / 1e6}
    work = [("", spec.table), ("refresh_", spec.reload)]
    for what, load in work if refresh else work[:1]:
        if what:
            figures["resident_pages_touched_mb"] = _touched(spec.table())
        _forget_peak()
        begun, begun_cpu = time.perf_counter(), time.process_time()
        load()
        figures[f"{what}seconds"] = time.perf_counter() - begun
        figures[f"{what}cpu_seconds"] = time.process_time() - begun_cpu
        figures[f"{what}peak_mb"] = max(_peak_bytes(), _resident_bytes()) / 1e6
        figures[f"{what}resident_mb"] = _resident_bytes() / 1e6
    loaded = spec.table()
    assert loaded.height == rows
    return {**figures, "table_mb": loaded.bytes() / 1e6, "load": os.getloadavg()[0]}


def _touched(table: Any) -> float:
    """Read all of a table, as if all of its rows were in use; return the resident memory then, in MB."""
    for array in table.parts()[0].values():
        for buffer in array.buffers():
            if buffer is not None and buffer.size:
                np.frombuffer(buffer, dtype=np.uint8)[::4096].sum()
    return _resident_bytes() / 1e6


def _forget_peak() -> None:
    """Let Linux count the greatest memory of this process anew."""
    Path("/proc/self/clear_refs").write_text("5")


def _peak_bytes() -> int:
    """Return the greatest resident memory since ``_forget_peak``."""
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1]) * 1024


@contextmanager
def _written_files(rows: int, kind: str) -> Iterator[str]:
    """Write the table as four files of a kind; give their directory."""
    with tempfile.TemporaryDirectory(prefix="headrace-benchmark-") as place:
        frame = users(rows).drop("id")
        size = -(-rows // FILES)
        for number in range(FILES):
            part = frame[number * size : (number + 1) * size]
            if kind == "parquet":
                part.write_parquet(f"{place}/users-{number}.parquet")
            else:
                part.write_csv(f"{place}/users-{number}.csv")
        del frame, part
        yield place


@contextmanager
def _filled_server(rows: int) -> Iterator[str]:
    """Start a server with the table ``users`` in it and give its address as the variable has it."""
    import pymysql

    from tests.servers.mysql import MySQLOptions, MySQLServer
    from tests.servers.sharing import own_server

    with tempfile.TemporaryDirectory(prefix="headrace-benchmark-") as place, own_server(
        MySQLServer, MySQLOptions(config={"local-infile": "1", "innodb-buffer-pool-size": "1G"})
    ) as server:  # fmt: skip
        users(rows).write_csv(f"{place}/users.csv", include_header=False)
        connection = pymysql.connect(host=server.host, port=server.port, user=server.user, password=server.password,
                                     local_infile=True, autocommit=True)  # fmt: skip
        with connection, connection.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE {DATABASE} CHARACTER SET utf8mb4")
            cursor.execute(f"USE {DATABASE}")
            cursor.execute(
                "CREATE TABLE users (id BIGINT PRIMARY KEY, name VARCHAR(40) NOT NULL, `number` BIGINT, "
                "`group` VARCHAR(20), level BIGINT)"
            )
            cursor.execute(
                "LOAD DATA LOCAL INFILE %s INTO TABLE users FIELDS TERMINATED BY ',' (id, name, `group`, level, `number`)",
                (f"{place}/users.csv",),
            )
        yield server.to_variable()


def one(kind: str, *arguments: str, cores: list[int] | None = None, **environment: str) -> dict[str, Any]:
    """Run one measurement in a process of its own."""
    given = {"POLARS_MAX_THREADS": "1", **environment}
    taken = measure("benchmarks.dimension", kind, *arguments, cores=cores or [0], environment=given)
    return {**taken.figures, "peak_mb": taken.peak_rss_mb}


def main() -> None:
    if sys.argv[1:2] and sys.argv[1] in (*ALONE, "mysql", "files"):
        kind, rows, *rest = sys.argv[1:]
        if kind in ALONE:
            found = {"memory": memory, "dict": dict_, "polars": polars, "workers": workers}[kind](int(rows))
        elif kind == "mysql":
            found = mysql(int(rows), int(rest[0]), rest[1])
        else:
            found = files(int(rows), int(rest[0]), rest[1], rest[2])
        print(json.dumps(found))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--threads", type=int, nargs="*", default=[1, 2, 4])
    parser.add_argument("--only", nargs="*", choices=KINDS, default=KINDS)
    given = parser.parse_args()
    rows_text = str(given.rows)
    for kind in ALONE:
        if kind in given.only:
            print(kind, json.dumps(one(kind, rows_text, cores=[0, 1] if kind == "workers" else None)), flush=True)
    for kind in ("parquet", "csv"):
        if kind not in given.only:
            continue
        with _written_files(given.rows, kind) as place:
            for threads in given.threads:
                found = one("files", rows_text, str(threads), kind, place, cores=[0, 1])
                print(kind, threads, json.dumps(found), flush=True)
    if "mysql" not in given.only:
        return
    with _filled_server(given.rows) as variable:
        for threads in given.threads:
            found = one("mysql", rows_text, str(threads), DATABASE, cores=[0, 1], HEADRACE_TEST_MYSQL=variable)
            print("mysql", threads, json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
