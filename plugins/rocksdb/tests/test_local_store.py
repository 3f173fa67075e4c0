"""The local store in RocksDB: order, batches, what is left after a close, and damage."""

from __future__ import annotations

from pathlib import Path

import pytest
from headrace.foundation.errors import CheckpointError
from headrace_rocksdb.local_store import RocksLocalStore
from headrace_rocksdb.state_store import RocksStateSettings, RocksStateStore


def test_rows_are_found_by_key_and_in_order(tmp_path: Path) -> None:
    store = RocksLocalStore(str(tmp_path / "local"), 1_000_000)
    keys = [b"a%05d" % number for number in range(5_000)]
    store.write(keys, [b"v" + key for key in keys])
    store.write([b"b", b"a00001"], [b"", b"new"], [b"a00000", b"a00001"])
    assert store.get([b"a00000", b"a00001", b"a00002", b"b", b"c"]) == [None, b"new", b"va00002", b"", None]
    scanned = list(store.scan(b"a00001", b"a00004", 2))
    assert scanned == [([b"a00001", b"a00002"], [b"new", b"va00002"]), ([b"a00003"], [b"va00003"])]
    assert list(store.scan(b"c", b"d", 2)) == []
    store.clear(b"a", b"b")
    assert store.get([b"a00002", b"b"]) == [None, b""]
    store.close()
    store.close()
    again = RocksLocalStore(str(tmp_path / "local"), 1_000_000)
    assert again.get([b"a00002", b"b"]) == [None, b""]
    assert not again.damaged
    again.close()


def test_damage_is_found_and_said(tmp_path: Path) -> None:
    store = RocksLocalStore(str(tmp_path / "local"), 1_000_000)
    keys = [b"a%05d" % number for number in range(50_000)]
    for begin in range(0, len(keys), 10_000):
        store.write(keys[begin : begin + 10_000], [b"v" * 50] * 10_000)
    store.close()
    for path in (tmp_path / "local").glob("*.sst"):
        content = bytearray(path.read_bytes())
        content[len(content) // 4] ^= 1
        path.write_bytes(content)
    store = RocksLocalStore(str(tmp_path / "local"), 1_000_000)
    with pytest.raises(CheckpointError, match="local rows of the state"):
        store.get(keys)
    assert store.damaged
    store.close()


def test_what_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "CURRENT").write_text("nonsense")
    with pytest.raises(CheckpointError, match="cannot be opened"):
        RocksLocalStore(str(tmp_path), 1_000_000)


def test_forgotten_versions_are_gone(tmp_path: Path) -> None:
    store = RocksStateStore(RocksStateSettings(path=str(tmp_path)))
    for version in range(1, 5):
        store.save("a/0", version, b"%d" % version)
    store.forget_before("a/0", 3)
    assert [(number, content) for number, content, _ in store.load("a/0")] == [(3, b"3"), (4, b"4")]
    store.close()
