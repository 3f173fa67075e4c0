"""The verb ``parse_log``: ``stream.parse_log("nginx-access")`` takes columns out of a column of log lines."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import headrace as hr
import numpy as np
import polars as pl
from headrace.foundation.errors import did_you_mean

from headrace_logpresets.ocsf import OcsfNames
from headrace_logpresets.presets import Choices, check_choices, preset_of
from headrace_logpresets.text_bodies import bodies_of

_FIELDS = ("plain", "ecs", "ocsf")


class ParseLog(hr.OperatorSpec):
    """Adds the columns of a preset, taken out of a text. A NULL text gives NULLs.

    A row whose text is no line of that log goes to the dead letters with the reason; one whose text is no record, such as the head of
    a file, is left out. A field that is called like the column of texts
    replaces it.

    Args:
        preset: the name of a preset, such as ``"nginx-access"``.
        on: the column of texts.
        fields: ``"ecs"``: the columns are called by the Elastic Common Schema; ``"ocsf"``: by the Open Cybersecurity Schema Framework;
            ``"plain"``: in short.
        header: whether texts begin with time, host and program, as syslog writes them into files. For programs that log by syslog.
        timezone: the zone of times that are written without one. Default: UTC.
        year: the year of times that are written without one, which only a header has.
        overwrite: columns of the input that fields may replace, where they have something.
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
        """Return the columns before and those of the preset behind them. Raises PlanError if they do not fit together."""
        if schema is None:
            raise hr.PlanError(
                "the columns are not known here", plugin=self.name, hint="declare them: map(function, schema={…})"
            )
        if self.on not in schema:
            hint = did_you_mean(self.on, schema, known="columns") or 'name the column of texts: parse_log(…, on="line")'
            raise hr.PlanError(f"unknown column {self.on!r}", plugin=self.name, hint=hint)
        if schema[self.on] != pl.String():
            raise hr.PlanError(f"column {self.on!r} holds no texts", plugin=self.name, hint="cast it to string")
        for name in self.overwrite:
            if name not in self._columns:
                hint = did_you_mean(name, self._columns, known="fields")
                raise hr.PlanError(f"{name!r} in overwrite is no field of the preset", plugin=self.name, hint=hint)
        for name, kind in self._columns.items():
            if name not in schema or name == self.on:
                continue
            if name not in self.overwrite:
                raise hr.PlanError(
                    f"field {name!r} of the preset is a column already",
                    plugin=self.name,
                    hint=f"rename or drop the column before, or replace it: overwrite=[{name!r}]",
                )
            if schema[name] != kind:
                raise hr.PlanError(
                    f"column {name!r} cannot be replaced by a field of another type",
                    plugin=self.name,
                    hint="drop or rename the column before",
                )
        return hr.Schema({**schema, **self._columns}, json_columns=schema.json_columns | self._columns.json_columns)

    def required_columns(self, wanted: Collection[str] | None, schema: hr.Schema) -> Collection[str] | None:
        """Return the column of texts, which decides which rows go on, and the wanted columns that are there before."""
        if wanted is None:
            return None
        return [self.on, *(name for name in wanted if name in schema and name != self.on)]

    def open(self, schema: hr.Schema | None) -> hr.Operator:
        return _Running(self.on, self._preset.decoder(self._choices, dict(self._columns)))

    def describe(self) -> str:
        """Return what explain shows, and what a state behind this verb is compared by: all that the columns depend on."""
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


class _Running(hr.Operator):
    """Runs in the lane of one queue."""

    def __init__(self, on: str, decoder: hr.Decoder) -> None:
        self._on = on
        self._decoder = decoder

    def process(self, batch: hr.Batch) -> Iterable[hr.Batch | hr.RejectedRows]:
        frame = batch.frame
        texts = frame[self._on]
        present = np.flatnonzero(texts.is_not_null().to_numpy())
        found = self._decoder.decode(bodies_of(texts.drop_nulls()))
        bad = np.array([each.row for each in found.bad], dtype=np.int64)
        rows = found.rows if found.rows is not None else np.arange(len(present))
        # For each row the place of its fields; rows without a text get the row of NULLs behind them.
        places = np.full(frame.height, found.frame.height, dtype=np.int64)
        places[present[rows]] = np.arange(len(rows))
        # What is neither a row nor bad gives no row, such as the head of a file.
        good = texts.is_null().to_numpy().copy()
        good[present[rows]] = True
        kept = np.flatnonzero(good)
        rest = frame[kept]
        fields = [column.extend_constant(None, 1).gather(places[kept]) for column in found.frame]
        # A column that a field replaces keeps its value where the field has nothing; the text itself does not.
        columns = [
            field.fill_null(rest[field.name]) if field.name in rest.columns and field.name != self._on else field
            for field in fields
        ]
        out: list[hr.Batch | hr.RejectedRows] = [batch.with_frame(rest.with_columns(columns))]
        if len(bad):
            out.append(hr.RejectedRows(frame[present[bad]], [each.reason for each in found.bad]))
        return out
