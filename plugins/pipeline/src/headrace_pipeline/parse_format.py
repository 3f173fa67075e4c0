"""The verb ``parse_format``: a column of texts is decoded by a format, as bodies of a source are."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import headrace as hr
import polars as pl
from headrace.codecs.decoded_columns import DecodedColumn
from headrace.foundation.errors import did_you_mean
from headrace.interfaces.registry import default_registry


class ParseFormat(hr.OperatorSpec):
    """Adds the columns that a format makes of a text: JSON in a field of a log line, pairs behind a prefix.

    ``stream.parse_format("json", on="payload", schema={"user": "string"})`` decodes each text of ``payload`` as a source with
    ``format="json"`` decodes a record, and keeps the other columns. A NULL gives NULLs. A text that is not of the format makes its row a
    dead letter. Raises JobError when the job is built for an unknown format or option, and for columns that there are already.

    Args:
        format: the name of an installed format. Formats whose records are changes are refused.
        on: the column of texts or bytes.
        schema: the columns, as for a source. Formats that know their columns, such as ``grok``, need none.
        options: those of the format.
    """

    name = "parse_format"

    def __init__(
        self, format: str, *, on: str = "message", schema: Mapping[str, Any] | None = None, **options: Any
    ) -> None:
        codec_class = default_registry().find("codec", format)
        self.format = format
        self.on = on
        self._codec: hr.Codec = codec_class(codec_class.Settings.of(options, plugin=format))
        self._options = options
        fields = hr.Schema.of(schema) if schema is not None else self._codec.default_schema()
        if fields is None:
            raise hr.OptionError(f"format {format!r} needs a schema", plugin=self.name, option="schema")
        if self._codec.changes() is not None or self._codec.header_fields:
            raise hr.OptionError(
                f"format {format!r} reads more than one text, or returns several rows for one text", plugin=self.name,
                option="format", hint="use it as the format of a source",
            )  # fmt: skip
        self._fields = fields
        self._codec.decoder(fields)  # raises now if the format cannot handle these columns

    def output_schema(self, schema: hr.Schema | None, output: str = "") -> hr.Schema | None:
        """Return the columns before and those of the format behind them. Raises PlanError if they do not fit together."""
        if schema is None:
            raise hr.PlanError(
                "the columns are not known when the job is built",
                plugin=self.name,
                hint="declare them: map(function, schema={…})",
            )
        if self.on not in schema:
            hint = did_you_mean(self.on, schema, known="columns")
            raise hr.PlanError(f"unknown column {self.on!r}", plugin=self.name, hint=hint)
        if schema[self.on] not in (pl.String(), pl.Binary()):
            raise hr.PlanError(f"column {self.on!r} does not contain text", plugin=self.name, hint="cast it to string")
        taken = [name for name in self._fields if name in schema]
        if taken:
            raise hr.PlanError(
                f"{taken[0]!r} is a column already", plugin=self.name, hint="rename or drop it before this verb"
            )
        return hr.Schema({**schema, **self._fields}, json_columns=schema.json_columns | self._fields.json_columns)

    def required_columns(self, wanted: Collection[str] | None, schema: hr.Schema) -> Collection[str] | None:
        """Return the column of texts, which decides which rows are passed on, and the wanted columns that the format does not make."""
        if wanted is None:
            return None
        return [self.on, *(name for name in wanted if name in schema and name != self.on)]

    def open(self, schema: hr.Schema | None) -> hr.Operator:
        return DecodedColumn(self.on, self._codec.decoder(self._fields))

    def describe(self) -> str:
        """Return a text with everything on which the columns depend. ``explain`` shows it, and the definition of state
        behind this verb contains it.
        """
        given = "".join(f", {name}={value!r}" for name, value in sorted(self._options.items()))
        return f"{self.on} as {self.format}{given}: {', '.join(self._fields)}"
