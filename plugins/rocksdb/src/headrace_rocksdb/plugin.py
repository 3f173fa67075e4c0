"""What headrace-rocksdb offers."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.interfaces.hookspecs import hookimpl


@hookimpl
def headrace_state_stores() -> Mapping[str, str]:
    return {"rocksdb": "headrace_rocksdb.state_store:RocksStateStore"}


@hookimpl
def headrace_local_stores() -> Mapping[str, str]:
    return {"rocksdb": "headrace_rocksdb.local_store:RocksLocalStore"}
