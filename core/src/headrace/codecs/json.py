"""The format ``json``: one JSON object (RFC 8259) per body. Its rules are tabled in docs/formats.md."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from headrace.foundation.errors import OptionError
from headrace.interfaces import settings as declared
from headrace.interfaces.codec import Codec, Decoder, Encoder, faster_decoder
from headrace.interfaces.format_parts import JsonColumns, MaxBodyBytes, TextTimestampFormat, TimestampUnit

if TYPE_CHECKING:
    from headrace.flow.schema import Schema


class JsonSettings(declared.Settings, frozen=True, kw_only=True):
    """Options of the format ``json``."""

    max_body_bytes: MaxBodyBytes = 16 * 1024 * 1024
    timestamp_unit: TimestampUnit = "ms"
    timestamp_format: TextTimestampFormat = None
    json_columns: JsonColumns = ()


class JsonCodec(Codec):
    """One JSON object per body, its keys being the columns."""

    Settings: ClassVar[type[declared.Settings]] = JsonSettings

    def __init__(self, settings: JsonSettings | None = None) -> None:
        self._options = settings if settings is not None else JsonSettings()
        super().__init__(self._options)
        if self._options.timestamp_format is not None:
            from headrace.codecs.text_columns import check_timestamp_format

            check_timestamp_format(self._options.timestamp_format, "json")

    def decoder(self, schema: Schema, columns: Sequence[str] | None = None) -> Decoder:
        """Return a decoder. Raises OptionError for a type that JSON has no form for."""
        from headrace.codecs.json_columns import json_column
        from headrace.codecs.json_decoder import JsonDecoder
        from headrace.codecs.text_columns import TimestampOptions, check_columns

        options = self._options
        wanted = check_columns(schema, columns, "json")
        json_texts = self._json_columns(schema)
        timestamps = TimestampOptions(options.timestamp_unit, options.timestamp_format)
        made = {name: json_column(schema[name], timestamps, name, raw_json=name in json_texts) for name in wanted}
        plain = JsonDecoder(made, options.max_body_bytes)
        return faster_decoder("json", {name: schema[name] for name in wanted}, options, json_texts, plain)

    def encoder(self, schema: Schema | None) -> Encoder:
        """Return an encoder; it also takes frames of dynamic rows (see ``headrace.flow.rows``)."""
        from headrace.codecs.json_encoder import JsonEncoder

        return JsonEncoder(self._json_columns(schema))

    def _json_columns(self, schema: Schema | None) -> frozenset[str]:
        named = self._options.json_columns
        for name in named:
            if schema is not None and name not in schema:
                raise OptionError(f"column {name!r} is not in the schema", plugin="json", option="json_columns")
        return frozenset(named) | (frozenset() if schema is None else schema.json_columns)
