"""The RocketMQ sink: at least once, or idempotent, so that headrace's own source gives each row once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from headrace.flow.messages import CHANGE
from headrace.flow.schema import Schema, type_name
from headrace.foundation.errors import DataError, JobError, OptionError, RetriableError, did_you_mean
from headrace.interfaces.codec import Encoder, encodes_changes
from headrace.interfaces.registry import default_registry
from headrace.interfaces.sink import IdempotentSink, Sink, SinkBatch, SinkSettings

from headrace_rocketmq.client import Client
from headrace_rocketmq.deduplication import upstream_name
from headrace_rocketmq.errors import RocketMQError, TopicNotFoundError
from headrace_rocketmq.job_errors import as_job_error, explained
from headrace_rocketmq.message import RESERVED_PROPERTIES, Message
from headrace_rocketmq.queue_reader import SHARDING_KEY
from headrace_rocketmq.settings import PLUGIN, RocketMQSinkSettings, make_client
from headrace_rocketmq.table_options import SINK_TABLES

if TYPE_CHECKING:
    import polars as pl


class RocketMQSink(Sink):
    """Writes rows as messages of a topic, many in one request.

    Guarantee: at least once; ``delivery="idempotent"`` makes an object of the other class. Each message has the row's id as its first
    key: ``hr:<writer>/<queue>:<offset>:<index>``.
    """

    Settings: ClassVar[type[SinkSettings]] = RocketMQSinkSettings
    table_options = SINK_TABLES
    concurrent = True

    def __new__(cls, settings: RocketMQSinkSettings) -> RocketMQSink:
        if cls is RocketMQSink and settings.delivery == "idempotent":
            return super().__new__(RocketMQTopicSink)
        return super().__new__(cls)

    def __getnewargs__(self) -> tuple[RocketMQSinkSettings]:
        return (self._own,)

    def __init__(self, settings: RocketMQSinkSettings) -> None:
        self._own = settings
        self.settings = settings
        self.accepts = "changelog" if encodes_changes(settings.format) else "append"
        self._schema: Schema | None = None
        self._encoder: Encoder | None = None
        self._client: Client | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_encoder": None, "_client": None}

    def check(self, schema: Schema | None) -> None:
        self._schema = schema
        for name in self._own.properties or ():
            if name in RESERVED_PROPERTIES or name == SHARDING_KEY:
                raise OptionError(
                    f"{name!r} is a property that RocketMQ or this sink sets",
                    plugin=PLUGIN,
                    option="properties",
                    hint="give the column another name; the options key, tag and keys set keys and tags",
                )
        if schema is not None:
            for option, names in self._named_columns().items():
                for name in names:
                    self._check_column(schema, option, name)
        self._make_encoder()

    def prepare(self, schema: Schema | None) -> None:
        self._check_changes()
        with explained(self._own), make_client(self._own) as client, explained(self._own, client):
            try:
                client.queues(self._own.topic)
            except TopicNotFoundError:
                if not self._own.create_topic:
                    raise
                client.create_topic(self._own.topic, self._own.queues)

    def open(self) -> None:
        self._encoder = self._make_encoder()
        if self._client is None:
            with explained(self._own):
                self._client = make_client(self._own)

    def batch_insert(self, batch: SinkBatch) -> None:
        assert self._client is not None, "open() must be called first"
        messages = self.messages(batch)
        try:
            self._client.send_many(self._own.topic, messages)
        except TopicNotFoundError as error:
            # It existed at the start. A name server forgets a topic while its only broker is down.
            raise RetriableError(f"{error} (name servers {self._own.name_servers})", plugin=PLUGIN) from error
        except RocketMQError as error:
            raise as_job_error(error, self._own) from error

    def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def messages(self, batch: SinkBatch) -> Sequence[Message]:
        """Return the batch's rows as messages. Raises DataError for a row whose keys or properties are not valid."""
        assert self._encoder is not None, "open() must be called first"
        own = self._own
        bodies = self._encoder.encode(self._body_frame(batch))
        rows = batch.rows() if batch.dynamic else None
        upstream = upstream_name(self.writer_name, batch.queue.id)
        ids = [f"{upstream}:{offset}:{index}" for offset, index in batch.positions()]
        nothing: list[str | None] = [None] * len(bodies)
        texts = {
            name: texts_of(batch.frame[name] if rows is None else [row.get(name) for row in rows], name)
            for name in {name for names in self._named_columns().values() for name in names}
        }
        chosen = nothing if own.key is None else texts[own.key]
        tags = nothing if own.tag is None else texts[own.tag]
        properties = own.properties or []
        keys = own.keys or []
        messages = []
        for row, (body, row_id, key, tag) in enumerate(zip(bodies, ids, chosen, tags, strict=True)):
            found = {name: value for name in properties if (value := texts[name][row])}
            if key:
                found[SHARDING_KEY] = key
            messages.append(
                Message(
                    body,
                    tag=tag or None,
                    keys=[row_id, *(value for name in keys if (value := texts[name][row]))],
                    properties=found,
                    queue_key=self.queue_key(key, upstream),
                )
            )
        return messages

    def queue_key(self, key: str | None, upstream: str) -> str | None:
        """Return the text that selects the queue of a row; None: any queue."""
        return key

    @property
    def keeps_order(self) -> bool:
        """Whether rows without a key go to one queue, in the order of their upstream queue."""
        return False

    def _check_changes(self) -> None:
        """Raise JobError where changes of one row would go to several queues, and be read in another order."""
        changes, key = self.changes, self._own.key
        if changes is None or (key is None and self.keeps_order):
            return
        if key is None or (changes.key is not None and key not in changes.key):
            named = ", ".join(changes.key or ()) or "of no column"
            raise JobError(
                f"the stream is a changelog with the key {named}: changes of one row would go to several queues of the topic",
                plugin=PLUGIN,
                option="key",
                hint="name a column of the stream's key, or set delivery='idempotent'",
            )

    def _body_frame(self, batch: SinkBatch) -> pl.DataFrame:
        if batch.dynamic:
            return batch.frame
        frame = batch.to_polars()
        return frame.with_columns(batch.frame[CHANGE]) if CHANGE in batch.frame.columns else frame

    def _named_columns(self) -> dict[str, list[str]]:
        """Return the columns that options name, by option."""
        own = self._own
        return {
            "key": [own.key] if own.key is not None else [],
            "tag": [own.tag] if own.tag is not None else [],
            "keys": own.keys or [],
            "properties": own.properties or [],
        }

    def _check_column(self, schema: Schema, option: str, name: str) -> None:
        if name not in schema:
            hint = did_you_mean(name, schema, known="columns")
            raise OptionError(f"unknown column {name!r}", plugin=PLUGIN, option=option, hint=hint)
        if not _has_text(schema[name]):
            raise OptionError(
                f"column {name!r} is {type_name(schema[name])}, not text, a number, a boolean or a time",
                plugin=PLUGIN,
                option=option,
            )

    def _make_encoder(self) -> Encoder:
        codec = default_registry().find("codec", self._own.format)
        settings = codec.Settings.of(self._own.format_options, plugin=self._own.format)
        encoder: Encoder = codec(settings).encoder(self._schema)
        return encoder


