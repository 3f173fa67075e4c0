"""The format ``raw``: a body as it is, in one column, or cut into columns by a regular expression; see docs/formats.md."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from headrace.foundation.errors import OptionError, did_you_mean
from headrace.interfaces import settings as declared
from headrace.interfaces.codec import Codec, Decoder, Encoder
from headrace.interfaces.format_parts import MaxBodyBytes, TimestampFormat, TimestampUnit
from headrace.interfaces.settings import option

if TYPE_CHECKING:
    from headrace.flow.schema import Schema


class RawSettings(declared.Settings, frozen=True, kw_only=True):
    """Options of the format ``raw``."""

    column: Annotated[str, option("The column that holds the body, when no schema names it.", min_length=1)] = "line"
    type: Annotated[
        Literal["string", "binary"], option("The type of this column. Bodies of type string must be UTF-8.")
    ] = "string"
    pattern: Annotated[
        str | None,
        option(
            "A regular expression (in Rust's syntax) that is searched for in the body. Its named groups become the columns."
        ),
    ] = None
    no_match: Annotated[
        Literal["bad", "null"],
        option("What a body without a match of the pattern gives: a bad record, or a row of NULLs."),
    ] = "bad"
    null_value: Annotated[str | None, option("The text of a group that stands for NULL, for example '-'.")] = None
    max_body_bytes: MaxBodyBytes = 16 * 1024 * 1024
    timestamp_unit: TimestampUnit = "ms"
    timestamp_format: TimestampFormat = None

    def validate(self) -> None:
        """Check that a pattern has texts to look at."""
        if self.pattern is not None and self.type == "binary":
            raise OptionError(
                "a pattern can be searched only in text, and the bodies are binary", plugin="raw", option="pattern"
            )


class RawCodec(Codec):
    """Bodies without a structure, such as log lines."""

    Settings: ClassVar[type[declared.Settings]] = RawSettings

    def __init__(self, settings: RawSettings | None = None) -> None:
        self._options = settings if settings is not None else RawSettings()
        super().__init__(self._options)
        self._groups: tuple[str, ...] | None = None
        if self._options.pattern is not None:
            from headrace.codecs.raw_decoder import named_groups

            self._groups = named_groups(self._options.pattern)
        if self._options.timestamp_format is not None:
            from headrace.codecs.text_columns import check_timestamp_format

            check_timestamp_format(self._options.timestamp_format, "raw")

    def default_schema(self) -> Schema:
        """Return the named groups as strings, or the one column."""
        from headrace.flow.schema import Schema

        if self._groups is not None:
            return Schema.of(dict.fromkeys(self._groups, "string"))
        return Schema.of({self._options.column: self._options.type})

    def decoder(self, schema: Schema, columns: Sequence[str] | None = None) -> Decoder:
        """Return a decoder. Raises OptionError for a column that is not a group, or, without pattern, more than one."""
        from headrace.codecs.json_columns import column_of_texts
        from headrace.codecs.raw_decoder import BinaryDecoder, PatternDecoder, TextDecoder
        from headrace.codecs.text_columns import TimestampOptions, check_columns

        options = self._options
        wanted = check_columns(schema, columns, "raw")
        timestamps = TimestampOptions(options.timestamp_unit, options.timestamp_format)
        if self._groups is None:
            if len(schema) != 1:
                raise OptionError(
                    f"without a pattern a body becomes one column, but the schema has {len(schema)}",
                    plugin="raw",
                    option="pattern",
                    hint="give a pattern with a named group for each column",
                )
            (name, data_type) = next(iter(schema.items()))
            if data_type.to_python() is bytes:
                return BinaryDecoder(name, wanted, options.max_body_bytes)
            return TextDecoder(name, column_of_texts(data_type, timestamps, name), wanted, options.max_body_bytes)
        for name in schema:
            if name not in self._groups:
                hint = did_you_mean(name, self._groups, known="groups")
                raise OptionError(
                    f"column {name!r} of the schema is not a group of the pattern",
                    plugin="raw",
                    option="pattern",
                    hint=hint,
                )
        made = {name: column_of_texts(schema[name], timestamps, name) for name in wanted}
        assert options.pattern is not None
        return PatternDecoder(
            options.pattern,
            made,
            max_body_bytes=options.max_body_bytes,
            null_value=options.null_value,
            null_rows=options.no_match == "null",
        )

    def encoder(self, schema: Schema | None) -> Encoder:
        """Return an encoder of the column named by the option ``column``, or of the only one there is."""
        from headrace.codecs.raw_encoder import RawEncoder

        name = self._options.column
        if schema is not None:
            if name not in schema and len(schema) == 1:
                name = next(iter(schema))
            if name not in schema:
                hint = did_you_mean(name, schema, known="columns")
                raise OptionError(f"there is no column {name!r} to write", plugin="raw", option="column", hint=hint)
            if schema[name].to_python() not in (str, bytes):
                raise OptionError(
                    f"column {name!r} is neither string nor binary",
                    plugin="raw",
                    option="column",
                    hint="cast it to string",
                )
        return RawEncoder(name)
