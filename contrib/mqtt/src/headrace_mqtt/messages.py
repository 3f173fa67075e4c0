"""Rows as messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import polars as pl
from headrace.flow.messages import ROW
from headrace.flow.rows import pack_rows
from headrace.flow.schema import Schema
from headrace.foundation.errors import did_you_mean
from headrace.interfaces.registry import default_registry
from headrace.interfaces.sink import SinkBatch

from headrace_mqtt.settings import MqttSinkSettings, refused

if TYPE_CHECKING:
    from headrace.interfaces.codec import Encoder


class MessageMaker:
    """Makes the topic and the payload of each row. ``None`` as the columns means that they are known only row by row.

    Raises OptionError for a column of topics that is not there or is not a text, and for options that the format does not have.
    """

    def __init__(self, settings: MqttSinkSettings, schema: Schema | None) -> None:
        self._topic, self._column = settings.topic, settings.topic_column
        values = schema
        if self._column is not None and schema is not None:
            if self._column not in schema:
                hint = did_you_mean(self._column, schema, known="columns")
                raise refused("topic_column", f"unknown column {self._column!r}", hint)
            if schema[self._column] != pl.String:
                raise refused(
                    "topic_column", f"column {self._column!r} is {schema[self._column]}", "a topic must be text"
                )
            values = schema.part(name for name in schema if name != self._column)
        codec = default_registry().find("codec", settings.format)
        self._encoder: Encoder = codec(codec.Settings.of(settings.format_options, plugin=settings.format)).encoder(
            values
        )

    def payloads(self, batch: SinkBatch) -> Sequence[bytes]:
        """Return the payload of each row. Raises DataError for a row that the format cannot hold."""
        if not batch.dynamic:
            frame = batch.to_polars()
            if self._column is not None:
                frame = frame.drop(self._column)
            return self._encoder.encode(frame) if frame.width else [b"{}"] * len(batch)
        if self._column is None:
            return self._encoder.encode(batch.frame.select(ROW))
        rows = [{name: value for name, value in row.items() if name != self._column} for row in batch.rows()]
        return self._encoder.encode(pl.DataFrame({ROW: pack_rows(rows)}, schema={ROW: pl.Binary}))

    def topics(self, batch: SinkBatch) -> Sequence[object]:
        """Return the topic of each row. A value that is not a text, or NULL, is returned as it is; the caller refuses
        it.
        """
        if self._column is None:
            return [self._topic] * len(batch)
        if batch.dynamic:
            return [row.get(self._column) for row in batch.rows()]
        return batch.frame[self._column].to_list()
