"""Rows as aligned columns, batch after batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from unicodedata import east_asian_width

if TYPE_CHECKING:
    import polars as pl

#: Widest cell, in terminal columns.
CELL_WIDTH_MAX = 60


class TableWriter:
    """Makes lines of a table that grows: a header at the begin and whenever columns change or grow wider."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._widths: list[int] = []

    def lines(self, frame: pl.DataFrame, marks: Sequence[str] | None = None) -> str:
        """Return the rows of the frame as lines, with a header before them where one is needed.

        ``marks`` come before the rows, in a column without name.
        """
        cells = [[_cell(value) for value in frame[name].to_list()] for name in frame.columns]
        names = [_cell(name) for name in frame.columns]
        right = [frame[name].dtype.is_numeric() for name in frame.columns]
        if marks is not None:
            cells, names, right = [list(marks), *cells], ["", *names], [False, *right]
        wide = [max(map(display_width, [name, *column])) for name, column in zip(names, cells, strict=True)]
        same = self._names == names
        lines = []
        if not same or any(new > old for new, old in zip(wide, self._widths, strict=True)):
            if self._names:
                lines.append("")
            self._widths = [max(pair) for pair in zip(wide, self._widths, strict=True)] if same else wide
            self._names = names
            lines.append(self._line(names, [False] * len(names)))
            lines.append("  ".join("─" * width for width in self._widths))
        lines += [self._line(row, right) for row in zip(*cells, strict=True)]
        return "".join(f"{line}\n" for line in lines)

    def _line(self, row: list[str] | tuple[str, ...], right: list[bool]) -> str:
        parts = []
        for text, width, to_right in zip(row, self._widths, right, strict=True):
            padding = " " * (width - display_width(text))
            parts.append(padding + text if to_right else text + padding)
        return "  ".join(parts).rstrip()


def display_width(text: str) -> int:
    """Return how many columns of a terminal a text takes."""
    return len(text) if text.isascii() else sum(2 if east_asian_width(sign) in "WF" else 1 for sign in text)


def _cell(value: Any) -> str:
    text = "NULL" if value is None else str(value)
    if not text.isprintable():
        # Rows come from outside: their texts must neither control the terminal nor break the line.
        text = "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in text)
    if display_width(text) <= CELL_WIDTH_MAX:
        return text
    kept = ""
    for sign in text:
        if display_width(kept + sign) >= CELL_WIDTH_MAX:
            break
        kept += sign
    return kept + "…"