class RocketMQTopicSink(RocketMQSink, IdempotentSink):
    """Writes rows so that a source with ``deduplicate=True`` gives each once.

    All rows of one upstream queue and one key go to one queue of the topic, in order. So a row whose position is not
    greater than the greatest before it, of its upstream queue and in its topic queue, was there already. This needs a fixed
    number of queues of the topic: if it changes, a row that is written again may come to another queue, and then counts as new.
    """

    def queue_key(self, key: str | None, upstream: str) -> str | None:
        return upstream if key is None else key

    @property
    def keeps_order(self) -> bool:
        return True


def texts_of(values: pl.Series | Sequence[Any], name: str) -> list[str | None]:
    """Return values as texts: numbers and booleans as JSON writes them, times as ISO 8601."""
    import polars as pl

    if not isinstance(values, pl.Series):
        return [_text_of(value, name) for value in values]
    if values.dtype == pl.Binary:
        try:
            return values.cast(pl.String).to_list()
        except pl.exceptions.PolarsError as error:
            raise DataError(f"column {name!r} holds bytes that are not UTF-8", plugin=PLUGIN) from error
    if values.dtype == pl.Datetime:
        return values.dt.to_string("iso:strict").to_list()
    return values.cast(pl.String).to_list()


def _text_of(value: Any, name: str) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError as error:
            raise DataError(f"column {name!r} holds bytes that are not UTF-8", plugin=PLUGIN) from error
    raise DataError(f"column {name!r} holds a {type(value).__name__}, which is no text or number", plugin=PLUGIN)


def _has_text(kind: pl.DataType) -> bool:
    return not kind.is_nested() and kind.base_type().__name__ not in ("Object", "Unknown", "Null")
