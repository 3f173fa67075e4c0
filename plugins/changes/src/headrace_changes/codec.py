"""What the codecs of all formats of changes have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from headrace.foundation.errors import OptionError
from headrace.interfaces.changes import SourceChanges
from headrace.interfaces.codec import Codec, Decoder, Encoder

from headrace_changes.encoder import Wrapping
from headrace_changes.envelopes import ChangeEnvelope

if TYPE_CHECKING:
    import polars as pl
    from headrace.codecs.json_columns import JsonColumn
    from headrace.codecs.text_columns import TimestampOptions
    from headrace.flow.schema import Schema


class ChangeCodec(Codec):
    """A format whose bodies are changes of rows. A subclass names its options, its envelope and how that is written."""

    envelope: ClassVar[type[ChangeEnvelope]]
    wrapping: ClassVar[Wrapping]
    encodes_changes = True
    constant_metadata = frozenset(
        {
            "schema", "source.database", "source.schema", "source.table", "database", "table", "sql-type", "pk-names",
            "primary-keys", "primary-key-columns",
        }
    )  # fmt: skip

    def __init__(self, settings: Any = None) -> None:
        super().__init__(settings)
        self._options = self.settings
        if self._options.timestamp_format is not None:
            from headrace.codecs.text_columns import check_timestamp_format

            check_timestamp_format(self._options.timestamp_format, "timestamp_format")

    @property
    def payload_field(self) -> str | None:
        """The field of the body that contains the envelope; None, the default: the body is the envelope."""
        return None

    def changes(self) -> SourceChanges:
        return SourceChanges(before_images=self._options.changelog_mode == "all")

    def metadata_types(self) -> Mapping[str, pl.DataType]:
        return {name: field.data_type for name, field in self.envelope.metadata.items()}

    def decoder(self, schema: Schema, columns: Sequence[str] | None = None) -> Decoder:
        return self.record_decoder(schema, columns)

    def record_decoder(
        self, schema: Schema, columns: Sequence[str] | None = None, metadata: Mapping[str, str] | None = None
    ) -> Decoder:
        """Return a decoder. Raises OptionError for a type that JSON has no form for."""
        from headrace.codecs.json_columns import json_column
        from headrace.codecs.text_columns import TimestampOptions, check_columns

        from headrace_changes.decoder import ChangeDecoder

        options = self._options
        texts = self._json_columns(schema)
        timestamps = TimestampOptions(options.timestamp_unit, options.timestamp_format)
        wanted = check_columns(schema, columns, "format")
        made = {
            name: json_column(schema[name], timestamps, name, raw_json=True)
            if name in texts
            else self.column(schema[name], timestamps, name)
            for name in wanted
        }
        return ChangeDecoder(self.envelope, made, metadata or {}, options, self.payload_field)

    def column(self, data_type: pl.DataType, timestamps: TimestampOptions, name: str) -> JsonColumn:
        """Return what reads the values of a column. Raises OptionError for a type that JSON has no form for."""
        from headrace.codecs.json_columns import json_column

        return json_column(data_type, timestamps, name)

    def encoder(self, schema: Schema | None) -> Encoder:
        from headrace.codecs.json_encoder import JsonEncoder

        from headrace_changes.encoder import ChangeEncoder

        return ChangeEncoder(JsonEncoder(self._json_columns(schema)), self.wrapping)

    def _json_columns(self, schema: Schema | None) -> frozenset[str]:
        named: tuple[str, ...] = self._options.json_columns
        for name in named:
            if schema is not None and name not in schema:
                raise OptionError(f"column {name!r} is not in the schema", option="json_columns")
        return frozenset(named) | (frozenset() if schema is None else schema.json_columns)
