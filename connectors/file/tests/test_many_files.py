"""A directory of very many small files: each is opened once, and what a job keeps of each is small."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import headrace as hr
import pytest
from file_world import World, drain
from headrace.interfaces.sink import SinkBatch
from headrace.testing import MemorySink

from tests.effort import examples


def test_a_file_is_opened_once_to_be_counted_and_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path)
    world.write("log", b"1\n2\n3\n")
    source = world.source()
    calls: Counter[str] = Counter()

    def counted(name: str) -> None:
        plain = getattr(os, name)

        def call(place: Any, *arguments: Any, **options: Any) -> Any:
            calls[name] += name != "open" or str(place) == str(world.path("log"))
            return plain(place, *arguments, **options)

        monkeypatch.setattr(os, name, call)

    for name in ("open", "pread"):
        counted(name)
    reader = world.open(source)
    assert reader.latest == 3
    assert drain(reader).bodies == [b"1", b"2", b"3"]
    assert calls["open"] == 1
    assert calls["pread"] <= 14
    world.append("log", b"4\n")
    assert reader.latest == 4
    assert drain(reader).bodies == [b"4"]
    assert calls["open"] <= 3
    world.close()


def test_counting_keeps_no_more_files_open_than_it_may(tmp_path: Path) -> None:
    world = World(tmp_path)
    for number in range(30):
        world.write(f"{number}.log", b"1\n")
    source = world.source("*.log", max_open_files=3)
    readers = [world.open(source, name) for name in world.names(source)]

    def opened() -> int:
        places = [os.path.join("/proc/self/fd", each) for each in os.listdir("/proc/self/fd")]
        return sum(os.path.realpath(place).startswith(str(tmp_path)) for place in places)

    for _ in range(2):
        assert [reader.latest for reader in readers] == [1] * 30
        assert opened() <= 4
        for reader in readers:
            drain(reader)
        assert opened() <= 4
    world.close()


class _Counting(MemorySink):
    """Keeps the sum of the rows alone: very many frames would be most of the memory."""

    def batch_insert(self, batch: SinkBatch) -> None:
        self.rows.append({"rows": len(batch), "sum": batch.frame["n"].sum()})


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_directory_of_100_000_files(tmp_path: Path) -> None:
    count = examples(100_000)
    (tmp_path / "in").mkdir()
    for number in range(count):
        (tmp_path / "in" / f"{number:06d}.ndjson").write_text(f'{{"n": {number}}}\n')
    sink = _Counting()

    def run() -> None:
        job = hr.stream("tests", "many").from_file(str(tmp_path / "in"), format="json", schema={"n": "int64"}).to(sink)
        job.run(backend="light", checkpoint=str(tmp_path / "state"), show_progress=False)

    run()
    assert sum(row["rows"] for row in sink.rows) == count
    assert sum(row["sum"] for row in sink.rows) == count * (count - 1) // 2
    stored = sum(path.stat().st_size for path in (tmp_path / "state").rglob("*") if path.is_file())
    assert stored < 400 * count + 100_000
    with (tmp_path / "in" / "000000.ndjson").open("a") as file:
        file.write('{"n": 7}\n')
    seen = len(sink.rows)
    run()  # from the checkpoint: only what was added
    assert sum(row["rows"] for row in sink.rows[seen:]) == 1
