"""Files of a web server: the contract of sources, outages, servers without ranges, and how often the server is asked."""

from __future__ import annotations

import gzip
import itertools
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import headrace as hr
import pytest
from headrace.testing import MemorySink
from headrace_contract import SourceContract
from headrace_file import FileSinkSettings, FileSource, FileSourceSettings

from tests.remote_servers import WebServer

pytest.importorskip("aiohttp")


def source(path: str | Sequence[str], **options: Any) -> FileSource:
    given: Mapping[str, Any] = {"path": path, "list_interval": 0, "rotate_wait": 0, **options}
    return FileSource(FileSourceSettings.of(given, plugin="file"))


@pytest.fixture
def web(tmp_path: Path) -> Iterator[WebServer]:
    (tmp_path / "web").mkdir()
    server = WebServer(tmp_path / "web")
    yield server
    server.stop()


def read(reader: hr.Reader, count: int = 1_000) -> list[bytes]:
    raw = reader.poll(count, timedelta(0))
    return [] if raw is None else list(raw.bodies or ())


@pytest.mark.slow
class TestFilesOfAWebServer(SourceContract):
    plugin = "file"
    many_writes = 5

    @pytest.fixture(autouse=True)
    def web(self, tmp_path: Path) -> Iterator[None]:
        (tmp_path / "web").mkdir()
        self.server = WebServer(tmp_path / "web")
        self.numbers = itertools.count()
        yield
        self.server.stop()

    def make_source(self) -> FileSource:
        return source(f"{self.server.url}/")

    def make_missing_source(self) -> FileSource:
        return source(f"{self.server.url}/nowhere/a.ndjson")

    def add_queue(self) -> str:
        name = f"{next(self.numbers)}.ndjson"
        (self.server.directory / name).touch()
        return f"{self.server.url}/{name}"

    def write(self, queue: str, bodies: Sequence[bytes]) -> None:
        with (self.server.directory / queue.rpartition("/")[2]).open("ab") as file:
            file.write(b"".join(body + b"\n" for body in bodies))

    def remove_queue(self, queue: str) -> None:
        (self.server.directory / queue.rpartition("/")[2]).unlink()

    def begin_outage(self) -> None:
        self.server.status = 503

    def end_outage(self) -> None:
        self.server.status = None


@pytest.mark.parametrize("recursive", [True, False])
def test_a_directory_without_files_is_waited_in(web: WebServer, recursive: bool) -> None:
    made = source(f"{web.url}/", recursive=recursive)
    assert not made.queues()
    (web.directory / "a.ndjson").write_bytes(b"1\n")
    assert [queue.name for queue in made.queues()] == [f"{web.url}/a.ndjson"]
    (web.directory / "a.ndjson").unlink()
    assert not made.queues()


def test_ranges_offsets_and_compression(web: WebServer) -> None:
    lines = [b'{"n": %d}' % number for number in range(3_000)]
    (web.directory / "a.ndjson").write_bytes(b"\n".join(lines) + b"\n")
    (web.directory / "b.ndjson.gz").write_bytes(gzip.compress(b"\n".join(lines) + b"\n"))
    for ranges in (True, False):
        web.ranges = ranges
        for name in ("a.ndjson", "b.ndjson.gz"):
            made = source(f"{web.url}/{name}")
            [queue] = made.queues()
            assert queue.name == f"{web.url}/{name}"
            reader = made.open(queue, hr.EARLIEST)
            assert reader.latest == 3_000
            assert read(reader, 1_000) == lines[:1_000]
            position = reader.position
            made.close()
            again = source(f"{web.url}/{name}")
            again.restore({queue: position})
            reader = again.open(queue, position)
            end = reader.position_after(500)
            reader.limit(end)
            assert read(reader) == lines[1_000:1_500]
            assert reader.position == end
            again.close()


