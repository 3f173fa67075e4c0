"""What the file system refuses: a full device is waited for, what a person must mend stops the job."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from headrace.flow.messages import Position, Queue
from headrace.foundation.errors import JobError, RetriableError
from sink_world import insert, make_sink, parts, stored

from tests.small_device import fill, mounted

HERE = str(Path(__file__).parent)


@pytest.fixture
def small_device(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB."""
    with mounted(tmp_path / "small", size="256k") as place:
        yield place


def as_nobody(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run code as a user without rights."""
    if os.getuid() != 0:
        pytest.skip("only root can become another user")
    begin = (
        f"import os, sys; sys.path.insert(0, {HERE!r}); import test_sink_errors; os.setgid(65534); os.setuid(65534)\n"
    )
    return subprocess.run([sys.executable, "-c", begin + code, *arguments], capture_output=True, text=True, check=False)


class TestFullDevice:
    def test_it_is_retriable_and_nothing_is_stored(self, small_device: Path) -> None:
        out = small_device / "out"
        sink = make_sink(out)
        insert(sink, "q", 0, 100)
        ballast = fill(small_device)
        with pytest.raises(RetriableError, match=r"cannot write .*: No space left on device") as caught:
            insert(sink, "q", 100, 1000)
        assert "make room" in str(caught.value)
        assert os.listdir(out / "_headrace" / "tmp") == []
        assert sink.last_offset(Queue("q")) == Position(99)
        ballast.unlink()
        insert(sink, "q", 100, 1000)
        assert stored(parts(out)) == [("q", n) for n in range(1100)]


class TestLimits:
    def test_a_part_over_the_size_limit_of_the_process_stops_the_job(self, tmp_path: Path) -> None:
        code = f"""
import resource, sys
sys.path.insert(0, {HERE!r})
from pathlib import Path
from headrace.foundation.errors import JobError
from sink_world import insert, make_sink
sink = make_sink(Path(sys.argv[1]))
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
insert(sink, "q", 0, 10)
try:
    insert(sink, "q", 10, 10_000)
except JobError as error:
    print(error)
insert(sink, "q", 10, 10)
"""
        ran = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
        assert "File too large" in ran.stdout
        assert "lower batch_size" in ran.stdout
        assert stored(parts(tmp_path)) == [("q", n) for n in range(20)]
        assert os.listdir(tmp_path / "_headrace" / "tmp") == []


class TestPermissions:
    def test_a_directory_that_must_not_be_written_stops_the_job_at_its_start(self, tmp_path: Path) -> None:
        code = "test_sink_errors.prepare_without_rights(sys.argv[1])"
        ran = as_nobody(code, "/proc/out")
        assert ran.stdout.startswith("JobError: cannot write /proc/out"), ran.stderr

    def test_rights_taken_while_it_runs_stop_the_job(self, tmp_path: Path) -> None:
        shared = Path(f"/tmp/headrace-test-{os.getpid()}")
        shared.mkdir()
        try:
            shared.chmod(0o777)
            ran = as_nobody("test_sink_errors.lose_rights(sys.argv[1])", str(shared / "out"))
            assert ran.stdout.startswith("JobError: cannot write"), ran.stderr
            assert "let the job's user write there" in ran.stdout
        finally:
            subprocess.run(["rm", "-rf", str(shared)], check=True)


class TestGone:
    def test_a_directory_that_goes_away_is_waited_for(self, tmp_path: Path) -> None:
        out = tmp_path / "out"
        sink = make_sink(out)
        insert(sink, "q", 0, 1)
        out.rename(tmp_path / "away")
        with pytest.raises(RetriableError, match="No such file or directory"):
            insert(sink, "q", 1, 1)
        assert not out.exists()
        (tmp_path / "away").rename(out)
        insert(sink, "q", 1, 1)
        assert stored(parts(out)) == [("q", 0), ("q", 1)]

    def test_a_part_that_cannot_be_put_in_its_place_is_not_stored(self, tmp_path: Path) -> None:
        sink = make_sink(tmp_path)
        for first in (0, 1):
            obstacle = tmp_path / _next_name(sink, first)
            obstacle.mkdir()
            (obstacle / "something").touch()
            with pytest.raises((JobError, RetriableError)):
                insert(sink, "q", first, 1)
            assert os.listdir(tmp_path / "_headrace" / "tmp") == []
            assert sink.last_offset(Queue("q")) == (None if not first else Position(first - 1))
            (obstacle / "something").unlink()
            obstacle.rmdir()
            insert(sink, "q", first, 1)
        assert stored(parts(tmp_path)) == [("q", 0), ("q", 1)]


def _next_name(sink: object, first: int) -> str:
    from headrace_file.parts import part_name, queue_key

    queue = Queue("q")
    return part_name("part", queue, queue_key(queue, ""), Position(first), "json")


# Called in processes of another user.


def prepare_without_rights(path: str) -> None:
    try:
        make_sink(Path(path))
    except JobError as error:
        print(f"JobError: {error}")


def lose_rights(path: str) -> None:
    sink = make_sink(Path(path))
    insert(sink, "q", 0, 1)
    os.chmod(Path(path) / "_headrace" / "tmp", 0o500)
    try:
        insert(sink, "q", 1, 1)
    except JobError as error:
        print(f"JobError: {error}")
