"""Reading one shard of an index, or one slice of it, in the order of its writes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import msgspec
import numpy as np
from headrace.flow.messages import Bodies, Queue, RawBatch, ReadPosition
from headrace.foundation.errors import DataError, JobError, RetriableError
from headrace.interfaces.readers import OffsetReader

from headrace_elasticsearch.connection import Connection, decoded, index_path
from headrace_elasticsearch.settings import ElasticsearchSourceSettings

_OFFSET_MAX = 2**63 - 1
#: The most documents in an answer, by the default of index.max_result_window.
_WINDOW = 10_000
#: https://lucene.apache.org/core/10_0_0/core/org/apache/lucene/index/IndexWriter.html#MAX_DOCS
_SHARD_DOCUMENTS_MAX = 2**31 - 1


@dataclass(frozen=True)
class Shard:
    """What a queue is made of: a shard of an index, or slice ``part`` of ``parts`` of it."""

    index: str
    number: int
    part: int = 0
    parts: int = 1


class _Hit(msgspec.Struct):
    sort: list[int]
    id: str = msgspec.field(name="_id", default="")
    source: msgspec.Raw = msgspec.field(name="_source", default=msgspec.Raw(b""))


class _Hits(msgspec.Struct):
    hits: list[_Hit]
    total: dict[str, Any] | None = None


class _Page(msgspec.Struct):
    hits: _Hits
    timed_out: bool = False
    shards: dict[str, Any] = msgspec.field(name="_shards", default_factory=dict)
    pit_id: str | None = None


_page = msgspec.json.Decoder(_Page).decode


def asked(query: str | Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Return the query in the form that the server accepts; a text is in Lucene's syntax."""
    if query is None:
        return {"match_all": {}}
    return {"query_string": {"query": query}} if isinstance(query, str) else query


