"""Streams that are trimmed under a running job and between two runs: the job stops, says how many entries are lost, and can go on."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import headrace as hr
import pytest
from headrace.foundation.errors import HeadraceError
from headrace.interfaces.sink import SinkBatch
from headrace.testing import MemorySink
from redis_world import add, make_source

from tests.eventually import eventually
from tests.servers.redis import RedisServer

pytestmark = pytest.mark.servers


class _Held(MemorySink):
    """Keeps the job waiting after the first rows until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.go_on = threading.Event()

    def batch_insert(self, batch: SinkBatch) -> None:
        super().batch_insert(batch)
        self.go_on.wait()


class _Stream:
    """A stream, and the jobs that read it."""

    def __init__(self, client: Any, server: RedisServer, name: str, directory: Path) -> None:
        self._client, self._server, self._name, self._directory = client, server, name, directory
        self.ids: list[str] = []

    def add(self, count: int) -> None:
        begin = len(self.ids)
        self.ids += add(self._client, self._name, [b'{"n": %d}' % n for n in range(begin, begin + count)])

    def trim(self, kept: int) -> None:
        self._client.xtrim(self._name, maxlen=kept, approximate=False)

    def job(self, sink: MemorySink) -> hr.Job:
        source = make_source(self._server, self._name)
        read = hr.stream("tests", "trimmed").from_(source, format="json", schema={"n": "int64"})
        return read.to(sink)

    def run(self, sink: MemorySink, checkpoint: str) -> None:
        self.job(sink).run(
            "light", checkpoint=str(self._directory / checkpoint), max_batch_records=10, show_progress=False
        )

    def expect_counted(self, error: HeadraceError, kept: int) -> int:
        """Expect that the entries read, those that are said to be lost and those that are left are all; return the lost ones."""
        text = str(error)
        assert f"stream {self._name!r}" in text
        assert "to continue with the entries that are left, start with a new checkpoint directory" in text
        [last] = re.findall(r"read up to entry (\S+) ", text)
        [lost] = re.findall(r"(\d+) entries from there on were removed", text)
        assert self.ids.index(last) + 1 + int(lost) + kept == len(self.ids)
        return int(lost)


@pytest.fixture
def stream(
    client: Any, redis_server: RedisServer, fresh_name: Callable[[str], str], tmp_path: Path
) -> Iterator[_Stream]:
    name = fresh_name("trimmed")
    yield _Stream(client, redis_server, name, tmp_path)
    client.delete(name)


def test_between_two_runs(stream: _Stream) -> None:
    sink = MemorySink()
    stream.add(30)
    stream.run(sink, "state")
    stream.add(500)
    stream.trim(100)
    for _ in range(2):  # it is the same the next time
        with pytest.raises(HeadraceError) as raised:
            stream.run(sink, "state")
        assert stream.expect_counted(raised.value, kept=100) == 400
    assert [row["n"] for row in sink.rows] == list(range(30))
    stream.run(sink, "new")
    assert [row["n"] for row in sink.rows] == [*range(30), *range(430, 530)]


def test_under_a_job_that_is_slower_than_the_producer(stream: _Stream, tmp_path: Path) -> None:
    sink = _Held()
    stream.add(20)
    handle = stream.job(sink).start(
        "light", checkpoint=str(tmp_path / "state"), max_batch_records=5, retry_timeout="0 s", show_progress=False
    )
    try:
        eventually(lambda: len(sink.rows) > 0, "the first rows come")
        for _ in range(20):
            stream.add(50)
            stream.trim(70)
        sink.go_on.set()
        eventually(lambda: handle.status().error is not None, "the job stops")
        error = handle.status().error
    finally:
        sink.go_on.set()
        handle.stop()
    assert error is not None
    lost = int(re.findall(r"(\d+) entries from there on were removed", str(error))[0])
    assert 930 <= lost <= 950
    assert {row["n"] for row in sink.rows} <= set(range(20))
    with pytest.raises(HeadraceError) as raised:
        stream.run(sink, "state")
    assert stream.expect_counted(raised.value, kept=70) >= lost
    stream.run(sink, "new")
    assert {row["n"] for row in sink.rows} >= set(range(950, 1020))
