"""Files that cannot be read as they are: one error kind, which runtimes set the queue aside for, and how they come back."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

import headrace as hr
import pytest
from file_world import NO_WAIT, World, drain, lines
from headrace.flow.messages import Queue
from headrace.foundation.errors import BrokenQueueError
from headrace.interfaces.source import EARLIEST
from headrace_file import FileSource, FileSourceSettings
from headrace_file.reader import FileReader
from headrace_file.streams import forget_parked

from tests.eventually import eventually

HERE = str(Path(__file__).parent)
DAMAGE = b"\x1f\x8b no member"


def without_rights(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run code as a user for whom permissions count: root but for its right to read and write everything."""
    begin = f"import sys; sys.path.insert(0, {HERE!r}); import test_broken_files\n"
    command = [sys.executable, "-c", begin + code, *arguments]
    if os.getuid() == 0:
        if shutil.which("setpriv") is None:
            pytest.skip("only setpriv takes root's right to read everything")
        command = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search", *command]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def read_to_damage(reader: FileReader) -> tuple[list[int], BrokenQueueError]:
    """Return the numbers of the records that come before the error."""
    found: list[int] = []
    try:
        while raw := reader.poll(100, timeout=NO_WAIT):
            found += raw.offsets.tolist()
    except BrokenQueueError as error:
        return found, error
    raise AssertionError("the file is whole")


class TestDamage:
    def test_what_comes_well_before_it_is_read_and_nothing_of_the_read_that_meets_it(self, world: World) -> None:
        forget_parked()
        world.write("log", gzip.compress(lines(*range(20_000))) + DAMAGE)
        source = world.source(read_bytes=16_384)
        reader = world.open(source)
        found, error = read_to_damage(reader)
        assert found == list(range(len(found)))
        assert 0 < len(found) < 20_000
        assert "is not valid gzip" in str(error)
        assert "repair or remove the file" in str(error)
        with pytest.raises(BrokenQueueError):
            reader.poll(100, timeout=NO_WAIT)
        with pytest.raises(BrokenQueueError):
            _ = reader.latest

    def test_a_plan_leads_to_it_and_no_further(self, world: World) -> None:
        forget_parked()
        world.write("log", gzip.compress(lines(*range(20_000))) + DAMAGE)
        source = world.source(read_bytes=16_384)
        reader = world.open(source)
        end = reader.position_after(10**9)
        assert 0 < end.offset < 20_000
        reader.limit(end)
        assert drain(reader).numbers == list(range(end.offset))
        reader.seek(end)
        with pytest.raises(BrokenQueueError):
            reader.position_after(10)

    @pytest.mark.parametrize("anew", [False, True])
    def test_a_mended_file_is_read_on(self, world: World, anew: bool) -> None:
        forget_parked()
        whole = gzip.compress(lines(*range(20_000)))
        path = world.write("log", whole + DAMAGE)
        source = world.source(read_bytes=16_384)
        reader = world.open(source)
        found, _ = read_to_damage(reader)
        path.write_bytes(whole + gzip.compress(lines(*range(20_000, 20_010))))
        if anew:
            position = reader.position
            reader.close()
            reader = source.open(world.queue(), position)
        found += drain(reader).numbers
        assert found == list(range(20_010))

    def test_a_mended_file_is_read_on_by_who_has_read_only_what_comes_before_the_damage(self, world: World) -> None:
        forget_parked()
        whole = gzip.compress(lines(*range(20_000)))
        path = world.write("log", whole + DAMAGE)
        source = world.source(read_bytes=16_384)
        planning, reader = world.open(source), world.open(source)
        end = planning.position_after(10**9)
        reader.limit(end)
        found = drain(reader).numbers
        reader.close()  # its decompressor has been given bytes of the damage
        path.write_bytes(whole + gzip.compress(lines(*range(20_000, 20_010))))
        found += drain(world.source(read_bytes=16_384).open(world.queue(), end)).numbers
        assert found == list(range(20_010))


