"""``%%headrace``: SQL texts in the cells of Jupyter and IPython. ``%load_ext headrace_shell`` loads it.

Needs ``pip install 'headrace-shell[notebook]'``.
"""

from __future__ import annotations

import io
import re
from typing import Any

import polars as pl
from headrace.foundation.errors import HeadraceError, OptionError, did_you_mean
from headrace.interfaces.backend import JobReport
from headrace_sql.api import default_session
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magic import Magics, cell_magic, magics_class
from IPython.core.magic_arguments import argument, magic_arguments, parse_argstring
from IPython.display import DisplayHandle, Image, display
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from headrace_shell.execution import Execution, Settings
from headrace_shell.views import View

#: A picture is drawn anew so often at most, in seconds, and a table shows so many rows while it changes.
_PAUSE_SECONDS = 0.5
_ROWS_SHOWN = 20
#: So many bars have room beside each other.
_BARS_MAX = 40


@magics_class
class HeadraceMagics(Magics):
    """The magic ``%%headrace``. Made by IPython when the extension is loaded."""

    @magic_arguments()
    @argument("--into", metavar="NAME", help="the rows become the variable NAME")
    @argument("--backend", default="light", help="light (the default) or spark")
    @argument(
        "--until", default="auto", choices=("auto", "end", "never"),
        help="end: read what is there; never: until the cell is interrupted; auto: as the sources are",
    )  # fmt: skip
    @argument("--live", action="store_true", help="show the rows while the query runs")
    @argument("--plot", action="store_true", help="show a picture of the rows while the query runs")
    @argument("--x", help="column for the axis of the picture; default: the first one")
    @argument("--y", help="columns that are drawn, separated by commas; default: all numbers but x")
    @cell_magic  # type: ignore[untyped-decorator,unused-ignore]
    def headrace(self, line: str, cell: str) -> pl.DataFrame | None:
        """Run a SQL text. Definitions are known to later cells and to hr.sql; the rows of its last SELECT are the result.

        ``${NAME}`` in the text stands for the variable NAME of the notebook.
        """
        asked = parse_argstring(self.headrace, line)
        namespace = self.shell.user_ns  # type: ignore[union-attr]
        settings = Settings(asked.backend, asked.until, variables=_variables(cell, namespace))
        picture = _Picture(asked.x, asked.y) if asked.plot else None
        shown = _Shown(picture) if asked.live or asked.plot else None
        try:
            result = Execution(cell, default_session(), settings).run(None if shown is None else shown.look)
        except HeadraceError as error:
            raise UsageError(str(error)) from None  # the place in the text, without the calls in between
        for notice in result.notices:
            print(notice)
        if result.report is not None:
            print(_told(result.report))
        if not result.frames:
            return None
        frame = result.frames[-1][1]
        if asked.into:
            namespace[asked.into] = frame
        if shown is not None:
            shown.show(frame, "")
            return None
        return None if asked.into else frame


def load(shell: InteractiveShell) -> None:
    """Offer the magic in a shell."""
    shell.register_magics(HeadraceMagics)


def _variables(text: str, namespace: dict[str, Any]) -> dict[str, str]:
    """Return the variables of the notebook that a text names."""
    names = re.findall(r"\$\{(\w+)\}", text)
    return {name: str(namespace[name]) for name in names if isinstance(namespace.get(name), str | int | float)}


def _told(report: JobReport) -> str:
    """Return what a job has read and written, and how many records it did not use, and why."""
    rows = "".join(
        f", {count:,} rows to {name}" for name, count in report.rows_written.items() if "collect_" not in name
    )
    told = f"{report.records_read:,} records read{rows}"
    if report.dead_letters:
        reasons = "; ".join(f"{each.count:,} × {each.origin}: {each.reason}" for each in report.dead_letter_reasons)
        told += f"; {report.dead_letters:,} became dead letters ({reasons}), in {', '.join(report.dead_letter_places)}"
    return told


class _Shown:
    """What a cell shows while its query runs: rows or a picture, replaced as they change."""

    def __init__(self, picture: _Picture | None) -> None:
        self._picture = picture
        self._handle: DisplayHandle | None = None
        self._next_seconds = 0.0

    def look(self, execution: Execution, seconds: float) -> None:
        """Show the rows of now, unless they were shown just before."""
        if seconds < self._next_seconds or not execution.views:
            return
        self._next_seconds = seconds + _PAUSE_SECONDS
        view: View = execution.views[-1]
        limit = None if self._picture is not None else _ROWS_SHOWN
        self.show(view.frame(limit), f"{view.height:,} rows after {view.changes:,} changes, {seconds:.1f} s")

    def show(self, frame: pl.DataFrame, title: str) -> None:
        """Show rows in the place of those of before."""
        made: Any = frame if self._picture is None else Image(data=self._picture.drawn(frame, title), format="png")
        if self._handle is None:
            self._handle = display(made, display_id=True)
        else:
            self._handle.update(made)


class _Picture:
    """Draws rows: lines over numbers and times, bars beside each other over anything else."""

    def __init__(self, x: str | None, y: str | None) -> None:
        self._x, self._y = x, y

    def drawn(self, frame: pl.DataFrame, title: str) -> bytes:
        """Return a PNG. Raises OptionError for a column that the rows do not have, or that is no number."""
        x = self._x or frame.columns[0]
        wanted = [each.strip() for each in (self._y or "").split(",") if each.strip()]
        for name in (x, *wanted):
            if name not in frame.columns:
                raise OptionError(f"no column {name!r}", hint=did_you_mean(name, frame.columns, known="columns"))
        numbers = [name for name, kind in frame.schema.items() if kind.is_numeric() and name != x]
        wanted = wanted or numbers
        if not wanted or not set(wanted) <= set(numbers):
            raise OptionError("a picture needs a column of numbers", hint=f"numbers: {', '.join(numbers) or 'none'}")
        figure = Figure(figsize=(8, 3.5), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.subplots()
        kind = frame.schema[x]
        if kind.is_numeric() or kind.is_temporal():
            frame = frame.sort(x)
            for name in wanted:
                axes.plot(frame[x].to_list(), frame[name].cast(pl.Float64).to_list(), label=name, marker=".")
        else:
            self._bars(axes, frame.sort(wanted[0], descending=True).head(_BARS_MAX), x, wanted)
        axes.set_xlabel(x)
        axes.set_title(title, fontsize="small")
        axes.legend(fontsize="small")
        file = io.BytesIO()
        figure.savefig(file, format="png", dpi=90)
        return file.getvalue()

    def _bars(self, axes: Any, frame: pl.DataFrame, x: str, wanted: list[str]) -> None:
        labels = ["NULL" if each is None else str(each) for each in frame[x].to_list()]
        width = 0.8 / len(wanted)
        for at, name in enumerate(wanted):
            places = [place + at * width for place in range(len(labels))]
            axes.bar(places, frame[name].cast(pl.Float64).fill_null(0).to_list(), width, label=name)
        axes.set_xticks([place + 0.4 - width / 2 for place in range(len(labels))], labels)
        axes.tick_params(axis="x", labelrotation=45 if len(labels) > 8 else 0)
