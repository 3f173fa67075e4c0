"""The formats of presets: ``format="nginx-access"``. Each preset has a class, which is created on first use."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal

import headrace as hr
from headrace.interfaces.format_parts import MaxBodyBytes, ReadOnlyCodec, check_fixed_columns
from headrace_grok.bodies import MAX_BODY_BYTES

from headrace_logpresets.ocsf import OcsfNames
from headrace_logpresets.plugin import NAMES, class_name
from headrace_logpresets.presets import Choices, Preset, check_choices, preset_of


class PresetSettings(hr.Settings, frozen=True, kw_only=True):
    """Options of the formats."""

    fields: Annotated[
        Literal["plain", "ecs", "ocsf"],
        hr.option(
            "How columns are called: in short, by the Elastic Common Schema, or by the Open Cybersecurity Schema Framework."
        ),
    ] = "plain"
    header: Annotated[
        bool | None,
        hr.option(
            "Whether lines begin with time, host and program, as syslog writes them into files. "
            "Default: true for programs that log by syslog."
        ),
    ] = None
    timezone: Annotated[
        str | None, hr.option("The zone of times that are written without one, such as Europe/Vienna. Default: UTC.")
    ] = None
    year: Annotated[
        int | None,
        hr.option("The year of times that are written without one. Default: a line with such a time is a bad record."),
    ] = None
    max_body_bytes: MaxBodyBytes = MAX_BODY_BYTES


class PresetCodec(ReadOnlyCodec):
    """Lines of the log of a program. Base of the formats of presets."""

    Settings: ClassVar[type[PresetSettings]] = PresetSettings
    name: ClassVar[str]

    def __init__(self, settings: Any = None) -> None:
        super().__init__(settings)
        options = self.settings
        self._preset: Preset = preset_of(self.name, plugin=self.name, option="format")
        check_choices(
            self._preset, header=options.header, timezone=options.timezone, year=options.year, plugin=self.name
        )
        header = self._preset.syslog if options.header is None else options.header
        if options.fields == "ocsf":
            self._preset = OcsfNames.of(self._preset)
        self._choices = Choices(
            options.fields != "plain", header, options.timezone, options.year, options.max_body_bytes
        )

    @classmethod
    def sigma_fields(cls) -> dict[str, str]:
        """Return the columns by the fields of Sigma that they are. Rules ask for it: ``sigma={"fields": "nginx-access"}``."""
        from headrace_logpresets.sigma import sigma_fields

        return sigma_fields(cls.name)

    def default_schema(self) -> hr.Schema:
        """Return all columns of the preset."""
        return self._preset.columns(self._choices)

    def decoder(self, schema: hr.Schema, columns: Sequence[str] | None = None) -> hr.Decoder:
        """Return a decoder. Raises OptionError for columns that the preset does not have, or has in another type."""
        check_fixed_columns(schema, self.default_schema(), self.name)
        return self._preset.decoder(
            self._choices, {name: schema[name] for name in (schema if columns is None else columns)}
        )


@functools.cache
def _class_of(preset: str) -> type[PresetCodec]:
    what = preset_of(preset, plugin=preset, option="format").reads
    body = {"name": preset, "__doc__": f"{what[0].upper()}{what[1:]}.", "__module__": __name__}
    return type(class_name(preset), (PresetCodec,), body)


def __getattr__(name: str) -> Any:
    for preset in NAMES:
        if class_name(preset) == name:
            return _class_of(preset)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
