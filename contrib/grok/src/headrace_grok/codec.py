"""The format ``grok``: each body is a line of a log, from which patterns take columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

import headrace as hr
import polars as pl
from headrace.foundation.errors import did_you_mean
from headrace.interfaces.format_parts import MaxBodyBytes, ReadOnlyCodec, texts_of

from headrace_grok.bodies import MAX_BODY_BYTES, LineColumn, TimestampFormat, check_type, decoded
from headrace_grok.library import Names, definitions_of
from headrace_grok.matching import Matcher, MatchOptions
from headrace_grok.programs import Program, compiled, schema_of


class GrokSettings(hr.Settings, frozen=True, kw_only=True):
    """Options of the format ``grok``."""

    pattern: Annotated[str | None, hr.option("A grok pattern that is searched for in the body.")] = None
    patterns: Annotated[tuple[str, ...], hr.option("Several patterns; the first one that fits counts.")] = ()
    pattern_definitions: Annotated[
        dict[str, str] | str | None,
        hr.option("Patterns of the job's own, by name; or a text with a name and a pattern on each line."),
    ] = None
    pattern_files: Annotated[
        tuple[str, ...],
        hr.option("Files with patterns, or directories of such files. They are read when the job is built."),
    ] = ()
    break_on_match: Annotated[
        bool, hr.option("Whether the first pattern that fits is the only one; else all that fit add their fields.")
    ] = True
    keep_empty_captures: Annotated[
        bool, hr.option("Whether a capture without a character is an empty text; else it is NULL.")
    ] = False
    names: Annotated[
        Names,
        hr.option("How fields of headrace's own patterns are called: as in Logstash, or by Elastic Common Schema."),
    ] = "legacy"
    line_column: LineColumn = None
    no_match: Annotated[
        Literal["bad", "null"],
        hr.option("What a body gives that no pattern fits: a bad record, or a row of NULLs."),
    ] = "bad"
    timestamp_format: TimestampFormat = None
    max_body_bytes: MaxBodyBytes = MAX_BODY_BYTES
    engine: Annotated[
        Literal["auto", "hyperscan", "polars"], hr.option("The pre-filter of patterns; results do not depend on it.")
    ] = "auto"

    def validate(self) -> None:
        """Check that patterns are given by one of the two options, and not by both."""
        if (self.pattern is None) == (not self.patterns):
            raise hr.OptionError(
                "the option pattern (or patterns, for several) is missing"
                if self.pattern is None
                else "give either pattern or patterns, not both",
                plugin="grok",
                option="pattern" if self.pattern is None else "patterns",
                hint='such as pattern="%{COMBINEDAPACHELOG}"',
            )


class GrokCodec(ReadOnlyCodec):
    """Lines of logs, read by patterns."""

    Settings: ClassVar[type[GrokSettings]] = GrokSettings
    name = "grok"

    def __init__(self, settings: GrokSettings) -> None:
        super().__init__(settings)
        self._options = settings
        patterns = (settings.pattern,) if settings.pattern is not None else settings.patterns
        definitions = definitions_of(settings.pattern_definitions, settings.pattern_files, settings.names)
        self._programs = compiled(patterns, definitions)
        fields = schema_of(self._programs)
        line = settings.line_column
        if line is not None and line in fields:
            raise hr.OptionError(f"{line!r} is a field of the patterns", plugin="grok", option="line_column")
        self._columns = hr.Schema({**fields, **({} if line is None else {line: pl.String()})})

    def default_schema(self) -> hr.Schema:
        """Return the fields of the patterns, with their types, and the column of the line."""
        return self._columns

    def decoder(self, schema: hr.Schema, columns: Sequence[str] | None = None) -> hr.Decoder:
        """Return a decoder. Raises OptionError for a column that is not a field of the patterns, or for a type to which
        texts cannot be converted.
        """
        settings = self._options
        for name, kind in schema.items():
            if name not in self._columns:
                hint = did_you_mean(name, self._columns, known="fields")
                raise hr.OptionError(
                    f"column {name!r} of the schema is not a field of the patterns",
                    plugin="grok",
                    option="pattern",
                    hint=hint,
                )
            check_type("grok", name, kind, settings.timestamp_format, is_line=name == settings.line_column)
        wanted = {name: schema[name] for name in (schema if columns is None else columns)}
        return _Decoder(self._programs, wanted, self._options)


class _Decoder(hr.Decoder):
    """Decodes bodies to the wanted columns."""

    def __init__(self, programs: Sequence[Program], wanted: dict[str, pl.DataType], options: GrokSettings) -> None:
        self._wanted = list(wanted)
        self._line = options.line_column
        self._max_body_bytes = options.max_body_bytes
        fields = {name: kind for name, kind in wanted.items() if name != self._line}
        how = MatchOptions(
            options.break_on_match,
            options.keep_empty_captures,
            options.no_match == "null",
            options.engine,
            options.timestamp_format,
        )
        self._matcher = Matcher(programs, how, fields)

    def decode(self, bodies: hr.Bodies) -> hr.Decoded:
        lines, rows, bad = texts_of(bodies, self._max_body_bytes)
        matched = self._matcher.match(lines)
        frame = matched.frame
        if self._line is not None and self._line in self._wanted:
            frame = pl.DataFrame([*frame, lines.gather(matched.rows).alias(self._line)])
        frame = frame.select(self._wanted) if self._wanted else frame
        faults = dict(zip(matched.bad_rows, matched.reasons, strict=True))
        return decoded(bodies, frame, matched.rows, rows, bad, faults)
