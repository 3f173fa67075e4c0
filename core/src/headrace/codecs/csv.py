"""The format ``csv``: one record (RFC 4180) per body. Its rules are tabled in docs/formats.md."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, ClassVar

from headrace.foundation.errors import OptionError, did_you_mean
from headrace.interfaces import settings as declared
from headrace.interfaces.codec import Codec, Decoder, Encoder, FormatFraming
from headrace.interfaces.format_parts import MaxBodyBytes, TimestampFormat, TimestampUnit
from headrace.interfaces.settings import option

if TYPE_CHECKING:
    from headrace.codecs.csv_records import Dialect
    from headrace.flow.schema import Schema


class CsvSettings(declared.Settings, frozen=True, kw_only=True):
    """Options of the format ``csv``."""

    delimiter: Annotated[str, option("The character between fields; '\\t' is a tab.")] = ","
    quote: Annotated[
        str | None,
        option(
            "The character around fields that contain delimiters, quotes or newlines; inside a field it is written twice. "
            "None: no quoting."
        ),
    ] = '"'
    null_value: Annotated[str, option("The unquoted text that stands for NULL.")] = ""
    columns: Annotated[
        tuple[str, ...],
        option(
            "The columns of a record, in the order of its fields. Default: the columns of the schema, in its order."
        ),
    ] = ()
    max_body_bytes: MaxBodyBytes = 16 * 1024 * 1024
    timestamp_unit: TimestampUnit = "ms"
    timestamp_format: TimestampFormat = None

    def validate(self) -> None:
        """Check the characters: one byte each, different, no line breaks."""
        for name, character in (("delimiter", self.delimiter), ("quote", self.quote)):
            if name == "quote" and character is None:
                continue
            plain = "\t" if name == "delimiter" and character == "\\t" else character
            if plain is None or len(plain) != 1 or not plain.isascii() or plain in "\r\n\x00":
                raise OptionError(
                    f"{character!r} is not one ASCII character other than a line break", plugin="csv", option=name
                )
        if self.delimiter == self.quote:
            raise OptionError("delimiter and quote are the same character", plugin="csv", option="quote")
        for special in (self.delimiter, self.quote, "\n", "\r"):
            if special and special in self.null_value:
                raise OptionError(
                    f"{self.null_value!r} holds {special!r}, so it cannot stand unquoted",
                    plugin="csv",
                    option="null_value",
                )
        if len(set(self.columns)) < len(self.columns):
            raise OptionError("a column is named twice", plugin="csv", option="columns")


class CsvCodec(Codec):
    """One record per body. Cutting a text into records is the source's work; a body may hold quoted line breaks."""

    Settings: ClassVar[type[declared.Settings]] = CsvSettings

    def __init__(self, settings: CsvSettings | None = None) -> None:
        self._options = settings if settings is not None else CsvSettings()
        super().__init__(self._options)
        if self._options.timestamp_format is not None:
            from headrace.codecs.text_columns import check_timestamp_format

            check_timestamp_format(self._options.timestamp_format, "csv")

    def framing(self) -> FormatFraming:
        dialect, options = self._dialect(), self._options
        return FormatFraming(options.max_body_bytes, dialect.delimiter, dialect.quote, options.columns)

    def decoder(self, schema: Schema, columns: Sequence[str] | None = None) -> Decoder:
        """Return a decoder. Raises OptionError for a column that is not a field, or a type that has no form as text."""
        from headrace.codecs.csv_decoder import CsvColumn, CsvDecoder
        from headrace.codecs.json_columns import column_of_texts
        from headrace.codecs.text_columns import TimestampOptions, check_columns

        options = self._options
        fields = list(options.columns) or list(schema)
        for name in schema:
            if name not in fields:
                hint = did_you_mean(name, fields, known="fields")
                raise OptionError(
                    f"column {name!r} of the schema is not a field", plugin="csv", option="columns", hint=hint
                )
        timestamps = TimestampOptions(options.timestamp_unit, options.timestamp_format)
        made = {
            name: CsvColumn(fields.index(name), column_of_texts(schema[name], timestamps, name))
            for name in check_columns(schema, columns, "csv")
        }
        return CsvDecoder(made, len(fields), self._dialect(), options.max_body_bytes)

    def encoder(self, schema: Schema | None) -> Encoder:
        """Return an encoder. Raises OptionError when neither the schema nor the option ``columns`` names the fields."""
        from headrace.codecs.csv_encoder import CsvEncoder

        fields = self._options.columns or tuple(schema or ())
        if schema is None and not fields:
            raise OptionError(
                "the columns are not known when the job is built",
                plugin="csv",
                option="columns",
                hint="name them with the option 'columns', or with select() before the sink",
            )
        for name in fields:
            if schema is not None and name not in schema:
                hint = did_you_mean(name, schema, known="columns")
                raise OptionError(f"there is no column {name!r}", plugin="csv", option="columns", hint=hint)
        return CsvEncoder(fields, self._dialect())

    def _dialect(self) -> Dialect:
        from headrace.codecs.csv_records import Dialect

        options = self._options
        return Dialect("\t" if options.delimiter == "\\t" else options.delimiter, options.quote, options.null_value)
