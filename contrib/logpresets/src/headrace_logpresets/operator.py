"""The verb ``parse_log``: ``stream.parse_log("nginx-access")`` takes columns out of a column of log lines."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import headrace as hr
import polars as pl
from headrace.codecs.decoded_columns import DecodedColumn
from headrace.foundation.errors import did_you_mean

from headrace_logpresets.ocsf import OcsfNames
from headrace_logpresets.presets import Choices, check_choices, preset_of

_FIELDS = ("plain", "ecs", "ocsf")


class ParseLog(hr.OperatorSpec):
    """Adds the columns of a preset, which it takes out of a text. A NULL text gives NULLs.

    A row whose text does not belong to the log goes to the dead letters with the reason. A row whose text is not a
    record, such as the head of a file, is left out. A field with the name of the column of texts replaces that column.

    Args:
        preset: the name of a preset, such as ``"nginx-access"``.
        on: the column of texts.
        fields: the names of the columns. ``"plain"``: short names; ``"ecs"``: names of the Elastic Common Schema;
            ``"ocsf"``: names of the Open Cybersecurity Schema Framework.
        header: whether texts begin with time, host and program, as syslog writes them into files. For programs that log
            by syslog.
        timezone: the zone of times that are written without one. Default: UTC.
        year: the year of times that are written without one, which only a header has.
        overwrite: columns of the input that fields may replace, in rows where the field is not NULL.
    """

    name = "parse_log"

    def __init__(
        self,
        preset: str,
        *,
        on: str = "message",
        fields: str = "plain",
        header: bool = False,
        timezone: str | None = None,
        year: int | None = None,
        overwrite: str | Sequence[str] = (),
    ) -> None:
        found = preset_of(preset, plugin=self.name, option="preset")
        check_choices(found, header=header or None, timezone=timezone, year=year, plugin=self.name)
        if fields not in _FIELDS:
            expected = ", ".join(map(repr, _FIELDS[:-1])) + f" or {_FIELDS[-1]!r}"
            raise hr.OptionError(f"unknown value {fields!r}: expected {expected}", plugin=self.name, option="fields")
        self.preset = preset
        self.on = on
        self.overwrite = (overwrite,) if isinstance(overwrite, str) else tuple(overwrite)
        self._fields = fields
        self._preset = found = OcsfNames.of(found) if fields == "ocsf" else found
        self._choices = Choices(fields != "plain", header, timezone, year)
        self._columns = found.columns(self._choices)

    def output_schema(self, schema: hr.Schema | None, output: str = "") -> hr.Schema | None:
        """Return the input columns, followed by the columns of the preset. Raises PlanError if they do not fit
        together.
        """
        if schema is None:
            raise hr.PlanError(
                "the columns are not known when the job is built",
                plugin=self.name,
                hint="declare them: map(function, schema={…})",
            )
        if self.on not in schema:
            hint = did_you_mean(self.on, schema, known="columns") or 'name the column of texts: parse_log(…, on="line")'
            raise hr.PlanError(f"unknown column {self.on!r}", plugin=self.name, hint=hint)
        if schema[self.on] != pl.String():
            raise hr.PlanError(f"column {self.on!r} does not contain text", plugin=self.name, hint="cast it to string")
        for name in self.overwrite:
            if name not in self._columns:
                hint = did_you_mean(name, self._columns, known="fields")
                raise hr.PlanError(f"{name!r} in overwrite is not a field of the preset", plugin=self.name, hint=hint)
        for name, kind in self._columns.items():
            if name not in schema or name == self.on:
                continue
            if name not in self.overwrite:
                raise hr.PlanError(
                    f"field {name!r} of the preset is a column already",
                    plugin=self.name,
                    hint=f"rename or drop the column before this verb, or replace it: overwrite=[{name!r}]",
                )
            if schema[name] != kind:
                raise hr.PlanError(
                    f"column {name!r} cannot be replaced by a field of another type",
                    plugin=self.name,
                    hint="drop or rename the column before",
                )
        return hr.Schema({**schema, **self._columns}, json_columns=schema.json_columns | self._columns.json_columns)

    def required_columns(self, wanted: Collection[str] | None, schema: hr.Schema) -> Collection[str] | None:
        """Return the column of texts, which decides which rows are passed on, and the requested columns of the input."""
        if wanted is None:
            return None
        return [self.on, *(name for name in wanted if name in schema and name != self.on)]

    def open(self, schema: hr.Schema | None) -> hr.Operator:
        return DecodedColumn(self.on, self._preset.decoder(self._choices, dict(self._columns)), drops_empty=True)

    def describe(self) -> str:
        """Return a text with everything on which the columns depend. ``explain`` shows it, and the definition of state
        after this verb contains it.
        """
        choices = self._choices
        options = {
            "fields": None if self._fields == "plain" else self._fields,
            "header": choices.header or None,
            "timezone": choices.timezone,
            "year": choices.year,
            "overwrite": ", ".join(self.overwrite) or None,
        }
        said = "".join(f", {name}={value}" for name, value in options.items() if value is not None)
        return f"{self.on} as {self.preset}{said}"