class TestNoFile:
    def test_a_directory_in_its_place(self, world: World) -> None:
        path = world.write("log", lines(1, 2))
        reader = world.open(world.source())
        assert drain(reader).numbers == [0, 1]
        path.unlink()
        path.mkdir()
        world.quiet()
        with pytest.raises(BrokenQueueError, match="Is a directory"):
            drain(reader)
        path.rmdir()
        world.write("log", lines(3))
        world.quiet()
        assert drain(reader).bodies == [b"line 3"]

    def test_a_disk_that_gives_no_bytes(self, world: World) -> None:
        if not Path("/proc/self/mem").exists():
            pytest.skip("there is no file here that gives a read error")
        world.path("log").symlink_to("/proc/self/mem")
        with pytest.raises(BrokenQueueError, match="Input/output error"):
            world.open(world.source())

    def test_a_header_of_other_columns(self, world: World) -> None:
        world.write("log", b"b,a\n1,2\n")
        source = world.source(header=True, format="csv")
        source.use_format("csv", None, {"a": "int64", "b": "int64"})  # type: ignore[arg-type]
        with pytest.raises(BrokenQueueError, match="names b, a; the job reads a, b"):
            drain(world.open(source))


class TestPermission:
    def test_a_reader_says_so(self, tmp_path: Path) -> None:
        secret = tmp_path / "secret.log"
        secret.write_bytes(b"secret\n")
        secret.chmod(0)
        ran = without_rights("test_broken_files.read(sys.argv[1])", str(secret))
        assert ran.stdout.startswith(f"BrokenQueueError: no permission to read {secret}"), ran.stderr

    @pytest.mark.parametrize("what", ["file", "folder"])
    def test_rights_taken_while_a_job_runs_stop_no_other_queue(self, tmp_path: Path, what: str) -> None:
        ran = without_rights("test_broken_files.lose_rights(*sys.argv[1:])", str(tmp_path), what)
        assert ran.returncode == 0, ran.stderr
        told = json.loads(ran.stdout)
        assert told["broken"] == [f"file/{tmp_path}/in/a/log"]
        assert told["before"] == [["a", 1], ["b", 1]]
        assert told["during"] == [["a", 1], ["b", 1], ["b", 2]]
        assert told["after"] == [["a", 1], ["a", 2], ["b", 1], ["b", 2]]


# Called in processes that may not read everything.


def read(path: str) -> None:
    source = FileSource(FileSourceSettings(path=path))
    try:
        source.open(Queue(path), EARLIEST).poll(1, NO_WAIT)
    except BrokenQueueError as error:
        print(f"BrokenQueueError: {error}")


def lose_rights(directory: str, what: str) -> None:
    """Run a job on two files, take the rights to one of them (or its folder), give them back; print what was seen."""
    place = Path(directory)
    os.chdir(place)
    for name in "ab":
        (place / "in" / name).mkdir(parents=True)
        (place / "in" / name / "log").write_text(json.dumps({"k": name, "n": 1}) + "\n")
    job = (
        hr.stream("test", "rights")
        .from_file(
            str(place / "in"), recursive=True, max_open_files=1, format="json", schema={"k": "string", "n": "int64"}
        )
        .to_file("out", flush_interval="0 s")
    )

    def rows() -> list[list[object]]:
        found = [json.loads(line) for part in place.glob("out/part-*") for line in part.read_text().splitlines()]
        return sorted([row["k"], row["n"]] for row in found)

    def soon(condition: Callable[[], bool]) -> None:
        eventually(condition, "the rows", shown=lambda: (rows(), handle.status()))

    def append(file: TextIO, **row: object) -> None:
        file.write(json.dumps(row) + "\n")
        file.flush()

    taken = place / "in" / "a" if what == "folder" else place / "in" / "a" / "log"
    handle = job.start("light", discovery_interval="100 ms", checkpoint="state")
    soon(lambda: len(rows()) == 2)
    told: dict[str, object] = {"before": rows()}
    with open(place / "in/a/log", "a") as writes_on, open(place / "in/b/log", "a") as other:
        taken.chmod(0)
        append(writes_on, k="a", n=2)
        soon(lambda: any(queue.broken for queue in handle.status().queues))
        told["broken"] = [queue.queue for queue in handle.status().queues if queue.broken]
        append(other, k="b", n=2)
        soon(lambda: ["b", 2] in rows())
        told["during"] = rows()
        taken.chmod(0o700)
        soon(lambda: len(rows()) == 4)
    told["after"] = rows()
    handle.stop()
    print(json.dumps(told))