class ElasticsearchReader(OffsetReader):
    """Reads from snapshots of the shard, which are taken when they are needed; the sequence numbers of writes are the offsets.

    Writes become visible in no particular order. But the server knows the number up to which all writes are done on every copy
    of the shard (the global checkpoint), and a refresh makes them visible. A snapshot taken after that has all of them, and
    only these are read from it. Without the right to refresh, documents that were written just before may be missed.
    """

    def __init__(
        self, settings: ElasticsearchSourceSettings, connection: Connection, shard: Shard, queue: Queue
    ) -> None:
        self._settings = settings
        self._connection = connection
        self._shard = shard
        self._queue = queue
        super().__init__()
        self._uuid = ""
        self._snapshot: str | None = None
        #: The offset up to which the snapshot is complete.
        self._snapshot_end = 0

    # ----------------------------------------------------------------------------------------------- where to begin

    def begin(self, *, latest: bool) -> None:
        """Take the position of a queue that no checkpoint knows."""
        end = self._end()
        self._next = end if latest else 0

    def restore(self, position: ReadPosition) -> None:
        """Take a checkpoint's position. Raises DataError when the index cannot have reached it, because it was created again."""
        end = self._end()
        known = position.hint.get("index_uuid", self._uuid)
        if position.offset > end or known != self._uuid:
            raise DataError(
                f"position {position.offset} is not in this index, whose shard is written up to {end}: the index was"
                " deleted and created again",
                plugin="elasticsearch",
                queue=self._queue.id,
                offset=position.offset,
                hint="start with a new checkpoint to read it from its beginning",
            )
        self._next = position.offset

    @property
    def position(self) -> ReadPosition:
        return self._position_at(self._next)

    def _position_at(self, offset: int) -> ReadPosition:
        return ReadPosition(offset, {"index_uuid": self._uuid})

    @property
    def earliest(self) -> int:
        end = self.latest
        self._look_up_to(end, needed=0)
        hits = self._search(0, end, 1, source=False).hits.hits if self._snapshot else []
        return hits[0].sort[0] if hits else end

    @property
    def latest(self) -> int:
        return self._end()

    def position_after(self, max_records: int) -> ReadPosition:
        end = self._end()
        if max_records >= _SHARD_DOCUMENTS_MAX:
            return self._position_at(max(end, self._next))
        self._look_up_to(end, needed=self._next)
        at, left = self._next, max_records
        if self._snapshot is None or at >= end:
            return self.position
        if max_records > _WINDOW:
            counted = self._search(at, end, 0, source=False, count_up_to=max_records + 1).hits.total
            if counted is not None and counted["value"] <= max_records:
                return self._position_at(end)
        while left > 0 and at < end:
            size = min(left, _WINDOW)
            hits = self._search(at, end, size, source=False).hits.hits
            if len(hits) < size:
                return self._position_at(end)
            at, left = hits[-1].sort[0] + 1, left - size
        return self._position_at(at)

    # ------------------------------------------------------------------------------------------------------ reading

    def poll(self, max_records: int, timeout: timedelta) -> RawBatch | None:
        if self._next >= self._snapshot_end:
            self._look_up_to(self._end(), needed=self._next)
        end = self._snapshot_end
        if self._snapshot is None or self._next >= end:
            return None
        size = min(max_records, self._settings.page_rows)
        hits = self._search(self._next, end, size, source=True).hits.hits
        if not hits:
            self._next = end
            return None
        # Fewer than requested: there are no more. The end of a run waits until the position reaches it.
        self._next = end if len(hits) < size else hits[-1].sort[0] + 1
        offsets = np.fromiter((hit.sort[0] for hit in hits), dtype=np.int64, count=len(hits))
        if int(offsets[-1]) == _OFFSET_MAX:
            raise self._without_numbers()
        bodies = Bodies.of([bytes(hit.source) or b"null" for hit in hits])
        return RawBatch(offsets, self.position, bodies=bodies, keys=[hit.id.encode() for hit in hits])

    def _look_up_to(self, end: int, *, needed: int) -> None:
        """Take a snapshot that is complete up to ``end``, if it can contain documents from ``needed`` on."""
        if end <= needed or (self._snapshot is not None and self._snapshot_end >= end):
            return
        self._drop_snapshot()
        index = self._settings.index
        if self._settings.refresh:
            self._connection.request("POST", index_path(self._shard.index, "_refresh"), option="refresh")
        query = {
            "keep_alive": f"{max(1, round(self._settings.keep_alive.total_seconds()))}s",
            "preference": f"_shards:{self._shard.number}",
        }
        self._snapshot = self._connection.ask("POST", index_path(index, "_pit"), query=query)["id"]
        self._snapshot_end = end

    def _search(self, begin: int, end: int, size: int, *, source: bool, count_up_to: int = 0) -> _Page:
        """Return a page of documents from ``begin`` to before ``end``, taking a new snapshot when the old one is lost."""
        for attempt in (1, 2):
            if self._snapshot is None:
                self._look_up_to(end, needed=begin)
            body = self._request_body(begin, end, size, source=source, count_up_to=count_up_to)
            status, content = self._connection.request(
                "POST", "/_search", body, query={"allow_partial_search_results": "false"}, allow=(404,), option="query"
            )
            if status != 404:
                return self._whole(content)
            # The server was restarted, or nothing was asked for longer than keep_alive.
            self._snapshot = None
            if attempt == 2:
                raise self._connection.refused(status, content, "keep_alive")
        raise AssertionError("unreachable")

    def _request_body(self, begin: int, end: int, size: int, *, source: bool, count_up_to: int) -> dict[str, Any]:
        settings, shard = self._settings, self._shard
        filters: list[Mapping[str, Any]] = [
            {"range": {"_seq_no": {"gte": begin, "lt": end}}},
            {"term": {"_index": shard.index}},  # an alias can have other indices
            asked(settings.query),
        ]
        body: dict[str, Any] = {
            "size": size,
            "query": {"bool": {"filter": filters}},
            "pit": {"id": self._snapshot, "keep_alive": f"{max(1, round(settings.keep_alive.total_seconds()))}s"},
            "sort": [{"_seq_no": "asc"}],
            "track_total_hits": count_up_to or False,
            "_source": (settings.fields or True) if source else False,
        }
        if shard.parts > 1:
            body["slice"] = {"field": "_seq_no", "id": shard.part, "max": shard.parts}
        return body

    def _whole(self, content: bytes) -> _Page:
        """Return a complete page."""
        try:
            page = _page(content)
        except msgspec.DecodeError as error:
            raise JobError(
                f"the server's answer to a search cannot be read: {error}", plugin="elasticsearch", option="url"
            ) from error
        if page.timed_out or page.shards.get("failed"):
            raise RetriableError(
                f"{self._connection.where}: a search ended before all shards had answered",
                plugin="elasticsearch",
                queue=self._queue.id,
            )
        if page.pit_id is not None:
            self._snapshot = page.pit_id
        return page

    def _end(self) -> int:
        """Return the offset after the last write that is done on all copies of the shard."""
        shard = self._shard
        filters = ("uuid", "shards.*.routing.primary", "shards.*.seq_no.global_checkpoint")
        query = {"level": "shards", "filter_path": ",".join(f"indices.*.{name}" for name in filters)}
        status, content = self._connection.request(
            "GET", index_path(shard.index, "_stats", "indexing"), query=query, allow=(404,)
        )
        if status == 404:
            raise DataError(
                f"index {shard.index!r} has gone",
                plugin="elasticsearch",
                queue=self._queue.id,
                hint="it was probably deleted: create it, or name another index",
            )
        found = (decoded(content).get("indices") or {}).get(shard.index) or {}
        for copy in found.get("shards", {}).get(str(shard.number), ()):
            if copy["routing"]["primary"] and "seq_no" in copy:
                if self._uuid and self._uuid != found["uuid"]:
                    raise DataError(
                        f"index {shard.index!r} was deleted and created again meanwhile",
                        plugin="elasticsearch", queue=self._queue.id, hint="start with a new checkpoint",
                    )  # fmt: skip
                self._uuid = found["uuid"]
                return int(copy["seq_no"]["global_checkpoint"]) + 1
        raise RetriableError(
            f"{self._connection.where}: shard {shard.number} of index {shard.index!r} has no primary copy at the moment",
            plugin="elasticsearch",
            queue=self._queue.id,
        )

    def _without_numbers(self) -> JobError:
        return JobError(
            f"index {self._shard.index!r} does not store sequence numbers",
            plugin="elasticsearch",
            option="index",
            queue=self._queue.id,
            hint="reindex it into an index without the setting index.disable_sequence_numbers",
        )

    def _drop_snapshot(self) -> None:
        snapshot, self._snapshot = self._snapshot, None
        self._snapshot_end = 0
        if snapshot is not None:
            # It does not matter if the server has already dropped it.
            self._connection.request("DELETE", "/_pit", {"id": snapshot}, allow=(404,))

    def close(self) -> None:
        snapshot, self._snapshot = self._snapshot, None
        self._snapshot_end = 0
        if snapshot is None:
            return
        try:
            self._connection.request("DELETE", "/_pit", {"id": snapshot}, allow=(404,))
        except RetriableError:
            return  # the server is not available; it drops the snapshot by itself after keep_alive
