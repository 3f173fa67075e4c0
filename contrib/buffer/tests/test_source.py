"""A source over a log keeps the contract of sources; jobs trim its log, and it is told what ends its listener."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Annotated, ClassVar

import headrace as hr
import pytest
from headrace.flow.schema import Schema
from headrace.testing import MemorySink
from headrace_buffer import BufferedSource, BufferedSourceSettings, Listener, RecordLog
from headrace_contract import SourceContract

from tests.eventually import eventually


class DatagramSettings(BufferedSourceSettings, frozen=True, kw_only=True):
    path: Annotated[str, hr.option("of the socket")]


class DatagramSource(BufferedSource):
    """Takes datagrams from a Unix socket: as few lines as a source that listens can have."""

    Settings = DatagramSettings

    def listen(self, log: RecordLog) -> Listener:
        return DatagramListener(log, self.settings.path)


class DatagramListener(Listener):
    def __init__(self, log: RecordLog, path: str) -> None:
        self.log, self.path = log, Path(path)
        self.error: Exception | None = None
        self.path.unlink(missing_ok=True)  # a process that was killed leaves it
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            self.socket.bind(path)
        except OSError:
            self.socket.close()
            raise
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self) -> None:
        while body := self.socket.recv(500_000):
            if body == b"fail":
                self.error = hr.JobError("the listener has ended")
                return
            self.log.append([body])

    def check(self) -> None:
        if self.error is not None:
            raise self.error

    def close(self) -> None:
        if self.thread.is_alive():
            send(self.path, b"")
        self.thread.join()
        self.socket.close()
        self.path.unlink()


def send(path: Path, body: bytes) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.connect(str(path))
        sender.send(body)


def make(directory: Path, **options: object) -> DatagramSource:
    given = {"buffer": str(directory / "buffer"), "path": str(directory / "socket"), **options}
    return DatagramSource(DatagramSettings.of(given))


class TestDatagramSource(SourceContract):
    several_queues = False
    odd_bodies: ClassVar[Sequence[bytes]] = (*SourceContract.odd_bodies[:-1], b"new\nline", b"x" * 100_000)
    many_writes = 5

    def make_source(self) -> DatagramSource:
        return make(self.tmp_path)

    def add_queue(self) -> str:
        return "buffer"

    def write(self, queue: str, bodies: Sequence[bytes]) -> None:
        source = self.make_source()
        reader = source.open(hr.Queue(queue), hr.EARLIEST)
        wanted = reader.latest + len(bodies)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.connect(str(self.tmp_path / "socket"))
            for body in bodies:
                sender.send(body)
        eventually(lambda: reader.latest == wanted, "everything is stored")
        source.close()

    def forget(self, queue: str, before: int) -> None:
        source = self.make_source()
        source.open(hr.Queue(queue), hr.EARLIEST)
        source.stored({hr.Queue(queue): hr.ReadPosition(before)})
        source.close()


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Callable[[MemorySink], hr.JobHandle]]:
    handles: list[hr.JobHandle] = []

    def start(sink: MemorySink) -> hr.JobHandle:
        stream = hr.stream("tests", "datagrams").from_(make(tmp_path), format="json", schema={"n": "int64"})
        handles.append(stream.to(sink).start("light", checkpoint=str(tmp_path / "state"), checkpoint_interval="100 ms"))
        return handles[-1]

    yield start
    for handle in handles:
        handle.stop()


def test_a_job_goes_on_after_a_stop_and_trims_what_is_stored(
    tmp_path: Path, running: Callable[[MemorySink], hr.JobHandle]
) -> None:
    sink = MemorySink()
    handle = running(sink)
    eventually((tmp_path / "socket").exists, "it listens")
    for number in range(10):
        send(tmp_path / "socket", b'{"n": %d}' % number)
    eventually(lambda: len(sink.rows) == 10, "the rows are stored")
    handle.stop()
    assert not (tmp_path / "socket").exists()
    handle = running(sink)
    eventually((tmp_path / "socket").exists, "it listens")
    send(tmp_path / "socket", b'{"n": 10}')
    eventually(lambda: len(sink.rows) == 11, "the new row is stored")
    handle.stop()
    assert sorted(row["n"] for row in sink.rows) == list(range(11))
    with RecordLog(tmp_path / "buffer") as log:
        assert (log.earliest, log.latest) == (11, 11)


class AwaySink(MemorySink):
    """A receiver that cannot be reached when the job starts."""

    def __init__(self) -> None:
        super().__init__()
        self.is_there = threading.Event()

    def prepare(self, schema: Schema | None) -> None:
        if not self.is_there.is_set():
            raise hr.RetriableError("the receiver is away")
        super().prepare(schema)


def test_it_listens_before_the_receiver_is_there(tmp_path: Path, running: Callable[[MemorySink], hr.JobHandle]) -> None:
    sink = AwaySink()
    with ThreadPoolExecutor(1) as pool:
        starting = pool.submit(running, sink)
        eventually((tmp_path / "socket").exists, "it listens")
        for n in range(5):
            send(tmp_path / "socket", b'{"n": %d}' % n)
        assert not starting.done()
        sink.is_there.set()
        handle = starting.result()
    eventually(lambda: len(sink.rows) == 5, "what was sent before is stored")
    handle.stop()
    assert [row["n"] for row in sink.rows] == list(range(5))


def test_a_job_whose_receiver_stays_away_listens_no_more(tmp_path: Path) -> None:
    stream = hr.stream("tests", "away").from_(make(tmp_path), format="json", schema={"n": "int64"})
    with pytest.raises(hr.RetriableError, match="the receiver is away"):
        stream.to(AwaySink()).start("light", checkpoint=tmp_path / "state", start_timeout="0 s")
    assert not (tmp_path / "socket").exists()
    RecordLog(tmp_path / "buffer").close()


def test_a_run_to_the_end_reads_what_is_there_and_does_not_listen(tmp_path: Path) -> None:
    with RecordLog(tmp_path / "buffer") as log:
        log.append([b'{"n": 1}', b'{"n": 2}'])
    source = make(tmp_path)
    source.listen = None  # type: ignore[assignment,method-assign]
    stream = hr.stream("tests", "datagrams").from_(source, format="json", schema={"n": "int64"})
    assert stream.collect()["n"].to_list() == [1, 2]


def test_what_ends_the_listener_ends_the_job(tmp_path: Path, running: Callable[[MemorySink], hr.JobHandle]) -> None:
    handle = running(MemorySink())
    eventually((tmp_path / "socket").exists, "it listens")
    send(tmp_path / "socket", b"fail")
    with pytest.raises(hr.JobFailedError) as failed:
        handle.wait()
    assert "the listener has ended" in str(failed.value.__cause__)


def test_another_source_in_the_process_is_refused(tmp_path: Path) -> None:
    one, other = make(tmp_path), make(tmp_path, when_full="drop_newest")
    one.open(hr.Queue("buffer"), hr.EARLIEST)
    with pytest.raises(hr.JobError, match="is used by another source in this process"):
        other.open(hr.Queue("buffer"), hr.EARLIEST)
    one.close()
    other.open(hr.Queue("buffer"), hr.EARLIEST)
    other.close()


def test_a_listener_that_cannot_listen_leaves_nothing_open(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        make(tmp_path, path=str(tmp_path / "missing" / "socket")).open(hr.Queue("buffer"), hr.EARLIEST)
    RecordLog(tmp_path / "buffer").close()


def test_positions_of_a_log_that_was_made_anew_are_refused(tmp_path: Path) -> None:
    with RecordLog(tmp_path / "buffer") as log:
        log.append([b"a"] * 3)
        name = log.id
    source = make(tmp_path)
    with pytest.raises(hr.DataError, match="belongs to another buffer"):
        source.open(hr.Queue("buffer"), hr.ReadPosition(2, {"log": "0" * 32}))
    assert source.open(hr.Queue("buffer"), hr.ReadPosition(2, {"log": name})).position.offset == 2
    source.close()


def test_a_reader_goes_on_behind_dropped_records_and_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    source = make(tmp_path, when_full="drop_oldest", buffer_max_bytes="64 KiB")
    source.use_run(until="end")
    reader = source.open(hr.Queue("buffer"), hr.EARLIEST)
    with RecordLogOf(source) as log:
        for _ in range(100):
            log.append([b"x" * 1000])
        earliest = log.earliest
    batch = reader.poll(1, timedelta(0))
    assert batch is not None
    assert batch.offsets.tolist() == [earliest]
    assert f"records 0 to {earliest - 1} were dropped before they were read" in caplog.text
    source.close()


class RecordLogOf:
    """The open log of a source."""

    def __init__(self, source: BufferedSource) -> None:
        assert source._shared is not None
        self.log = source._shared.log

    def __enter__(self) -> RecordLog:
        return self.log

    def __exit__(self, *_: object) -> None:
        pass


def test_damage_sets_the_queue_aside(tmp_path: Path) -> None:
    with RecordLog(tmp_path / "buffer", quota_bytes=64 * 1024) as log:
        for _ in range(20):
            log.append([b"x" * 1000])
    file = min((tmp_path / "buffer").glob("*.log"))
    data = bytearray(file.read_bytes())
    data[-10] ^= 1
    file.write_bytes(data)
    source = make(tmp_path, buffer_max_bytes="64 KiB")
    source.use_run(until="end")
    reader = source.open(hr.Queue("buffer"), hr.EARLIEST)
    batch = reader.poll(100, timedelta(0))
    assert batch is not None
    with pytest.raises(hr.BrokenQueueError, match="is damaged"):
        reader.poll(100, timedelta(0))
    source.close()
