"""State in a topic of a broker: every instance of a job can continue where another has stopped.

The queue of a shard holds its versions, each cut into records that the broker accepts. A version names the version that it
changes, by a random id: so a load always gives a chain that one owner after the other has built. Two processes that both
believe to be the owner build two chains from the same input, and both are right; the longer one is loaded.
"""

from __future__ import annotations

import io
import secrets
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import msgspec
from headrace.flow.messages import Queue, ReadPosition
from headrace.foundation.clock import Clock, SystemClock
from headrace.foundation.errors import CheckpointError, RetriableError
from headrace.interfaces.source import EARLIEST, GroupSource, Reader
from headrace.interfaces.state_store import StateStore
from headrace.interfaces.topics import Topics

FORMAT_VERSION = 1
#: Upper bound for the bytes of a record beside its part of the content.
_OVERHEAD_BYTES = 1_000
_WAIT = timedelta(seconds=1)
_SILENT_MAX = 30
_RECORDS_MAX = 100
#: Contents smaller than this are not compressed.
_PACKED_BYTES_MIN = 4_096
#: How long a load waits for a version that must exist.
_SHOWN_SECONDS_MAX = 10.0
_LOOK_SECONDS = 0.05


@dataclass
class _Version:
    """A version as far as it has been read."""

    number: int
    base: str | None
    snapshot: bool
    packing: str
    parts: list[bytes]
    parts_expected: int

    def content(self) -> bytes:
        """Return the saved versions."""
        return _unpacked(b"".join(self.parts), self.packing)


@dataclass
class _Chain:
    """The chain that this process continues: the last version's id and number, and the offset from which it can be read.

    ``in_doubt``: it is not known whether the last version was stored, so the next one must be a snapshot. ``trim`` is the
    offset from which records are kept: also the snapshot before the last one, because another process may continue it.
    """

    id: str | None = None
    number: int = -1
    since: int = 0
    trim: int | None = None
    in_doubt: bool = False


class TopicStateStore(StateStore):
    """Keeps the shards of one shuffle in a topic with a queue for each. Used by one thread.

    ``known`` tells for a shard which version must be there (what its group has committed), or None: the newest records are
    read first, and all of them only if that version is not among them. A broker that keeps topics for some days only has to
    be given a snapshot within that time. Records older than the last two snapshots are removed, if the broker can do that. A
    process that has lost a shard and does not know it yet may store one snapshot, and must not remove the versions that the new
    owner needs.
    """

    shared = True

    def __init__(
        self,
        topics: Topics,
        topic: str,
        queues: int,
        known: Callable[[str], int | None] = lambda shard: None,
        clock: Clock | None = None,
    ) -> None:
        self._topics = topics
        self._topic = topic
        self._known = known
        self._clock = clock or SystemClock()
        self._never = threading.Event()
        self._part_bytes = topics.max_record_bytes - _OVERHEAD_BYTES
        topics.create(topic, queues)
        self._source: GroupSource = topics.source(topic, topic)
        self._queues: dict[int, Queue] = {}
        self._chains: dict[str, _Chain] = {}

    def save(self, shard: str, version: int, delta: bytes, *, snapshot: bool = False) -> None:
        """See StateStore. Raises RetriableError when the broker is away; then the next version must be a snapshot."""
        chain = self._chains.setdefault(shard, _Chain())
        if chain.in_doubt and not snapshot:
            raise RetriableError(
                f"version {chain.number} of the state may be missing: a snapshot must be stored first", queue=shard
            )
        whole = snapshot or chain.id is None
        new = _Chain(secrets.token_hex(8), version, chain.since, chain.trim)
        if whole:
            new.since, new.trim = self._end(shard), None if chain.id is None else chain.since
        content, packing = _packed(delta)
        size = self._part_bytes
        parts = [content[begin : begin + size] for begin in range(0, len(content), size)] or [b""]
        records = [
            msgspec.msgpack.encode(
                {
                    "format": FORMAT_VERSION, "id": new.id, "base": None if whole else chain.id, "version": version,
                    "snapshot": snapshot, "since": new.since, "part": place, "parts": len(parts), "packing": packing,
                    "content": part,
                }
            )
            for place, part in enumerate(parts)
        ]  # fmt: skip
        self._chains[shard] = _Chain(chain.id, version, chain.since, chain.trim, in_doubt=True)
        self._topics.append(self._topic, _number(shard), records)
        self._topics.flush()
        self._chains[shard] = new

    def load(self, shard: str, version: int | None = None) -> Iterator[tuple[int, bytes, bool]]:
        known = self._known(shard)
        wanted = known if version is None or known is None else min(known, version)
        begun = self._clock.monotonic()
        since, found = self._look(shard, version, wanted)
        # A broker may show accepted records only a moment later.
        while wanted is not None and (not found or found[-1][1].number < wanted):
            if self._clock.monotonic() - begun > _SHOWN_SECONDS_MAX:
                break
            self._clock.wait(self._never, _LOOK_SECONDS)
            since, found = self._look(shard, version, wanted)
        self._chains[shard] = _Chain(found[-1][0], found[-1][1].number, since) if found else _Chain()
        for _, each in found:
            yield each.number, each.content(), each.snapshot

    def _look(self, shard: str, version: int | None, wanted: int | None) -> tuple[int, list[tuple[str, _Version]]]:
        """Return the newest chain that can be read now, and the offset where it begins."""
        reader = self._source.open(self._queue(shard), EARLIEST)
        try:
            first, end = reader.earliest, reader.latest
        finally:
            reader.close()
        if end <= first:
            return first, []
        last = next(self._records(shard, end - 1, end))[1]
        since = max(first, min(int(last["since"]), end - 1))
        found = _newest_chain(self._versions(shard, since, end), version)
        if since > first and (not found or (wanted is not None and found[-1][1].number < wanted)):
            since = first
            found = _newest_chain(self._versions(shard, since, end), version)
        return since, found

    def remove(self, shard: str, *, before: int) -> None:
        chain = self._chains.get(shard, _Chain())
        if chain.trim is not None and not chain.in_doubt and chain.number >= before:
            self._topics.trim(self._topic, _number(shard), before=chain.trim)

    def close(self) -> None:
        self._source.close()

    # ------------------------------------------------------------------------------------------------- reading

    def _versions(self, shard: str, begin: int, end: int) -> dict[str, _Version]:
        """Return the complete versions among some records, by id, in their order."""
        found: dict[str, _Version] = {}
        for _, record in self._records(shard, begin, end):
            known = found.get(record["id"])
            if known is None and record["part"] == 0:
                known = _Version(
                    int(record["version"]), record["base"], record["snapshot"], record["packing"], [], record["parts"]
                )
                found[record["id"]] = known
            # A part that comes twice was sent again; a part that does not follow belongs to a version whose beginning was not read.
            if known is not None and record["part"] == len(known.parts):
                known.parts.append(record["content"])
        return {name: each for name, each in found.items() if len(each.parts) == each.parts_expected}

    def _records(self, shard: str, begin: int, end: int) -> Iterator[tuple[int, dict[str, Any]]]:
        reader = self._source.open(self._queue(shard), ReadPosition(begin))
        try:
            silent = 0
            while reader.position.offset < end:
                raw = reader.poll(_RECORDS_MAX, _WAIT)
                if raw is None:
                    silent += 1
                    if silent >= _SILENT_MAX:
                        raise RetriableError(
                            f"the broker does not return record {reader.position.offset} of {end} of the state",
                            queue=shard,
                        )
                    continue
                silent = 0
                assert raw.bodies is not None
                for place, offset in enumerate(raw.offsets.tolist()):
                    if offset < end:
                        yield offset, _decoded(bytes(raw.bodies[place]), shard)
        finally:
            reader.close()

    def _end(self, shard: str) -> int:
        reader: Reader = self._source.open(self._queue(shard), EARLIEST)
        try:
            return reader.latest
        finally:
            reader.close()

    def _queue(self, shard: str) -> Queue:
        if not self._queues:
            self._queues = {self._topics.number_of(queue): queue for queue in self._source.queues()}
        return self._queues[_number(shard)]


