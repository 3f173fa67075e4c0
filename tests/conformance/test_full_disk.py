"""A device that fills up while a job runs, below its checkpoint or its output: it is said, waited for, and nothing is lost or doubled."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import headrace as hr
import pytest
from headrace.foundation.errors import CheckpointError, JobError, JobFailedError

from tests.eventually import eventually
from tests.small_device import fill, mounted

BACKENDS = ["light", pytest.param("spark", marks=pytest.mark.spark)]
#: In every run a file system becomes read-only while the job runs on Spark.
RARELY_ON_SPARK = ["light", pytest.param("spark", marks=[pytest.mark.spark, pytest.mark.slow])]


@pytest.fixture
def small_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A file system of 1 MiB; the test runs beside it."""
    monkeypatch.chdir(tmp_path)
    Path("in").mkdir()
    with mounted(tmp_path / "small") as place:
        yield place


def append(first: int, count: int) -> None:
    with open("in/a.ndjson", "a") as file:
        file.writelines(
            json.dumps({"k": "ab"[n % 2], "n": n, "text": "x" * 500}) + "\n" for n in range(first, first + count)
        )


def job(output: Path, *, keyed: bool, retry_timeout: str = "5 min") -> Any:
    rows = hr.stream("test", "full").from_file(
        "in", format="json", schema={"k": "string", "n": "int64", "text": "string"}, name="in"
    )
    if keyed:
        return rows.key_by("k").agg(n="count(*)").to_file(output, changes="column", flush_interval="0 s")
    return rows.to_file(output, flush_interval="0 s", retry_timeout=retry_timeout)


def rows(output: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for part in output.glob("part-*") for line in part.read_text().splitlines()]


