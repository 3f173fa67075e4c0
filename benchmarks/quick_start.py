"""How long a shard takes to answer that begins with a stored state: all of it first, or with quick start.

    python -m benchmarks.quick_start [--keys 1000000] [--kind int64|string] [--rounds 3] [--deltas 0]

A running count by key is stored in MariaDB, in one snapshot and so many deltas of one per cent of the keys. A new shard then
begins with it and is given one entry with 64 of the keys. Shown are seconds of the clock, and of the process's CPU, until it has
answered, until it has all of its state, and how long a step of restoring takes at most; both ways in turn, in one process.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import headrace as hr
import numpy as np
import polars as pl
import pymysql
from headrace.flow.messages import INDEX, OFFSET, Queue
from headrace.runtime.shard import Shard
from headrace.runtime.shuffle import ShardMessage
from headrace.testing import MemorySink, MemorySource
from headrace_light.stages.shard_storage import ShardStorage
from headrace_mysql import MySQLStateSettings, MySQLStateStore

from tests.servers.mysql import MySQLServer
from tests.servers.sharing import own_server

_UPSTREAM = Queue("0", "source")
_FILL_ROWS = 500_000
_PROBES = 64
_AFTER_ALL = 10**12


@dataclass
class Case:
    """Shards that count rows by key, and what they are given."""

    kind: str
    keys: int

    def __post_init__(self) -> None:
        stream = hr.stream("benchmark", "quick_start").from_(
            MemorySource({"q": []}), format="json", schema={"k": self.kind}
        )
        self.plan = stream.key_by("k").agg(n="count(*)").to(MemorySink()).plan()

    def shard(self) -> Shard:
        return Shard(self.plan, next(iter(self.plan.shuffles)), 0)

    def entry(self, numbers: Any, first: int) -> list[ShardMessage]:
        """Return an entry of these keys, whose rows are numbered from ``first``."""
        keys = pl.Series("k", numbers)
        if self.kind == "string":
            keys = pl.select(pl.format("user-{}-abcdef", keys).alias("k")).to_series()
        places = pl.Series(OFFSET, first + np.arange(len(numbers)))
        indexes = pl.Series(INDEX, np.zeros(len(numbers), dtype=np.int32))
        return [ShardMessage("rows", _UPSTREAM, 0, frame=pl.DataFrame([places, indexes, keys]))]

    def fill(self) -> Iterator[list[ShardMessage]]:
        for begin in range(0, self.keys, _FILL_ROWS):
            yield self.entry(np.arange(begin, min(self.keys, begin + _FILL_ROWS)), begin + 1)


def stored(case: Case, storage: ShardStorage, deltas: int) -> tuple[float, float]:
    """Store a state; return the seconds that the snapshot took, of the clock and of CPU."""
    shard = case.shard()
    for number, entry in enumerate(case.fill()):
        shard.process(number, 0, entry)
    begun, cpu = time.perf_counter(), time.process_time()
    storage.save(shard, 0, whole=True)
    took = time.perf_counter() - begun, time.process_time() - cpu
    random = np.random.default_rng(1)
    for delta in range(1, deltas + 1):
        some = random.choice(case.keys, case.keys // 100, replace=False)
        shard.process(1000 + delta, 0, case.entry(some, delta * 10**9))
        storage.save(shard, delta)
    return took


def begun(case: Case, storage: ShardStorage) -> tuple[float, float, float, float]:
    """Begin with the stored state; return the seconds until the answer, its CPU, until all is here, and of the longest step."""
    shard = case.shard()
    start, cpu = time.perf_counter(), time.process_time()
    storage.load(shard)
    output = shard.process(10**6, 0, case.entry(np.arange(_PROBES) * 7919 % case.keys, _AFTER_ALL))
    assert output.deliveries[0].batch.frame.height == 2 * _PROBES  # before and after
    answered, answered_cpu = time.perf_counter() - start, time.process_time() - cpu
    longest = 0.0
    while shard.restoring:
        step = time.perf_counter()
        shard.restore_some()
        longest = max(longest, time.perf_counter() - step)
    assert shard.state_rows() == case.keys
    return answered, answered_cpu, time.perf_counter() - start, longest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--kind", choices=["int64", "string"], default="int64")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--deltas", type=int, default=0)
    given = parser.parse_args()
    case = Case(given.kind, given.keys)
    with own_server(MySQLServer) as server:
        place = {"host": server.host, "port": server.port, "user": server.user, "password": server.password}
        with pymysql.connect(**place, autocommit=True) as connection, connection.cursor() as cursor:
            cursor.execute("CREATE DATABASE quick_start")

        def storage(quick: bool) -> ShardStorage:
            options = {**place, "database": "quick_start", "job": f"quick={quick}"}
            return ShardStorage(MySQLStateStore(MySQLStateSettings.of(options, plugin="mysql")), quick_start=quick)

        for quick in (False, True):
            each = storage(quick)
            clock, cpu = stored(case, each, given.deltas)
            each.close()
            print(
                f"quick start {'on' if quick else 'off'}: snapshot stored in {clock:.2f} s, {cpu:.2f} s of CPU",
                flush=True,
            )
        found: dict[bool, list[tuple[float, ...]]] = {False: [], True: []}
        for _ in range(given.rounds):
            for quick in (False, True):
                each = storage(quick)
                found[quick].append(begun(case, each))
                each.close()
    for quick, rounds in found.items():
        answered, cpu, whole, longest = (statistics.median(values) for values in zip(*rounds, strict=True))
        print(
            f"{given.keys:,} keys ({given.kind}), {given.deltas} deltas, quick start {'on' if quick else 'off'}: first answer after "
            f"{answered:.3f} s ({cpu:.3f} s of CPU), all after {whole:.2f} s, longest step {longest:.3f} s; load {os.getloadavg()[0]:.0f}"
        )


if __name__ == "__main__":
    main()
