"""A log takes records, gives them back by their offset, keeps to its quota, and says what it dropped."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
from headrace.foundation.clock import ManualClock
from headrace.foundation.errors import DataError, JobError, OptionError, RetriableError
from headrace_buffer import Appended, BufferFullError, Gap, RecordLog
from headrace_buffer import segment as segment_module

KIB = 1024
NO_WAIT = timedelta(0)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[RecordLog]:
    with RecordLog(tmp_path / "log", clock=ManualClock(1000)) as made:
        yield made


def small(path: Path, when_full: str = "block") -> RecordLog:
    return RecordLog(path / "log", quota_bytes=64 * KIB, when_full=when_full, clock=ManualClock(1000))  # type: ignore[arg-type]


def fill(log: RecordLog, count: int) -> None:
    """Append records of 1 KiB, one by one."""
    for _ in range(count):
        log.append([b"x" * KIB], timeout=NO_WAIT)


def bodies_of(log: RecordLog, offset: int = 0, count: int = 1000) -> list[bytes]:
    found: list[bytes] = []
    while (records := log.read(offset, count - len(found))) is not None and len(found) < count:
        found += records.bodies
        offset = records.end
        if len(found) >= count:
            break
    return found


def test_records_come_back_with_what_belongs_to_them(log: RecordLog) -> None:
    assert log.append([b"a", b"", b"c\nd\x00"], np.array([7, 8, 9])) == Appended(0, 3)
    assert log.append([b"x"], keys=[b"k"], headers={"peer": b"::1"}) == Appended(3, 1)
    assert log.append([]) == Appended(4, 0)
    records = log.read(1, 10)
    assert records is not None
    assert (records.first, records.end) == (1, 4)
    assert list(records.bodies) == [b"", b"c\nd\x00", b"x"]
    assert records.times.tolist() == [8, 9, 1_000_000_000]
    assert records.keys == [None, None, b"k"]
    assert records.headers == [{}, {}, {"peer": b"::1"}]
    assert log.read(4, 10) is None


def test_what_belongs_to_a_record_has_its_number(log: RecordLog) -> None:
    with pytest.raises(ValueError, match="2 bodies have 1 times"):
        log.append([b"a", b"b"], np.array([1]))
    with pytest.raises(ValueError, match="2 bodies have 3 headers"):
        log.append([b"a", b"b"], headers=[{}, {}, {}])
    assert log.latest == 0


def test_headers_of_each_record(log: RecordLog) -> None:
    log.append([b"a", b"b", b"c"], headers=[{"n": b"1"}, {"n": b"2", "m": b""}, {}])
    log.append([b"d"])
    records = log.read(0, 10)
    assert records is not None
    assert records.headers == [{"n": b"1"}, {"n": b"2", "m": b""}, {}, {}]
    without = log.read(0, 10, with_headers=False)
    assert without is not None
    assert without.headers is None


def test_a_log_goes_on_where_it_ended(tmp_path: Path) -> None:
    with small(tmp_path) as log:
        log.append([b"a"])
        log.append([b"b"])
        name = log.id
    with small(tmp_path) as log:
        assert (log.id, log.earliest, log.latest) == (name, 0, 2)
        assert log.append([b"c"]).first == 2
        assert bodies_of(log) == [b"a", b"b", b"c"]


def test_appends_of_several_threads_have_offsets_without_gaps(log: RecordLog) -> None:
    firsts: list[int] = []

    def append(name: bytes) -> None:
        firsts.extend(log.append([name, name]).first for _ in range(20))

    threads = [threading.Thread(target=append, args=(b"%d" % number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(firsts) == list(range(0, 320, 2))
    found = bodies_of(log)
    assert found[::2] == found[1::2]


def test_submitted_records_keep_their_order(log: RecordLog) -> None:
    futures = [log.submit([b"%d" % number]) for number in range(50)]
    assert [future.result().first for future in futures] == list(range(50))
    assert bodies_of(log) == [b"%d" % number for number in range(50)]
    assert not log.submit([b"x"]).cancel()  # whoever waits may give up; the records are stored


def test_a_trim_forgets_records_and_removes_files(tmp_path: Path) -> None:
    with small(tmp_path) as log:
        fill(log, 40)
        used = log.status().used_bytes
        log.trim(30)
        assert (log.earliest, log.latest) == (30, 40)
        assert log.status().used_bytes < used / 2
        with pytest.raises(
            DataError,
            match="no longer holds record 29: it was removed, because a checkpoint covered the records before 30",
        ) as found:
            log.read(29, 1)
        assert found.value.offset == 29
        log.trim(10)
        assert log.earliest == 30
        with pytest.raises(DataError, match="ends before record 40, but 41 was asked for"):
            log.trim(41)
    with small(tmp_path) as log:
        assert (log.earliest, len(bodies_of(log, 30))) == (30, 10)


def test_a_full_log_lets_appends_wait_until_a_trim(tmp_path: Path) -> None:
    with small(tmp_path) as log:
        with pytest.raises(BufferFullError, match=r"has no room: \d+ of 65536 bytes are used"):
            fill(log, 100)
        before = log.latest
        done: list[Appended] = []
        thread = threading.Thread(target=lambda: done.append(log.append([b"waits"])))
        thread.start()
        log.trim(before)
        thread.join()
        assert done == [Appended(before, 1)]
        assert log.status().dropped_newest == log.status().dropped_oldest == 0


def test_a_log_that_was_trimmed_has_room_for_the_largest_append(tmp_path: Path) -> None:
    with small(tmp_path) as log:
        largest = b"x" * (log.append_max_bytes - 100)
        for _ in range(30):
            log.append([largest], timeout=NO_WAIT)
            log.trim(log.latest)


def test_a_full_log_drops_the_oldest_and_reports_the_gap(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with small(tmp_path, "drop_oldest") as log:
        fill(log, 20)
        log.trim(5)
        fill(log, 180)
        status = log.status()
        assert status.latest == 200
        assert status.used_bytes <= status.quota_bytes
        assert status.gaps == (Gap(5, status.earliest),)
        assert status.dropped_oldest == status.earliest - 5 > 100
        records = log.read(5, 1)
        assert records is not None
        assert records.first == status.earliest
        with pytest.raises(DataError, match="no longer holds record 4"):
            log.read(4, 1)
    assert "without a checkpoint" in caplog.text
    with small(tmp_path, "drop_oldest") as log:
        assert log.status().gaps == status.gaps


def test_a_full_log_drops_the_newest_and_counts_them(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with small(tmp_path, "drop_newest") as log:
        fill(log, 100)
        status = log.status()
        assert status.earliest == 0
        assert status.latest + status.dropped_newest == 100
        assert log.append([b"x" * KIB] * 3) == Appended(status.latest, 0, 3)
        log.trim(log.latest)
        assert log.append([b"y"]) == Appended(status.latest, 1)
    assert "were refused" in caplog.text
    with small(tmp_path, "drop_newest") as log:
        assert log.status().dropped_newest == status.dropped_newest + 3


def test_an_append_that_never_fits_is_refused(tmp_path: Path) -> None:
    with small(tmp_path) as log, pytest.raises(DataError, match="does not fit in the buffer"):
        log.append([b"x" * 9 * KIB])


def test_two_logs_on_one_directory_are_refused(tmp_path: Path) -> None:
    with small(tmp_path), pytest.raises(JobError, match=f"is open already, by process {os.getpid()}"):
        small(tmp_path)
    small(tmp_path).close()


def test_options_are_checked(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="must be at least 65536 bytes"):
        RecordLog(tmp_path, quota_bytes=1000)
    with pytest.raises(OptionError, match="when_full must be block, drop_oldest or drop_newest"):
        RecordLog(tmp_path, when_full="explode")  # type: ignore[arg-type]
    (tmp_path / "file").touch()
    with pytest.raises(JobError, match="cannot be opened"):
        RecordLog(tmp_path / "file" / "log")


def test_a_closed_log_takes_nothing(tmp_path: Path) -> None:
    log = small(tmp_path)
    future = log.submit([b"a"])
    log.close()
    log.close()
    assert future.result() == Appended(0, 1)
    with pytest.raises(JobError, match="is closed"):
        log.append([b"b"])


def test_only_this_user_can_read_the_files(log: RecordLog) -> None:
    log.append([b"secret"])
    assert log.directory.stat().st_mode & 0o077 == 0
    assert all(path.stat().st_mode & 0o077 == 0 for path in log.directory.iterdir())


def test_offsets_of_times(tmp_path: Path) -> None:
    with small(tmp_path) as log:
        for number in range(30):
            log.append([b"x" * KIB], np.array([number * 10]))
        assert [log.offset_since(time) for time in (-5, 0, 1, 100, 289, 290, 291)] == [0, 0, 1, 10, 29, 29, 30]
        log.trim(12)
        assert log.offset_since(50) == 12


def test_waiting_for_a_record(log: RecordLog) -> None:
    assert not log.wait(0, NO_WAIT)
    thread = threading.Thread(target=lambda: log.append([b"a"]))
    thread.start()
    assert log.wait(0, timedelta(minutes=3))
    thread.join()


@pytest.mark.parametrize("call", ["write", "fdatasync"])
def test_a_write_that_fails_leaves_nothing_behind(log: RecordLog, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    log.append([b"a"])
    real = os.write

    def half(descriptor: int, data: memoryview) -> int:
        if len(data) < 60:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(descriptor, data[:50])

    def fails(_: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        if call == "write":
            patch.setattr(os, "write", half)
        else:
            patch.setattr(segment_module, "_datasync", fails)
        with pytest.raises(RetriableError, match="the buffer cannot be written to"):
            log.append([b"b" * 20])
    assert log.append([b"c"]).first == 1
    assert bodies_of(log) == [b"a", b"c"]


def test_a_log_whose_file_cannot_be_mended_takes_no_more(log: RecordLog, monkeypatch: pytest.MonkeyPatch) -> None:
    log.append([b"a"])

    def fails(*_: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(segment_module, "_datasync", fails)
        patch.setattr(os, "ftruncate", fails)
        with pytest.raises(JobError, match="cannot be written"):
            log.append([b"b"])
    with pytest.raises(JobError, match="cannot be written"):
        log.append([b"c"])
    assert bodies_of(log) == [b"a"]


def test_a_reader_goes_on_while_files_are_dropped(tmp_path: Path) -> None:
    with small(tmp_path, "drop_oldest") as log:
        seen: list[int] = []
        wrong: list[bytes] = []

        def read() -> None:
            offset = 0
            while offset < 600 and log.wait(offset, timedelta(minutes=3)):
                records = log.read(offset, 7)
                if records is not None:
                    wrong.extend(
                        body for row, body in enumerate(records.bodies) if body[:6] != b"%06d" % (records.first + row)
                    )
                    seen.append(records.first)
                    offset = records.end

        thread = threading.Thread(target=read)
        thread.start()
        for number in range(600):
            log.append([b"%06d" % number + b"x" * KIB])
        thread.join()
        assert wrong == []
        assert seen == sorted(seen)
        assert log.read(600, 1) is None
