"""Objects of an S3 server: the contract of sources, versions, compression, keys from the environment, and a job that is killed."""

from __future__ import annotations

import gzip
import itertools
import json
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import headrace as hr
import pytest
from stored_objects import StoredObjects, put, read, replace_while_it_is_read, source

from tests.eventually import eventually
from tests.servers.s3 import S3Server

pytest.importorskip("s3fs")


@pytest.fixture
def bucket(s3_server: S3Server, s3_bucket: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of an empty bucket; what is needed to use it is in the environment."""
    for name, value in environment(s3_server).items():
        monkeypatch.setenv(name, value)
    return f"s3://{s3_bucket}"


def environment(server: S3Server) -> dict[str, str]:
    return {
        "AWS_ENDPOINT_URL": server.endpoint,
        "AWS_ACCESS_KEY_ID": server.access_key,
        "AWS_SECRET_ACCESS_KEY": server.secret_key,
        "AWS_DEFAULT_REGION": server.region,
    }


@pytest.mark.slow
class TestObjects(StoredObjects):
    @pytest.fixture(autouse=True)
    def in_bucket(self, bucket: str) -> None:
        self.use_place(bucket)


def test_directories_globs_and_compression(bucket: str) -> None:
    put(f"{bucket}/in/a.ndjson", b"1\n")
    put(f"{bucket}/in/deep/b.ndjson.gz", gzip.compress(b"2\n"))
    put(f"{bucket}/in/_hidden", b"3\n")
    put(f"{bucket}/in/deep/.tmp/c.ndjson", b"4\n")
    for path, options, wanted in (
        (f"{bucket}/in", {}, ["in/a.ndjson"]),
        (f"{bucket}/in/", {"recursive": True}, ["in/a.ndjson", "in/deep/b.ndjson.gz"]),
        (f"{bucket}/in/*", {}, ["in/a.ndjson"]),
        (f"{bucket}/in/**", {}, ["in/a.ndjson", "in/deep/b.ndjson.gz"]),
        (f"{bucket}/in/*/b*", {}, ["in/deep/b.ndjson.gz"]),
    ):
        made = source(path, **options)
        assert [queue.name for queue in made.queues()] == [f"{bucket}/{name}" for name in wanted], path
        found = [record for queue in made.queues() for record in read(made.open(queue, hr.EARLIEST))]
        assert found == [b"1" if name.endswith("a.ndjson") else b"2" for name in wanted]
        made.close()


def test_an_object_that_is_replaced_while_it_is_read(bucket: str) -> None:
    url, lines = replace_while_it_is_read(bucket)
    # A version that begins with all that was read is read on; another one is read from its beginning.
    put(url, b"\n".join(lines[:150_000]) + b"\nother\n")
    made = source(bucket)
    [queue] = made.queues()
    reader = made.open(queue, hr.EARLIEST)
    assert sum(len(found) for found in iter(lambda: read(reader, 50_000), [])) == 150_001
    put(url, b"\n".join(lines[:150_000]) + b"\nother\nmore\n")
    made.queues()
    assert read(reader) == [b"more"]
    put(url, b"new\n")
    made.queues()
    assert read(reader) == [b"new"]
    made.close()


def test_refused_keys_and_missing_buckets(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(hr.JobError, match="does not exist"):
        source(f"{bucket}-not-there/in").queues()
    with pytest.raises(hr.JobError, match="does not exist"):
        source(f"{bucket}/not-there.ndjson").queues()
    monkeypatch.setenv("STORE", "http://127.0.0.1:1")
    with pytest.raises(hr.RetriableError, match="cannot list"):
        source(bucket, storage_options={"client_kwargs": {"endpoint_url": "${STORE}"}}).queues()
    monkeypatch.delenv("STORE")
    with pytest.raises(hr.OptionError, match="STORE is not set"):
        source(bucket, storage_options={"client_kwargs": {"endpoint_url": "${STORE}"}}).queues()
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(hr.JobError, match="check the keys"):
        source(bucket).queues()


JOB = """
import sys
import headrace as hr
stream = hr.stream("tests", "objects").from_file(sys.argv[1], format="json", schema={"n": "int64"}, list_interval="100 ms")
stream.to_file("out", format="json", flush_interval="50 ms").start("light", checkpoint="state", checkpoint_interval="50 ms").wait()
"""


def test_a_job_that_is_killed_while_objects_come(tmp_path: Path, bucket: str, fresh_name: Callable[[str], str]) -> None:
    (tmp_path / "job.py").write_text(JOB)
    numbers, wanted = itertools.count(), Counter[int]()

    def found() -> Counter[int]:
        parts = (tmp_path / "out").glob("*.json")
        return Counter(json.loads(line)["n"] for part in parts for line in part.read_bytes().splitlines())

    def bring() -> None:
        for _ in range(3):
            some = [next(numbers) for _ in range(1_000)]
            wanted.update(some)
            data = b"".join(b'{"n": %d}\n' % number for number in some)
            packed = some[0] % 2_000 == 0
            put(f"{bucket}/in/{some[0]}.ndjson{'.gz' if packed else ''}", gzip.compress(data) if packed else data)

    bring()
    for _ in range(3):
        job = subprocess.Popen([sys.executable, "job.py", f"{bucket}/in"], cwd=tmp_path)
        before = sum(found().values())
        bring()
        eventually(lambda seen=before: sum(found().values()) > seen, "rows arrive")  # type: ignore[misc]
        job.send_signal(signal.SIGKILL)
        job.wait()
    job = subprocess.Popen([sys.executable, "job.py", f"{bucket}/in"], cwd=tmp_path)
    try:
        eventually(lambda: len(found()) == len(wanted), "all rows arrive")
    finally:
        job.send_signal(signal.SIGTERM)
        job.wait()
    assert found() == wanted


SPARK_JOB = """
import sys
import headrace as hr
stream = hr.stream("tests", "objects").from_file(sys.argv[1], format="json", schema={"n": "int64"})
stream.to_file("out", format="json").run("spark", max_micro_batch_records=3_000, show_progress=False)
"""


@pytest.mark.slow
def test_on_spark(tmp_path: Path, bucket: str) -> None:
    for number in range(4):
        data = b"".join(b'{"n": %d}\n' % (10_000 * number + each) for each in range(5_000))
        put(f"{bucket}/in/{number}.ndjson{'.gz' if number % 2 else ''}", gzip.compress(data) if number % 2 else data)
    (tmp_path / "job.py").write_text(SPARK_JOB)
    for _ in range(2):
        subprocess.run([sys.executable, "job.py", f"{bucket}/in"], cwd=tmp_path, check=True)
        parts = (tmp_path / "out").glob("*.json")
        found = Counter(json.loads(line)["n"] for part in parts for line in part.read_bytes().splitlines())
        assert found == Counter(10_000 * number + each for number in range(4) for each in range(5_000))
