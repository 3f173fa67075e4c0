"""The base class of presets, and the list of all presets."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import headrace as hr
import polars as pl
from headrace.foundation.errors import did_you_mean

#: The type of all columns of times.
TIMESTAMP = hr.Schema.of({"t": "timestamp"})["t"]


@dataclass(frozen=True, slots=True)
class Choices:
    """The options of a preset."""

    #: Whether fields have the names of the Elastic Common Schema.
    ecs: bool = False
    #: Whether lines begin as syslog writes them into files: time, host and program.
    header: bool = False
    #: The zone of times that are written without one; None: no option was given, so it is UTC unless the preset knows
    #: another one.
    timezone: str | None = None
    #: The year of times that are written without one.
    year: int | None = None
    #: The largest size of a body, in bytes.
    max_body_bytes: int = 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class Preset(ABC):
    """Defines how the log of a program is read."""

    name: str
    #: A description of the log, for the table in the documentation.
    reads: str
    #: Whether lines may begin with the header of syslog.
    syslog: bool = False
    #: Whether times may be written without a zone.
    local_times: bool = False

    @abstractmethod
    def columns(self, choices: Choices) -> hr.Schema:
        """Return the columns of the result."""

    @abstractmethod
    def decoder(self, choices: Choices, wanted: Mapping[str, pl.DataType]) -> hr.Decoder:
        """Return a decoder to some of the columns. One thread uses it. The result of a line depends on that line
        alone.
        """


@functools.cache
def presets() -> Mapping[str, Preset]:
    """Return all presets by their name."""
    from headrace_logpresets import json_presets, linux_presets, service_presets, web_presets, windows_presets

    modules = (web_presets, linux_presets, service_presets, json_presets, windows_presets)
    every: Sequence[Preset] = [preset for module in modules for preset in module.PRESETS]
    return {preset.name: preset for preset in sorted(every, key=lambda each: each.name)}


def preset_of(name: str, *, plugin: str, option: str) -> Preset:
    """Return the preset of this name. Raises OptionError if there is none."""
    found = presets().get(name)
    if found is None:
        raise hr.OptionError(
            f"there is no preset {name!r}",
            plugin=plugin,
            option=option,
            hint=did_you_mean(name, presets(), known="presets"),
        )
    return found


def check_choices(preset: Preset, *, header: bool | None, timezone: str | None, year: int | None, plugin: str) -> None:
    """Raise OptionError for an option that this preset does not use, or that has a wrong value."""
    for option, given, taken in (
        ("header", header is not None, preset.syslog),
        ("year", year is not None, preset.syslog),
        ("timezone", timezone is not None, preset.syslog or preset.local_times),
    ):
        if given and not taken:
            raise hr.OptionError(
                f"the preset {preset.name!r} does not use this option",
                plugin=plugin,
                option=option,
                hint="leave it out",
            )
    if year is not None and not 1 <= year <= 9999:
        raise hr.OptionError(f"{year} is not a year", plugin=plugin, option="year", hint="such as year=2026")
    if timezone is not None:
        try:
            pl.Series([0]).cast(pl.Datetime("us")).dt.replace_time_zone(timezone)
        except pl.exceptions.PolarsError:
            raise hr.OptionError(
                f"there is no time zone {timezone!r}", plugin=plugin, option="timezone", hint="such as Europe/Vienna"
            ) from None
