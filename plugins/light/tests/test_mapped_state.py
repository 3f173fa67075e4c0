"""Joins, windows and first rows with a limit for the memory of their state: the same results after any kill, from any checkpoint."""

from __future__ import annotations

import json
import random
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import headrace.interfaces.mapped_memory as mapped_memory
import pytest
from headrace.interfaces.mapped_memory import MappedMemory
from headrace_light import storing_behind
from killed_programs import kill_at
from light_mapped_job import run

from tests.effort import often_or_slow

OFTEN = ["shard.after_save"]
PLACES = ["shard.after_process", "shard.after_save", "checkpoint.after_save", "shard.after_settle"]
Rows = list[tuple[Any, ...]]


@pytest.fixture(autouse=True)
def _everything_is_mapped() -> Iterator[None]:
    before = mapped_memory._LEAST_BYTES, storing_behind.BEHIND_ROWS_MIN
    yield
    mapped_memory._LEAST_BYTES, storing_behind.BEHIND_ROWS_MIN = before


def write_input(directory: Path, *, records: int = 3_000, keys: int = 900, seed: int = 1) -> None:
    rng = random.Random(seed)
    (directory / "input").mkdir(parents=True, exist_ok=True)
    with (directory / "input" / f"orders-{seed}.ndjson").open("w") as file:
        for number in range(records):
            # Values differ, so that a row of the join has a key.
            value, second = seed * 1_000_000 + number, rng.randrange(seed * 600, seed * 600 + 600)
            ts = f"2026-05-06 {second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}"
            file.write(json.dumps({"k": f"user-{rng.randrange(keys)}", "v": value, "ts": ts}) + "\n")
    with (directory / "input" / f"people-{seed}.ndjson").open("w") as file:
        for key in rng.sample(range(keys), keys // 2):
            if seed == 1 or key % 7 == seed:
                file.write(
                    json.dumps({"k": f"user-{key}", "name": f"a name of user {key}, which is long {seed}"}) + "\n"
                )


def rows_of(directory: Path, *tables: str) -> list[Rows]:
    with sqlite3.connect(directory / "out.db") as database:
        return [sorted(database.execute(f"select * from {table}").fetchall(), key=repr) for table in tables]  # noqa: S608


def wanted_of(directory: Path) -> list[Rows]:
    """Return what the tables come to, by plain Python."""
    orders: list[dict[str, Any]] = []
    names: dict[str, list[str]] = {}
    for path in sorted((directory / "input").iterdir()):
        for line in path.read_text().splitlines():
            row = json.loads(line)
            if "v" in row:
                orders.append(row)
            else:
                names.setdefault(row["k"], []).append(row["name"])
    windows: dict[tuple[str, str], tuple[int, int]] = {}
    for each in orders:
        place = each["k"], each["ts"][:-2] + "00"
        n, s = windows.get(place, (0, 0))
        windows[place] = n + 1, s + each["v"]
    latest = {each["k"]: each["v"] for each in sorted(orders, key=lambda each: each["v"])}
    joined = {(each["k"], each["v"]) for each in orders}
    return [
        sorted(joined, key=repr),
        sorted(((k, n, s, w) for (k, w), (n, s) in windows.items()), key=lambda row: repr((row[0], row[3][:16]))),
        sorted(latest.items(), key=repr),
    ]


def check(directory: Path) -> None:
    joined, windows, latest = rows_of(directory, "joined", "windows", "latest")
    wanted = wanted_of(directory)
    assert [(k, v) for k, v, *_ in joined] == wanted[0]
    assert sorted((k, n, s, w[:16]) for k, n, s, w in windows) == sorted((k, n, s, w[:16]) for k, n, s, w in wanted[1])
    assert latest == wanted[2]
    lines = [line for path in (directory / "input").glob("people*") for line in path.read_text().splitlines()]
    known = {json.loads(line)["k"] for line in lines}
    assert all((name is not None) == (k in known) for k, _, _, name in joined)


def test_results_are_the_same_with_any_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frames: list[int] = []
    real = MappedMemory.frame

    def counted(self: MappedMemory, frame: Any) -> Any:
        made = real(self, frame)
        frames.append(made is not frame)
        return made

    monkeypatch.setattr(MappedMemory, "frame", counted)
    for seed, memory in enumerate(("1 MB", None, "1 MB", "64 MB"), start=1):
        write_input(tmp_path, seed=seed, records=3_000 if seed == 1 else 400)
        frames.clear()
        run(tmp_path, state_memory=memory)
        check(tmp_path)
        assert (sum(frames) > 20) == (memory is not None)


@pytest.mark.parametrize("place", often_or_slow(PLACES, OFTEN))
def test_a_kill_anywhere(tmp_path: Path, place: str) -> None:
    write_input(tmp_path)
    kill_at("light_mapped_job.py", tmp_path, place, (2,) if place in OFTEN else (2, 3, 2))
    check(tmp_path)


def test_worker_processes(tmp_path: Path) -> None:
    write_input(tmp_path, records=1_500)
    run(tmp_path, workers=2)
    check(tmp_path)
