"""A healthy state store: one file of lines per shard, appended to and synced."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

from headrace.state_store import StateStore


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
        temporary = self._file(shard).with_suffix(".new")
        temporary.unlink(missing_ok=True)
        rewritten = LineStore(self._path)
        rewritten._file = lambda _: temporary  # type: ignore[method-assign]
        for number, (content, whole) in sorted(versions.items()):
            if number >= needed:
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