def _newest_chain(versions: dict[str, _Version], version: int | None) -> list[tuple[str, _Version]]:
    """Return the versions of the newest complete chain up to ``version``, from its snapshot on."""
    order = {name: place for place, name in enumerate(versions)}
    newest = sorted(
        (name for name, each in versions.items() if version is None or each.number <= version),
        key=lambda name: (versions[name].number, order[name]),
        reverse=True,
    )
    for name in newest:
        chain: list[tuple[str, _Version]] = []
        at: str | None = name
        while at is not None and at in versions:
            chain.append((at, versions[at]))
            at = versions[at].base
        if at is None:
            return chain[::-1]
    return []


def _packed(content: bytes) -> tuple[bytes, str]:
    """Return the content as it is stored, and the name of its encoding: Arrow's stream format compressed with
    Zstandard, which polars writes.
    """
    if len(content) < _PACKED_BYTES_MIN:
        return content, "none"
    import polars as pl

    buffer = io.BytesIO()
    pl.DataFrame({"content": [content]}).write_ipc_stream(buffer, compression="zstd")
    return buffer.getvalue(), "arrow-zstd"


def _unpacked(content: bytes, packing: str) -> bytes:
    if packing == "none":
        return content
    import polars as pl

    found: bytes = pl.read_ipc_stream(io.BytesIO(content))["content"][0]
    return found


def _decoded(record: bytes, shard: str) -> dict[str, Any]:
    try:
        stored: dict[str, Any] = msgspec.msgpack.decode(record)
        version = stored["format"]
    except (msgspec.DecodeError, KeyError, TypeError) as error:
        raise CheckpointError(
            f"a record of the state of shard {shard} was not written by headrace: {error!r:.200}",
            hint="the topic belongs to the job: no other program may write to it",
        ) from error
    if version > FORMAT_VERSION:
        raise CheckpointError(
            f"the state of shard {shard} was written by a newer version of headrace (format {version})",
            hint="run all instances of the job with that version",
        )
    return stored


def _number(shard: str) -> int:
    """Return the number of a shard from its name, ``shuffle/number``."""
    return int(shard.rpartition("/")[2])
