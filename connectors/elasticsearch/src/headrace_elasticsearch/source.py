"""The Elasticsearch source: indices read once, shard by shard, in the order in which documents were written."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from headrace.flow.messages import Queue, ReadPosition
from headrace.foundation.errors import JobError, OptionError, did_you_mean
from headrace.interfaces.readers import started
from headrace.interfaces.settings import Settings
from headrace.interfaces.source import Reader, Source, StartAt, StartPosition

from headrace_elasticsearch.connection import Connection, index_path, no_such_index
from headrace_elasticsearch.mappings import mapped
from headrace_elasticsearch.reader import ElasticsearchReader, Shard, asked
from headrace_elasticsearch.settings import ElasticsearchSourceSettings
from headrace_elasticsearch.table_options import SOURCE_TABLES

if TYPE_CHECKING:
    from headrace.flow.schema import Schema
    from headrace.interfaces.codec import Codec

#: The number of connections that a source's readers share.
_CONNECTIONS = 10


class ElasticsearchSource(Source):
    """Reads the documents of indices by the number that the server gives to each write of a shard (``_seq_no``).

    A queue is a shard, or one of the ``slices`` of a shard; its offsets are these numbers. Each queue is read page by
    page, each after the last number of the one before, from a snapshot (a point in time). A document keeps its number until it
    is changed, so a position stays valid after the snapshot: a later snapshot continues there, and a changed document comes
    again, with a new number.
    """

    Settings: ClassVar[type[Settings]] = ElasticsearchSourceSettings
    table_options = SOURCE_TABLES
    bounded = True

    def __init__(self, settings: ElasticsearchSourceSettings) -> None:
        self.settings: ElasticsearchSourceSettings = settings
        self._schema: Schema | None = None
        self._connection: Connection | None = None
        self._looked = False

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_connection": None}

    def use_format(self, format: str | None, codec: Codec | None, schema: Schema | None) -> None:
        """Take the columns. Raises OptionError without a format: documents are JSON text for a codec to decode."""
        if codec is None:
            raise OptionError(
                "documents need a format", plugin="elasticsearch", option="format",
                hint="add format='json' and the columns: schema={'name': 'type', ...}",
            )  # fmt: skip
        self._schema = schema if format == "json" else None

    def restore(self, positions: Mapping[Queue, ReadPosition]) -> None:
        """Check that shards have the same slices as before. Raises JobError when not: documents would be read again."""
        for queue in positions:
            found = _parts_of(queue.name)
            if found is not None and found[3] != self.settings.slices:
                raise JobError(
                    f"the checkpoint has the queue {queue.name!r}, of another number of slices than {self.settings.slices}",
                    plugin="elasticsearch",
                    option="slices",
                    hint=f"set slices={found[3]} as before, or start with a new checkpoint",
                )

    def queues(self) -> Collection[Queue]:
        """Return the shards of the indices that there are now, or their slices."""
        settings, connection = self.settings, self._connected()
        names = ["index.number_of_shards"]
        found = connection.ask(
            "GET", index_path(settings.index, "_settings", *names), query={"flat_settings": "true"}, allow=(404,)
        )
        if not isinstance(found, dict):
            raise connection.another_product(found)
        if "error" in found or not found:
            raise no_such_index(connection, settings.index)
        queues = []
        for index, entry in sorted(found.items()):
            try:
                shards = int(entry["settings"]["index.number_of_shards"])
            except (KeyError, TypeError, ValueError) as error:
                raise connection.another_product(found) from error
            for number in range(shards):
                queues += [Queue(_name_of(index, number, part, settings.slices)) for part in range(settings.slices)]
        if not self._looked:
            self._look(connection)
            self._looked = True
        return queues

    def open(self, queue: Queue, start: StartPosition) -> Reader:
        """Return a reader. Raises JobError for a start by time, DataError for a position that the shard does not have."""
        if isinstance(start, StartAt):
            raise JobError(
                "the documents have no order by time, so start cannot be a time", plugin="elasticsearch", option="start",
                hint="give a query: query={'range': {'@timestamp': {'gte': '...'}}}",
            )  # fmt: skip
        parts = _parts_of(queue.name)
        if parts is None:
            raise JobError(f"{queue.name!r} is not a shard of an index", plugin="elasticsearch", queue=queue.id)
        reader = ElasticsearchReader(self.settings, self._connected(), Shard(*parts), queue)
        return started(reader, start)

    def close(self) -> None:
        """Close the connections. May be called twice; readers are closed before."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _connected(self) -> Connection:
        if self._connection is None:
            self._connection = Connection(self.settings, connections=_CONNECTIONS)
        return self._connection

    def _look(self, connection: Connection) -> None:
        """Check that the query can be run, and that the columns are fields. Raises JobError."""
        settings = self.settings
        body = {"size": 0, "terminate_after": 1, "query": asked(settings.query), "track_total_hits": False}
        connection.ask("POST", index_path(settings.index, "_search"), body, option="query")
        found = connection.ask("GET", index_path(settings.index, "_mapping"))
        mappings = [entry.get("mappings", {}) for entry in found.values()]
        if not any(mapping.get("properties") for mapping in mappings):
            return  # nothing was ever written
        if any(str(mapping.get("dynamic", "true")).lower() == "false" for mapping in mappings):
            return  # documents have fields that the mapping has not
        for option, names in (("fields", settings.fields or ()), ("schema", self._schema or ())):
            for name in names:
                if "*" not in name and not any(mapped(name, mapping) is not None for mapping in mappings):
                    known = {field for mapping in mappings for field in mapping.get("properties", ())}
                    raise JobError(
                        f"{connection.where}, index {settings.index!r}: no document has a field {name!r}",
                        plugin="elasticsearch",
                        option=option,
                        hint=did_you_mean(name, known, known="fields"),
                    )


_NAME = re.compile(r"(.+)/(\d+)(?:/(\d+)of(\d+))?")


def _name_of(index: str, number: int, part: int, slices: int) -> str:
    return f"{index}/{number}" + (f"/{part}of{slices}" if slices > 1 else "")


def _parts_of(name: str) -> tuple[str, int, int, int] | None:
    found = _NAME.fullmatch(name)
    return None if found is None else (found[1], int(found[2]), int(found[3] or 0), int(found[4] or 1))
