"""The print sink keeps every promise of a sink. A file stands in for the terminal: a killed process leaves its rows."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TextIO

import headrace as hr
from headrace_contract import SinkContract
from headrace_print.sink import PrintSettings, PrintSink


class ToFileSettings(PrintSettings, frozen=True, kw_only=True):
    path: Annotated[str, hr.option("the file that stands in for the terminal")]


class PrintToFile(PrintSink):
    Settings = ToFileSettings

    @property
    def stream(self) -> TextIO:
        assert isinstance(self.settings, ToFileSettings)
        if not hasattr(self, "_file"):
            self._file = Path(self.settings.path).open("a", encoding="utf-8", newline="")  # noqa: SIM115 -- see close
        return self._file

    def close(self) -> None:
        if hasattr(self, "_file"):
            self._file.close()
            del self._file


class TestPrintSink(SinkContract):
    def make_sink(self) -> PrintToFile:
        return PrintToFile(PrintToFile.Settings.of({"path": str(self.tmp_path / "screen")}))

    def read_rows(self) -> Sequence[Mapping[str, Any]]:
        return [json.loads(line) for line in (self.tmp_path / "screen").read_text(encoding="utf-8").split("\n")[:-1]]
