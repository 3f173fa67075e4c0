"""A shell whose output is text."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from headrace_shell.execution import Settings
from headrace_shell.shell import Shell
from headrace_shell.showing import Output
from rich.console import Console


class Typed:
    """A shell, and what it has shown."""

    def __init__(self) -> None:
        self.out, self.told = io.StringIO(), io.StringIO()
        output = Output("table", None, Console(file=self.out, width=100, highlight=False))
        self.shell = Shell(output, Settings(), errors=Console(file=self.told, width=100, highlight=False))
        self.worked = True

    def type(self, text: str) -> str:
        """Return what the shell shows for a text."""
        before = self.out.tell()
        self.worked = self.shell.take(text)
        return self.out.getvalue()[before:]

    def rows(self, text: str) -> list[list[str]]:
        """Return the cells of the tables that the shell shows for a text."""
        lines = [line for line in self.type(text).splitlines() if line.startswith("│")]
        return [[each.strip() for each in line.strip("│").split("│")] for line in lines]

    def said(self) -> str:
        """Return what it has told beside results."""
        return self.told.getvalue()


@pytest.fixture
def it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Typed:
    monkeypatch.chdir(tmp_path)
    return Typed()
