"""Blobs of Azure, from Azurite: the contract of sources, versions, compression, keys, a job that is stopped, and a server that is away."""

from __future__ import annotations

import gzip
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import headrace as hr
import pytest
from azure_emulator import ACCOUNT, KEY, Azurite
from stored_objects import StoredObjects, client, put, read, replace_while_it_is_read, source

pytest.importorskip("adlfs")
pytestmark = pytest.mark.slow
_numbers = itertools.count()


@pytest.fixture(scope="module")
def azurite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Azurite]:
    server = Azurite(tmp_path_factory.mktemp("azurite"))
    yield server
    server.stop()


@pytest.fixture
def container(azurite: Azurite, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of an empty container; what is needed to use it is in the environment."""
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", azurite.connection_string)
    name = f"logs-{next(_numbers)}"
    client("abfs://").mkdir(name)
    return f"abfs://{name}"


class TestBlobs(StoredObjects):
    @pytest.fixture(autouse=True)
    def in_container(self, container: str) -> None:
        self.use_place(container)


@pytest.mark.parametrize("scheme", ["abfs", "abfss", "az"])
def test_directories_globs_and_compression(container: str, scheme: str) -> None:
    put(f"{container}/in/a.ndjson", b"1\n")
    put(f"{container}/in/deep/b.ndjson.gz", gzip.compress(b"2\n"))
    put(f"{container}/in/_hidden", b"3\n")
    put(f"{container}/in/deep/.tmp/c.ndjson", b"4\n")
    place = container.replace("abfs://", f"{scheme}://")
    for path, options, wanted in (
        (f"{place}/in", {}, ["in/a.ndjson"]),
        (f"{place}/in/", {"recursive": True}, ["in/a.ndjson", "in/deep/b.ndjson.gz"]),
        (f"{place}/in/*", {}, ["in/a.ndjson"]),
        (f"{place}/in/**", {}, ["in/a.ndjson", "in/deep/b.ndjson.gz"]),
        (f"{place}/in/*/b*", {}, ["in/deep/b.ndjson.gz"]),
    ):
        made = source(path, **options)
        assert [queue.name.partition("://")[2] for queue in made.queues()] == [
            f"{container.partition('://')[2]}/{name}" for name in wanted
        ], path
        found = [record for queue in made.queues() for record in read(made.open(queue, hr.EARLIEST))]
        assert found == [b"1" if name.endswith("a.ndjson") else b"2" for name in wanted]
        made.close()


@pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")  # of the client with which the test writes
def test_a_blob_that_is_replaced_while_it_is_read(container: str) -> None:
    replace_while_it_is_read(container)


def rows(container: str, checkpoint: Path, **options: Any) -> list[int]:
    """Run a job to the end of the input; return what it has written so far."""
    out = checkpoint.parent / "out"
    stream = hr.stream("tests", "azure").from_file(
        f"{container}/in", format="json", schema={"n": "int64"}, list_interval=0, **options
    )
    stream.to_file(out, format="json").run("light", checkpoint=checkpoint, show_progress=False)
    lines = [line for part in sorted(out.glob("*.json")) for line in part.read_text().splitlines()]
    return sorted(int(line.removeprefix('{"n":').rstrip("}")) for line in lines)


def test_a_job_goes_on_where_it_was(container: str, tmp_path: Path) -> None:
    put(f"{container}/in/a.ndjson", b'{"n": 1}\n{"n": 2}\n')
    assert rows(container, tmp_path / "state") == [1, 2]
    put(f"{container}/in/a.ndjson", b'{"n": 1}\n{"n": 2}\n{"n": 3}\n')  # written again with more
    put(f"{container}/in/b.ndjson.gz", gzip.compress(b'{"n": 4}\n'))
    assert rows(container, tmp_path / "state") == [1, 2, 3, 4]
    assert rows(container, tmp_path / "state") == [1, 2, 3, 4]


def test_keys_by_options(azurite: Azurite, container: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(f"{container}/in/a.ndjson", b'{"n": 1}\n')
    monkeypatch.delenv("AZURE_STORAGE_CONNECTION_STRING")
    monkeypatch.setenv("MY_CONNECTION", azurite.connection_string)
    given = {"connection_string": "${MY_CONNECTION}"}
    assert rows(container, tmp_path / "state", storage_options=given) == [1]
    with pytest.raises(hr.JobError, match="looks like a secret") as caught:
        source(container, storage_options={"account_name": ACCOUNT, "account_key": KEY}).queues()
    assert KEY not in str(caught.value)


def test_a_wrong_key_is_told_without_the_key(azurite: Azurite, container: str, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = "A" * 86 + "=="
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", azurite.connection_string.replace(KEY, wrong))
    with pytest.raises(hr.JobError) as caught:
        source(f"{container}/in").queues()
    assert "check the keys or the login" in str(caught.value)
    assert wrong not in str(caught.value)


def test_a_container_that_is_not_there(container: str) -> None:
    with pytest.raises(hr.JobError):
        source(f"{container}-no/in").queues()


def test_a_server_that_is_away_is_tried_again(azurite: Azurite, container: str) -> None:
    """This takes 85 s: Azure's client tries by itself before it says so."""
    put(f"{container}/in/a.ndjson", b"1\n")
    made = source(f"{container}/in")
    azurite.end()
    try:
        with pytest.raises(hr.RetriableError):
            made.queues()
    finally:
        azurite.start()
    assert len(made.queues()) == 1
    made.close()