@pytest.mark.parametrize("keyed", [False, True], ids=["stateless", "keyed"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_full_device_below_the_checkpoint(
    backend: str, keyed: bool, small_device: Path, caplog: pytest.LogCaptureFixture
) -> None:
    output, options = Path("out"), {"shards": 1} if keyed else {}
    append(0, 100)
    handle = job(output, keyed=keyed).start(
        backend, checkpoint=small_device / "state", checkpoint_interval="100 ms", **options
    )

    def counted() -> list[tuple[str, int]]:
        found = [(row["k"], row["n"]) for row in rows(output)]
        # How many of a key are counted at an end depends on the batches; the last count is that of all.
        return sorted({k: max(n for key, n in found if key == k) for k, _ in found}.items()) if keyed else sorted(found)

    def wanted(count: int) -> list[tuple[str, int]]:
        if keyed:
            return [("a", count // 2), ("b", count // 2)]
        return sorted(("ab"[n % 2], n) for n in range(count))

    eventually(lambda: counted() == wanted(100), "the first rows")
    ballast = fill(small_device)
    append(100, 100)
    told = f"cannot be written to {str(small_device / 'state')!r}"[:-1]
    eventually(lambda: any(told in record.message for record in caplog.records), "it is said")
    message = next(record.message for record in caplog.records if told in record.message)
    assert "No space left on device" in message
    assert "make room on the device" in message
    ballast.unlink()
    append(200, 50)
    eventually(lambda: counted() == wanted(250), "the job continues")
    handle.stop()
    append(250, 10)
    job(output, keyed=keyed).run(backend, checkpoint=small_device / "state", **options)
    assert counted() == wanted(260), "the state was whole"


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_full_device_below_the_output(backend: str, small_device: Path) -> None:
    output = small_device / "out"
    append(0, 100)
    handle = job(output, keyed=False).start(backend, checkpoint="state", checkpoint_interval="100 ms")
    eventually(lambda: len(rows(output)) == 100, "the first rows")
    ballast = fill(small_device)
    append(100, 100)
    eventually(lambda: handle.status().records_read >= 100, "they are read")
    threading.Event().wait(0.5)
    assert len(rows(output)) == 100
    ballast.unlink()
    eventually(lambda: sorted(row["n"] for row in rows(output)) == list(range(200)), "the job continues")
    handle.stop()


def test_a_directory_that_is_away_for_a_while(small_device: Path, caplog: pytest.LogCaptureFixture) -> None:
    state, output = Path("state"), Path("out")
    append(0, 100)
    handle = job(output, keyed=False).start("light", checkpoint=state, checkpoint_interval="50 ms")
    eventually(lambda: (state / "light/checkpoint.json").exists(), "a checkpoint")
    state.rename("elsewhere")
    append(100, 100)
    eventually(lambda: any("bring it back" in record.message for record in caplog.records), "it is said")
    Path("elsewhere").rename(state)
    eventually(lambda: "continues: its checkpoint can be written again" in caplog.text, "it continues")
    handle.stop()
    assert sorted(row["n"] for row in rows(output)) == list(range(200))
    assert json.loads((state / "light/checkpoint.json").read_text())["queues"][0]["offset"] == 200


def test_a_stop_while_it_is_full_says_what_comes_again(small_device: Path) -> None:
    append(0, 100)
    state = small_device / "state"
    handle = job(Path("out"), keyed=False).start("light", checkpoint=state, checkpoint_interval="1 h")
    eventually(lambda: (state / "light/checkpoint.json").exists(), "the first checkpoint")
    append(100, 20)
    eventually(lambda: handle.status().records_read == 120, "all is read")
    ballast = fill(small_device)
    handle.stop()
    with pytest.raises(JobFailedError, match="No space left on device") as caught:
        handle.wait()
    assert "the next start continues from the last checkpoint that was written" in str(caught.value)
    ballast.unlink()
    job(Path("out"), keyed=False).run("light", checkpoint=state)
    assert sorted(row["n"] for row in rows(Path("out"))) == list(range(120))


@pytest.mark.parametrize("backend", RARELY_ON_SPARK)
@pytest.mark.parametrize("what", ["checkpoint", "output"])
def test_a_read_only_file_system_is_named_at_the_start(backend: str, what: str, small_device: Path) -> None:
    append(0, 10)
    subprocess.run(["mount", "-o", "remount,ro", str(small_device)], check=True)
    output = small_device / "out" if what == "output" else Path("out")
    state = small_device / "state" if what == "checkpoint" else Path("state")
    with pytest.raises(JobError, match="Read-only file system") as caught:
        job(output, keyed=False).run(backend, checkpoint=state)
    assert str(small_device) in str(caught.value)
    assert "read-only" in str(caught.value)


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    """A disk with a file system; the test runs beside it."""
    monkeypatch.chdir(tmp_path)
    Path("in").mkdir()
    made = Disk(tmp_path / "disk.img", tmp_path / "disk")
    try:
        made.make()
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"cannot mount a disk here: {error}")
    yield made
    subprocess.run(["umount", "-l", str(made.place)], check=True)  # also where a test has failed and its job still runs


class Disk:
    """A file with an ext4 file system of 8 MiB, which the kernel makes read-only at an error, as it does at those of real disks."""

    def __init__(self, image: Path, place: Path) -> None:
        self._image = image
        self.place = place

    def make(self) -> None:
        self._image.write_bytes(bytes(8 << 20))
        self.place.mkdir()
        subprocess.run(["mkfs.ext4", "-q", "-O", "^has_journal", str(self._image)], check=True)
        self.mount()

    def mount(self) -> None:
        subprocess.run(["mount", "-o", "loop,errors=remount-ro", str(self._image), str(self.place)], check=True)
        if not self._trigger().exists():
            self.unmount()
            raise OSError("the kernel offers no errors of file systems")

    def _trigger(self) -> Path:
        device = next(
            line.split()[0] for line in Path("/proc/mounts").read_text().splitlines() if str(self.place) in line
        )
        return Path("/sys/fs/ext4", Path(device).name, "trigger_fs_error")

    def break_down(self) -> None:
        """Let an error happen: from now on nothing can be written, to open files neither."""
        # Spark does not sync the files of its checkpoint, and what the kernel has not written yet would be lost.
        subprocess.run(["sync", "-f", str(self.place)], check=True)
        self._trigger().write_text("1")

    def unmount(self) -> None:
        subprocess.run(["umount", str(self.place)], check=True)

    def repair(self) -> None:
        self.unmount()
        done = subprocess.run(["e2fsck", "-f", "-y", str(self._image)], capture_output=True, text=True, check=False)
        assert done.returncode in (0, 1), done.stdout  # 1: errors that were corrected
        self.mount()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("what", ["checkpoint", "output"])
def test_a_file_system_that_becomes_read_only_while_the_job_runs(backend: str, what: str, disk: Disk) -> None:
    """The job stops and says why; after the repair nothing is lost or doubled."""
    output = disk.place / "out" if what == "output" else Path("out")
    state = disk.place / "state" if what == "checkpoint" else Path("state")
    append(0, 100)
    options = {"retry_timeout": "500 ms"} if what == "checkpoint" else {}
    build = partial(job, output, keyed=False, retry_timeout="500 ms")
    handle = build().start(backend, checkpoint=state, checkpoint_interval="50 ms", **options)
    eventually(lambda: len(rows(output)) == 100, "the first rows")
    kept = state / ("spark/commits/0" if backend == "spark" else "light/checkpoint.json")
    eventually(kept.exists, "its checkpoint")
    disk.break_down()
    append(100, 100)
    with pytest.raises(JobFailedError, match="Read-only file system") as caught:
        handle.wait(timedelta(seconds=180))
    assert str(disk.place) in str(caught.value)
    assert "read-only" in str(caught.value)
    disk.repair()
    append(200, 50)
    build().run(backend, checkpoint=state)
    assert sorted(row["n"] for row in rows(output)) == list(range(250))


@pytest.mark.parametrize("removed", ["state", "state/light", "state/light/state"])
@pytest.mark.parametrize("keyed", [False, True], ids=["stateless", "keyed"])
def test_a_checkpoint_that_is_removed_below_a_running_job(
    removed: str, keyed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is never made anew in part: what is stored stands on what was stored before."""
    if removed == "state/light/state" and not keyed:
        pytest.skip("a job without keyed state keeps none")
    monkeypatch.chdir(tmp_path)
    Path("in").mkdir()
    append(0, 100)
    handle = job(Path("out"), keyed=keyed).start(
        "light", checkpoint="state", checkpoint_interval="50 ms", retry_timeout="500 ms"
    )
    eventually(lambda: Path("state/light/checkpoint.json").exists(), "a checkpoint")
    eventually(lambda: handle.status().checkpoint_id > 0 and handle.status().records_read == 100, "all is read")
    if keyed:
        eventually(lambda: any(Path("state/light/state").rglob("*.delta")), "its state is stored")
    Path(removed).rename("removed")  # at once: the job writes and removes files in it at any time
    append(100, 100)
    with pytest.raises(JobFailedError, match="No such file or directory") as caught:
        handle.wait(timedelta(seconds=90))
    assert "the checkpoint cannot be written to 'state/light" in str(caught.value)
    assert "the directory has gone: bring it back with what was in it" in str(caught.value)
    assert not list(Path("state").rglob("*.delta")), "no part of a state stands alone"


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("keyed", [False, True], ids=["stateless", "keyed"])
def test_a_checkpoint_that_is_removed_below_a_job_on_spark(
    keyed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark itself makes its directory anew. What stands on state fails at once, the rest at the next start: no row is wrong."""
    monkeypatch.chdir(tmp_path)
    Path("in").mkdir()
    append(0, 100)
    output, options = Path("out"), {"shards": 1} if keyed else {}
    handle = job(output, keyed=keyed).start("spark", checkpoint="state", **options)
    eventually(lambda: len(rows(output)) >= (2 if keyed else 100), "the first rows")
    # What is removed before that would be made by the query's start: then nothing is missing.
    eventually(Path("state/spark/commits/0").exists, "the first micro-batch is completed")
    Path("state").rename("removed")
    append(100, 100)
    if keyed:
        with pytest.raises(JobFailedError, match=r"the state of shard key_by/0 after micro-batch \d+ is missing"):
            handle.wait(timedelta(seconds=180))
        return
    eventually(lambda: len(rows(output)) == 200, "the rows of the next micro-batch")
    handle.stop()
    append(200, 100)
    with pytest.raises(CheckpointError, match="is missing") as caught:
        job(output, keyed=keyed).run("spark", checkpoint="state")
    assert "restore the whole checkpoint directory from one copy, or start from the beginning" in str(caught.value)
    assert sorted(row["n"] for row in rows(output)) == list(range(200))
    # Anew, rows that are there are not written again.
    job(output, keyed=keyed).run("spark", checkpoint="other")
    assert sorted(row["n"] for row in rows(output)) == list(range(300))
