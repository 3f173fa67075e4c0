"""A broken sink for each check of options: it fails that check, and no other but those it names in ``also``."""

from __future__ import annotations

from typing import Annotated, Any, Self

import headrace as hr
from headrace.flow.schema import Schema
from headrace.foundation.errors import JobError

from contract_samples.broken_sink_kinds import Line, Table
from contract_samples.sinks import LineSettings, LineSink, TableSink


class BareSettings(LineSettings, frozen=True, kw_only=True):
    colour: str = "blue"


class LenientSettings(LineSettings, frozen=True, kw_only=True):
    @classmethod
    def of(cls, options: Any, *, plugin: str | None = None) -> Self:
        known = set(cls.__struct_fields__)
        return super().of({name: value for name, value in options.items() if name in known}, plugin=plugin)


class OpenSettings(LineSettings, frozen=True, kw_only=True):
    api_token: Annotated[str, hr.option("a token, for all to see")] = ""


class BrokenUndescribed(Line):
    breaks = "test_options_are_described"

    class kind(LineSink):
        Settings = BareSettings


class BrokenLenient(Line):
    breaks = "test_unknown_option_is_named"

    class kind(LineSink):
        Settings = LenientSettings

        def __init__(self, settings: LineSettings) -> None:
            self.settings = settings


class BrokenPlainToken(Line):
    breaks = "test_secrets_are_declared"

    class kind(LineSink):
        Settings = OpenSettings


class BrokenTalkative(Table):
    breaks = "test_secrets_stay_hidden"

    class kind(TableSink):
        def prepare(self, schema: Schema | None) -> None:
            try:
                super().prepare(schema)
            except JobError as error:
                password = self.settings.password
                shown = password.reveal() if password else ""
                raise JobError(f"cannot log in with {shown!r}", hint="look at the password") from error