def test_small_files_cost_few_requests(web: WebServer) -> None:
    for number in range(20):
        (web.directory / f"{number:02}.ndjson").write_bytes(b'{"n": %d}\n' % number)
    made, sink = source(f"{web.url}/", list_interval="1 h"), MemorySink()
    stream = hr.stream("tests", "web").from_(made, format="json", schema={"n": "int64"})
    stream.to(sink).run("light", show_progress=False)
    assert sorted(row["n"] for row in sink.rows) == list(range(20))
    # Per file: its status, and, to count and to read it, its bytes with a look whether it is still the same.
    assert len(web.requests) <= 20 * 7 + 5, web.requests[:30]


def test_an_idle_file_is_asked_for_once_in_the_interval(web: WebServer) -> None:
    (web.directory / "a.ndjson").write_bytes(b"1\n")
    made = source(f"{web.url}/a.ndjson", list_interval="1 h")
    [queue] = made.queues()
    reader = made.open(queue, hr.EARLIEST)
    assert read(reader) == [b"1"]
    seen = len(web.requests)
    for _ in range(50):
        made.queues()
        assert read(reader) == []
    assert len(web.requests) == seen
    made.close()


def test_a_server_that_is_away_is_no_missing_file(web: WebServer) -> None:
    (web.directory / "a.ndjson").write_bytes(b"1\n")
    made = source(f"{web.url}/a.ndjson")
    web.status = 500
    with pytest.raises(hr.RetriableError, match="cannot list"):
        made.queues()
    web.status = 403
    with pytest.raises(hr.JobError, match="cannot list"):
        source(f"{web.url}/a.ndjson").queues()
    web.status = None
    [queue] = made.queues()
    reader = made.open(queue, hr.EARLIEST)
    web.status = 500
    with pytest.raises(hr.RetriableError):
        read(reader)
    with pytest.raises(hr.RetriableError):
        made.queues()
    web.status = None
    assert read(reader) == [b"1"]
    web.status = 404
    assert made.queues() == ()
    web.status = None
    with (web.directory / "a.ndjson").open("ab") as file:
        file.write(b"2\n")
    assert made.queues() == (queue,)
    assert read(reader) == [b"2"]
    made.close()


def test_a_file_that_is_replaced_or_shortened(web: WebServer) -> None:
    path = web.directory / "a.ndjson"
    path.write_bytes(b"1\n2\n")
    made = source(f"{web.url}/a.ndjson")
    [queue] = made.queues()
    reader = made.open(queue, hr.EARLIEST)
    assert read(reader) == [b"1", b"2"]
    path.write_bytes(b"other\n")
    made.queues()
    assert read(reader) == [b"other"]
    assert reader.position.offset == 3
    path.write_bytes(b"")
    made.queues()
    assert read(reader) == []
    path.write_bytes(b"again\n")
    made.queues()
    assert read(reader) == [b"again"]
    made.close()


def test_what_paths_may_say(web: WebServer, monkeypatch: pytest.MonkeyPatch) -> None:
    for path, message in (
        (f"{web.url}/a?signature=1", "may be a secret"),
        ("sftp://me:pass@host/a", "password in a path"),
        ("file:///tmp/a", "is a local file"),
        ("s4://bucket/a", "no installed package reads s4://"),
        ("s3:///a", "names no bucket"),
        ((f"{web.url}/a", "/tmp/b"), "different schemes"),
    ):
        with pytest.raises(hr.OptionError, match=message):
            source(path).check()
    with pytest.raises(hr.OptionError, match="looks like a secret"):
        source("s3://bucket/a", storage_options={"secret": "hunter2"}).check()
    source("s3://bucket/a", storage_options={"token": "anon"}).check()  # a way to log in, not a secret
    with pytest.raises(hr.OptionError, match="on local files"):
        source("/tmp/a", storage_options={"key": "x"}).check()
    with pytest.raises(hr.OptionError, match="the sink does not write to s3://"):
        FileSinkSettings.of({"path": "s3://bucket/out"}, plugin="file")
    monkeypatch.setattr("headrace_remotefiles.remote_files.find_spec", lambda name: None)
    with pytest.raises(hr.MissingPluginError, match="needs the package aiohttp"):
        source(f"{web.url}/a").check()
