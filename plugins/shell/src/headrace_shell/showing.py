"""Results on a terminal, or as csv, json or parquet."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
from headrace.foundation.errors import OptionError
from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

FORMATS = ("table", "csv", "json", "parquet")
#: How many rows a table on the terminal shows; the others are counted.
ROWS_SHOWN_MAX = 1_000


def grid(frame: pl.DataFrame, *, title: str | None = None, rows_max: int = ROWS_SHOWN_MAX) -> Grid:
    """Return the last rows of a frame as a table for a terminal."""
    shown = frame.tail(rows_max)
    made = Grid(title=title, title_justify="left", header_style="bold", show_lines=False, expand=False)
    for name, kind in frame.schema.items():
        made.add_column(Text(name), justify="right" if kind.is_numeric() else "left", overflow="fold")
    for row in shown.iter_rows():
        made.add_row(*(Text("NULL", style="dim") if each is None else Text(cell(each)) for each in row))
    return made


def cell(value: Any) -> str:
    """Return a value as a table shows it."""
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, bytes):
        return "x'" + value.hex() + "'"
    if isinstance(value, list):
        if value and all(isinstance(each, dict) and each.keys() == {"key", "value"} for each in value):
            return "{" + ", ".join(f"{cell(each['key'])}={cell(each['value'])}" for each in value) + "}"
        return "[" + ", ".join(map(cell, value)) + "]"
    if isinstance(value, dict):
        return "(" + ", ".join(map(cell, value.values())) + ")"
    return "NULL" if value is None else str(value)


def counted(rows: int) -> str:
    """Return how many rows, in words."""
    return f"{rows:,} row" + ("" if rows == 1 else "s")


def is_text(frame: pl.DataFrame) -> bool:
    """Return whether a frame is one text of several lines: a plan, or what SHOW CREATE gives."""
    return frame.columns == ["result"] and frame.height == 1 and frame.schema["result"] == pl.String()


class Output:
    """Where results go: the terminal or standard output, or a file, in one of the formats."""

    def __init__(self, format: str = "table", path: Path | None = None, console: Console | None = None) -> None:
        """Raises OptionError for an unknown format, and for parquet without a file."""
        if path is not None and format == "table" and path.suffix.lstrip(".") in FORMATS:
            format = path.suffix.lstrip(".")
        if format not in FORMATS:
            raise OptionError(f"unknown format {format!r}", option="format", hint=f"formats: {', '.join(FORMATS)}")
        if format == "parquet" and path is None:
            raise OptionError(
                "parquet can be written only to a file",
                option="format",
                hint=r"--output FILE.parquet, or \o FILE.parquet",
            )
        self.format, self.path = format, path
        self.console = console if console is not None else Console(highlight=False)

    def write(self, frames: Sequence[tuple[str, pl.DataFrame]]) -> list[str]:
        """Write results. Returns a message about it. Raises OptionError if the file cannot be written."""
        if self.path is None:
            for _, frame in frames:
                self._print(frame)
            return []
        said = []
        for number, (_, frame) in enumerate(frames):
            path = self.path if not number else self.path.with_stem(f"{self.path.stem}_{number + 1}")
            try:
                path.write_bytes(self._bytes(frame))
            except OSError as error:
                raise OptionError(f"{path} cannot be written: {error.strerror}", option="output") from error
            said.append(f"{counted(frame.height)} written to {path}")
        return said

    def _print(self, frame: pl.DataFrame) -> None:
        if self.format != "table":
            sys.stdout.write(self._bytes(frame).decode())
            sys.stdout.flush()
        elif is_text(frame):
            self.console.print(Text(str(frame["result"][0]).rstrip("\n")), soft_wrap=True)
        elif frame.width:
            self.console.print(grid(frame))
            if frame.height > ROWS_SHOWN_MAX:
                self.console.print(f"… the last {ROWS_SHOWN_MAX:,} of them", style="dim")

    def _bytes(self, frame: pl.DataFrame) -> bytes:
        if self.format == "json":
            return frame.write_ndjson().encode()
        if self.format == "parquet":
            buffer = io.BytesIO()
            frame.write_parquet(buffer)
            return buffer.getvalue()
        if self.format == "csv":
            nested = [name for name, kind in frame.schema.items() if kind.is_nested() or kind == pl.Binary()]
            plain = frame.with_columns(
                pl.Series(
                    name, [None if each is None else cell(each) for each in frame[name].to_list()], dtype=pl.String()
                )
                for name in nested
            )
            return plain.write_csv().encode()
        buffer_text = io.StringIO()
        Console(file=buffer_text, width=200, highlight=False).print(grid(frame, rows_max=frame.height))
        return buffer_text.getvalue().encode()
