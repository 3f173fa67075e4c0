"""The state store in RocksDB keeps the contract, and serves a job."""

from __future__ import annotations

from pathlib import Path

import headrace as hr
import pytest
from headrace.foundation.errors import CheckpointError, MissingPluginError
from headrace.interfaces.state_store import StateStore
from headrace.testing import MemorySink, MemorySource
from headrace_contract import StateStoreContract
from headrace_rocksdb.state_store import RocksStateSettings, RocksStateStore


class TestRocksStateStore(StateStoreContract):
    """RocksDB, written through to the disk."""

    def make_store(self) -> StateStore:
        return RocksStateStore(RocksStateSettings(path=str(self.tmp_path / "rocks")))

    def before_another(self, store: StateStore) -> None:
        store.close()  # RocksDB is open in one place at a time


def test_a_database_that_is_open_elsewhere_is_named(tmp_path: Path) -> None:
    settings = RocksStateSettings(path=str(tmp_path / "rocks"))
    one, other = RocksStateStore(settings), RocksStateStore(settings)
    one.save("a/0", 1, b"x")
    with pytest.raises(CheckpointError, match="cannot be opened") as caught:
        other.save("a/0", 2, b"y")
    assert caught.value.plugin == "rocksdb"
    assert settings.path in str(caught.value)
    one.close()


def test_a_job_keeps_its_state_there(tmp_path: Path) -> None:
    source = MemorySource({"q": [b'{"k": "a"}'] * 3})
    first, second = MemorySink(), MemorySink()
    for sink in (first, second):
        stream = hr.stream("test", "rocks").from_(source, format="json", schema={"k": "string"})
        stream.key_by("k").agg(n="count(*)").to(sink).run(
            "light", checkpoint=tmp_path / "state", state_store="rocksdb", show_progress=False
        )
        source.append("q", b'{"k": "a"}')
    assert (tmp_path / "state" / "light" / "state" / "CURRENT").exists()
    assert second.rows[-1] == {"k": "a", "n": 4}


def test_an_unknown_state_store_is_named(tmp_path: Path) -> None:
    source = MemorySource({"q": [b'{"k": "a"}']})
    stream = hr.stream("test", "rocks").from_(source, format="json", schema={"k": "string"})
    job = stream.key_by("k").agg(n="count(*)").to(MemorySink())
    with pytest.raises(MissingPluginError, match="rocksbd"):
        job.run("light", checkpoint=tmp_path / "state", state_store="rocksbd")
