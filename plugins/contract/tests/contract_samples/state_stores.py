"""Healthy state stores: one file of lines per shard, appended to and synced."""

from __future__ import annotations

import json
import os
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from headrace.foundation.errors import RetriableError
from headrace.interfaces.state_store import KeyedStateStore, ReadableStateStore, StateStore, StoredVersion


class LineStore(StateStore):
    """A line of JSON and then the bytes, for each version; the last of a number counts."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def save(self, shard: str, version: int, delta: bytes, *, snapshot: bool = False) -> None:
        head = json.dumps([version, len(delta), snapshot]).encode()
        self._path.mkdir(parents=True, exist_ok=True)
        with open(self._file(shard), "ab", buffering=0) as file:
            file.write(b"\n" + head + b"\n" + delta + b"\n" + head[::-1])

    def load(self, shard: str, version: int | None = None) -> Iterator[tuple[int, bytes, bool]]:
        versions = self._versions(shard)
        wanted = sorted(number for number in versions if version is None or number <= version)
        begin = max((place for place, number in enumerate(wanted) if versions[number][1]), default=0)
        for number in wanted[begin:]:
            yield number, *versions[number]

    def remove(self, shard: str, *, before: int) -> None:
        versions = self._versions(shard)
        needed = max((number for number, (_, whole) in versions.items() if whole and number <= before), default=0)
        self._rewrite(shard, {number: each for number, each in versions.items() if number >= needed})

    def _rewrite(self, shard: str, versions: Mapping[int, tuple[bytes, bool]]) -> None:
        temporary = self._file(shard).with_suffix(".new")
        temporary.unlink(missing_ok=True)
        self._path.mkdir(parents=True, exist_ok=True)
        temporary.touch()
        rewritten = LineStore(self._path)
        rewritten._file = lambda shard: temporary  # type: ignore[method-assign]
        for number, (content, whole) in sorted(versions.items()):
            rewritten.save(shard, number, content, snapshot=whole)
        os.replace(temporary, self._file(shard))

    def _versions(self, shard: str) -> dict[int, tuple[bytes, bool]]:
        found: dict[int, tuple[bytes, bool]] = {}
        path = self._file(shard)
        data = path.read_bytes() if path.exists() else b""
        at = 0
        while at < len(data):
            head, _, rest = data[at + 1 :].partition(b"\n")
            number, length, whole = json.loads(head) if head.endswith(b"]") else (0, 0, False)
            if len(rest) < length + 1 + len(head):
                break  # the process was killed here
            found[number] = (rest[:length], whole)
            at += 1 + len(head) + 1 + length + 1 + len(head)
        return found

    def _file(self, shard: str) -> Path:
        return self._path / re.sub(r"[^A-Za-z0-9-]", lambda found: f"%{ord(found[0]):x}", shard)


class ReadableLineStore(LineStore, ReadableStateStore):
    """Lines that another process may read: what is behind the last whole line is not there yet."""

    def stored(self, shard: str, version: int) -> tuple[bytes, bool] | None:
        return self._versions(shard).get(version)

    def go_on_from(self, shard: str, version: int) -> None:
        versions = self._versions(shard)
        kept = {number: each for number, each in versions.items() if number <= version}
        if kept != versions:
            self._rewrite(shard, kept)


class PartsStore(LineStore, KeyedStateStore):
    """Lines whose content is a list of parts, with a mark of its own; a version is known by it."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._marks: dict[str, dict[int, str]] = {}

    def save(self, shard: str, version: int, delta: bytes, *, snapshot: bool = False) -> None:
        super().save(shard, version, _packed([delta], in_parts=False), snapshot=snapshot)

    def save_parts(self, shard: str, version: int, parts: Sequence[bytes], *, snapshot: bool = False) -> None:
        super().save(shard, version, _packed(parts, in_parts=True), snapshot=snapshot)

    def load(self, shard: str, version: int | None = None) -> Iterator[tuple[int, bytes, bool]]:
        for number, content, whole in super().load(shard, version):
            yield number, b"".join(msgspec.msgpack.decode(content)["parts"]), whole

    def remove(self, shard: str, *, before: int) -> None:
        LineStore(self._path).remove(shard, before=before)

    def versions(self, shard: str) -> Sequence[StoredVersion]:
        found = [(number, msgspec.msgpack.decode(each), whole) for number, each, whole in super().load(shard)]
        self._marks[shard] = {number: each["mark"] for number, each, _ in found}
        return [
            StoredVersion(number, whole, each["parts"][0] if each["in_parts"] else None)
            for number, each, whole in found
        ]

    def load_parts(self, shard: str, wanted: Mapping[int, Sequence[range]]) -> Iterator[tuple[int, int, bytes]]:
        stored = {number: msgspec.msgpack.decode(each) for number, each, _ in super().load(shard)}
        for number, ranges in wanted.items():
            self.check(shard, number, stored)
            for place in (place for each in ranges for place in each):
                yield number, place, stored[number]["parts"][place]

    def check(self, shard: str, number: int, stored: Mapping[int, Mapping[str, Any]]) -> None:
        """Raise RetriableError when a version is not what it was."""
        if number not in stored or stored[number]["mark"] != self._marks[shard][number]:
            raise RetriableError(f"version {number} is not what it was", queue=shard)


def _packed(parts: Sequence[bytes], *, in_parts: bool) -> bytes:
    return msgspec.msgpack.encode({"mark": secrets.token_hex(8), "in_parts": in_parts, "parts": list(parts)})
