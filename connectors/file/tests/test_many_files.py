"""A directory of very many small files: each is opened once, and what a job keeps of each is small."""

from __future__ import annotations

import os
import random
from collections import Counter
from pathlib import Path
from typing import Any

import headrace as hr
import pytest
from file_world import World, drain
from headrace.interfaces.sink import SinkBatch
from headrace.testing import MemorySink

from tests.effort import examples
from tests.eventually import eventually


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


class _Changing:
    """A directory whose files come, grow, are renamed and vanish; knows which rows a job has to give."""

    def __init__(self, directory: Path, seed: int) -> None:
        self._directory = directory
        self._chance = random.Random(seed)
        self._files: list[Path] = []
        self._halves: dict[Path, bytes] = {}
        self.count = 0
        directory.mkdir()

    def add(self, files: int) -> None:
        for _ in range(files):
            path = self._directory / f"{len(self._files):06d}.ndjson"
            path.write_bytes(self._line())
            self._files.append(path)

    def change(self, files: int) -> None:
        """Append to files, to every third a line in two halves; rename some; add some."""
        for number, path in enumerate(self._chance.sample(self._files, files)):
            line = self._line()
            begun = self._halves.pop(path, b"")
            if number % 3 == 0:
                self._halves[path] = line[4:]
                line = line[:4]
            with path.open("ab") as file:
                file.write(begun + line)
        for place in self._chance.sample(range(len(self._files)), files // 10):
            old = self._files[place]
            new = old.with_name(f"{old.stem}-again.ndjson")
            old.rename(new)
            self._files[place] = new
            if old in self._halves:
                self._halves[new] = self._halves.pop(old)
        self.add(files)

    def finish(self) -> None:
        """Write the second halves."""
        for path, rest in self._halves.items():
            with path.open("ab") as file:
                file.write(rest)
        self._halves.clear()

    def _line(self) -> bytes:
        self.count += 1
        return b'{"n": %d}\n' % (self.count - 1)


@pytest.mark.parametrize("whole", [500, pytest.param(100_000, marks=[pytest.mark.slow, pytest.mark.timeout(3600)])])
def test_a_large_directory_that_changes_while_a_job_runs(tmp_path: Path, whole: int) -> None:
    """Files are added, grow and are renamed while a job runs, and between two runs; each line is there once."""
    world, sink = _Changing(tmp_path / "in", seed=whole), MemorySink()
    world.add(whole)
    job = (
        hr.stream("tests", "changing")
        .from_file(str(tmp_path / "in"), format="json", schema={"n": "int64"}, list_interval="200 ms")
        .to(sink)
    )
    for _ in range(2):
        seen = len(sink.rows)
        handle = job.start("light", checkpoint=str(tmp_path / "state"), show_progress=False)
        try:
            eventually(lambda: len(sink.rows) > seen, "the job reads", seconds=600)  # noqa: B023
            for _ in range(3):
                world.change(whole // 50)
        finally:
            handle.stop()
        world.change(whole // 50)
    world.finish()
    job.run("light", checkpoint=str(tmp_path / "state"), show_progress=False)
    assert sorted(row["n"] for row in sink.rows) == list(range(world.count))
