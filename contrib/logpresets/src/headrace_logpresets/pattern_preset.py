"""Presets of lines that are parsed by patterns."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field

import headrace as hr
import numpy as np
import polars as pl
from headrace.interfaces.format_parts import texts_of
from headrace_grok.bodies import decoded
from headrace_grok.library import definitions_of
from headrace_grok.matching import Matcher
from headrace_grok.parsing import Definition
from headrace_grok.programs import Program, compiled, schema_of
from headrace_grok.values import shown
from numpy.typing import NDArray

from headrace_logpresets.audit_pairs import Pair, pair_columns
from headrace_logpresets.presets import TIMESTAMP, Choices, Preset
from headrace_logpresets.times import Time, timestamps

#: What syslog writes before a message in files: the time, the host, the program and its process.
_HEADER = (
    r"(?:<[0-9]+>)?(?:%{SYSLOGTIMESTAMP:timestamp}|%{TIMESTAMP_ISO8601:timestamp}) %{SYSLOGHOST:logsource} "
    r"%{PROG:program}(?:\[%{POSINT:pid:int}\])?: *"
)
_HEADER_ECS = {"logsource": "host.hostname", "program": "process.name", "pid": "process.pid"}


@dataclass(frozen=True, slots=True)
class _Column:
    name: str
    kind: pl.DataType
    #: The field of the patterns that gives the column, or the field whose pairs contain it.
    source: str
    #: The key among the pairs.
    pair: Pair | None = None


@dataclass(frozen=True, kw_only=True)
class PatternPreset(Preset):
    """Lines that match one of several patterns."""

    #: The patterns of the line, or of the message after the header of syslog.
    patterns: tuple[str, ...]
    #: The pattern of the library whose file has the names of its fields in the Elastic Common Schema.
    library: str
    #: Names in the Elastic Common Schema that the library does not have, or has otherwise.
    ecs: Mapping[str, str] = field(default_factory=dict)
    #: How times are written, by their field. The time in the header of syslog needs no entry.
    times: Mapping[str, Time] = field(default_factory=dict)
    #: Patterns that the library does not have.
    definitions: Mapping[str, str] = field(default_factory=dict)
    #: Pairs that become columns, by their column; and the field that contains the pairs.
    pairs: Mapping[str, Pair] = field(default_factory=dict)
    pairs_of: str | None = None
    #: A pattern of lines that are not records, such as the head of a file. They give no row.
    no_record: str | None = None
    #: The beginnings of fields after a text that users of the program choose, such as the name of a requested file. If
    #: one occurs twice, the text may imitate a field, so the line is a bad record.
    once: tuple[str, ...] = ()

    def columns(self, choices: Choices) -> hr.Schema:
        return hr.Schema({each.name: each.kind for each in self._columns(choices)})

    def decoder(self, choices: Choices, wanted: Mapping[str, pl.DataType]) -> hr.Decoder:
        by_name = {each.name: each for each in self._columns(choices)}
        return _PatternDecoder(self, choices, [by_name[name] for name in wanted])

    def programs(self, choices: Choices) -> tuple[Program, ...]:
        """Return the patterns, ready to run."""
        return _programs(self.name, choices.header)

    def time_of(self, source: str, choices: Choices) -> Time | None:
        """Return how the times of a field are written; None: the field has no times."""
        return Time("syslog") if choices.header and source == "timestamp" else self.times.get(source)

    def _columns(self, choices: Choices) -> list[_Column]:
        names = self._ecs_names() if choices.ecs else {}
        found: list[_Column] = []
        for source, kind in schema_of(self.programs(choices)).items():
            if source == self.pairs_of:
                for name, pair in self.pairs.items():
                    of_pair = hr.Schema.of({"x": pair.type})["x"]
                    found.append(_Column(pair.ecs if choices.ecs else name, of_pair, source, pair))
            time = self.time_of(source, choices)
            found.append(_Column(names.get(source, source), kind if time is None else TIMESTAMP, source))
        return found

    def _ecs_names(self) -> dict[str, str]:
        names = {**definitions_of(names="ecs")[self.library].renamed, **_HEADER_ECS, **self.ecs}
        return {old: "@timestamp" if new == "timestamp" else new for old, new in names.items()} | {
            "timestamp": "@timestamp"
        }


@functools.cache
def _programs(name: str, header: bool) -> tuple[Program, ...]:
    from headrace_logpresets.presets import presets

    preset = presets()[name]
    assert isinstance(preset, PatternPreset)
    before = f"^{_HEADER}" if header else "^"
    definitions = {**definitions_of(), **{name: Definition(text) for name, text in preset.definitions.items()}}
    return compiled([before + pattern for pattern in preset.patterns], definitions)


class _PatternDecoder(hr.Decoder):
    def __init__(self, preset: PatternPreset, choices: Choices, wanted: list[_Column]) -> None:
        self._preset = preset
        self._choices = choices
        self._wanted = wanted
        # Times and pairs are converted from texts.
        fields: dict[str, pl.DataType] = {}
        self._times: dict[str, Time] = {}
        for column in wanted:
            time = preset.time_of(column.source, choices)
            if column.pair is None and time is not None:
                self._times[column.name] = time
            texts = column.pair is not None or (time is not None)
            fields[column.source] = pl.String() if texts else column.kind
        self._matcher = Matcher(preset.programs(choices), columns=fields)

    def decode(self, bodies: hr.Bodies) -> hr.Decoded:
        lines, rows, bad = texts_of(bodies, self._choices.max_body_bytes)
        # The line ends of Windows, and of files from Windows.
        lines = lines.str.strip_suffix("\r")
        matched = self._matcher.match(lines)
        faults = dict(zip(matched.bad_rows, matched.reasons, strict=True))
        if faults and self._preset.no_record is not None:
            others = lines[list(faults)].str.contains(self._preset.no_record).to_numpy()
            faults = {row: reason for (row, reason), other in zip(faults.items(), others, strict=True) if not other}
        columns: list[pl.Series] = []
        wrong = self._ambiguous(lines, matched.rows)
        pairs = self._pairs(matched.frame)
        for column in self._wanted:
            found = matched.frame[column.source] if column.pair is None else pairs[column.name]
            values, faulty = self._values(column, found)
            columns.append(values.alias(column.name))
            for row, reason in faulty.items():
                wrong.setdefault(row, f"field {column.name!r}: {reason}")
        good = matched.rows
        if wrong:
            faults.update({int(good[row]): reason for row, reason in wrong.items()})
            kept = np.setdiff1d(np.arange(len(good)), list(wrong), assume_unique=True)
            good, columns = good[kept], [column.gather(kept) for column in columns]
        frame = pl.DataFrame(columns) if columns else pl.DataFrame(height=len(good))
        return decoded(bodies, frame, good, rows, bad, faults)

    def _ambiguous(self, lines: pl.Series, rows: NDArray[np.int64]) -> dict[int, str]:
        """Return which of the matched lines can be read in two ways, and why."""
        wrong: dict[int, str] = {}
        if not self._preset.once:
            return wrong
        found = lines.gather(rows)
        for text in self._preset.once:
            for row in np.flatnonzero((found.str.count_matches(text) > 1).to_numpy()).tolist():
                shown_text = text.replace("\\", "")
                wrong.setdefault(row, f"it can be read in two ways: {shown_text!r} comes twice")
        return wrong

    def _pairs(self, frame: pl.DataFrame) -> dict[str, pl.Series]:
        """Return the texts of the columns that are values of pairs."""
        wanted = [column for column in self._wanted if column.pair is not None]
        if not wanted:
            return {}
        return pair_columns(frame[wanted[0].source], {each.name: each.pair for each in wanted if each.pair is not None})

    def _values(self, column: _Column, found: pl.Series) -> tuple[pl.Series, dict[int, str]]:
        if column.pair is not None:
            if column.kind == pl.String():
                return found, {}
            values = found.cast(column.kind, strict=False)
            wrong = np.flatnonzero((values.is_null() & found.is_not_null()).to_numpy()).tolist()
            return values, {row: f"expected {column.pair.type}, found {shown(found[row])}" for row in wrong}
        if column.name in self._times:
            return timestamps(found, self._times[column.name], self._choices)
        return found, {}
