"""What nodes hold is found in their objects: arrays, columns, containers; what several hold once, what is mapped not at all."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import headrace as hr
import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from headrace.testing import MemorySink
from headrace_light.held_memory import bytes_by_name
from headrace_light.memory_budget import MemoryBudget
from headrace_light.process_memory import private_bytes

MIB = 2**20


class _Thing:
    def __init__(self, held: Any) -> None:
        self._held = held


class _Slotted:
    __slots__ = ("_held", "_not_set")

    def __init__(self, held: Any) -> None:
        self._held = held


@pytest.mark.parametrize(
    "held",
    [
        np.zeros(MIB // 8),
        np.zeros(MIB // 8)[10:],
        pl.Series([0] * (MIB // 8)),
        pa.array([0] * (MIB // 8)),
        b"x" * MIB,
        {n: np.zeros(MIB // 8 // 1000) for n in range(1000)},
        [_Slotted(bytes(MIB // 2000)) for _ in range(2000)],
    ],
    ids=["array", "view", "polars", "arrow", "bytes", "dict", "list"],
)
def test_what_an_object_holds_is_found(held: Any) -> None:
    found = bytes_by_name([("a", _Thing({"deep": [_Slotted(held)]})), ("b", _Thing(0))])
    assert found["a"] == pytest.approx(MIB, rel=0.25)
    assert found.get("b", 0) < 1000


def test_what_two_nodes_hold_counts_once_and_a_circle_ends() -> None:
    table = np.zeros(MIB // 8)
    one, other = _Thing(table), _Thing([table, table[3:]])
    one.other, other.other = other, one  # type: ignore[attr-defined]
    found = bytes_by_name([("one", one), ("other", other), ("one", _Thing(table))])
    assert sum(found.values()) == pytest.approx(MIB, rel=0.1)


def test_pages_of_mapped_files_do_not_count(tmp_path: Path) -> None:
    mapped = np.memmap(tmp_path / "file", dtype=np.uint8, mode="w+", shape=(MIB,))
    assert bytes_by_name([("a", _Thing(mapped))]).get("a", 0) < 10_000


def test_private_memory_of_a_process_is_known_until_it_ends() -> None:
    assert private_bytes(os.getpid()) > MIB
    process = subprocess.Popen([sys.executable, "-c", "pass"])
    process.wait()
    assert private_bytes(process.pid) == 0


@pytest.mark.parametrize("workers", [1, 2])
def test_a_job_tells_what_its_nodes_and_workers_hold(
    workers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "in.ndjson"
    path.write_bytes(b"".join(b'{"k": %d}\n' % n for n in range(30_000)))
    told: list[dict[str, int]] = []
    check = MemoryBudget.check

    def checked(self: MemoryBudget, held: Any = None) -> None:
        check(self, held)
        told.append({**held.by_node(), "workers": held.in_workers()})

    monkeypatch.setattr(MemoryBudget, "check", checked)
    stream = hr.stream("test", "held").from_file(path, format="json", schema={"k": "int64"})
    job = stream.key_by("k").distinct().to(MemorySink())
    job.run("light", memory_max_bytes="8 GiB", workers=workers, max_batch_records=3_000, until="end")
    most = {name: max(each.get(name, 0) for each in told) for name in told[-1]}
    (aggregate,) = [size for name, size in most.items() if size > 30_000 * 16 and name != "workers"]
    assert aggregate < 100 * MIB
    assert (most["workers"] > 0) == (workers == 2)  # it may have only begun
