"""``%%headrace``: SQL texts in the cells of Jupyter and IPython. ``%load_ext headrace_shell`` loads it.

Needs ``pip install 'headrace-shell[notebook]'``.
"""

from __future__ import annotations

import argparse
import io
import re
import shlex
from typing import Any, NoReturn

import polars as pl
from headrace.foundation.errors import HeadraceError, OptionError, did_you_mean
from headrace.interfaces.backend import JobReport
from headrace_sql.api import default_session
from IPython import display as ipython
from IPython.core.error import UsageError
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from headrace_shell.execution import Execution, Settings
from headrace_shell.views import View

#: IPython does not declare types.
_display: Any = ipython.display
_image: Any = ipython.Image
#: The minimum seconds between two drawings of a picture, and the number of rows that a changing table shows.
_PAUSE_SECONDS = 0.5
_ROWS_SHOWN = 20
#: So many bars have room beside each other.
_BARS_MAX = 40


class _Arguments(argparse.ArgumentParser):
    """The code of ``%%headrace``. An error is shown, and does not end the kernel."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}\n{self.format_usage()}")


def _arguments() -> _Arguments:
    made = _Arguments("%%headrace", description="runs a SQL text", add_help=False)
    made.add_argument("--into", metavar="NAME", help="the rows become the variable NAME")
    made.add_argument("--backend", default="light", help="light (the default) or spark")
    made.add_argument(
        "--until", default="auto", choices=("auto", "end", "never"),
        help="end: read the input that exists; never: run until the cell is interrupted; auto: as the sources decide",
    )  # fmt: skip
    made.add_argument("--live", action="store_true", help="show the rows while the query runs")
    made.add_argument("--plot", action="store_true", help="show a picture of the rows while the query runs")
    made.add_argument("--x", help="column for the axis of the picture; default: the first one")
    made.add_argument("--y", help="columns that are drawn, separated by commas; default: all numbers but x")
    return made


class CellMagic:
    """``%%headrace`` of one shell."""

    def __init__(self, shell: Any) -> None:
        self._namespace: dict[str, Any] = shell.user_ns

    def run(self, line: str, cell: str) -> pl.DataFrame | None:
        """Run a SQL text. Definitions are known to later cells and to hr.sql; the rows of its last SELECT are the result.

        ``${NAME}`` in the text is replaced by the variable NAME of the notebook. Called by IPython for each cell. Raises UsageError.
        """
        asked = _arguments().parse_args(shlex.split(line))
        settings = Settings(asked.backend, asked.until, variables=_variables(cell, self._namespace))
        picture = _Picture(asked.x, asked.y) if asked.plot else None
        shown = _Shown(picture) if asked.live or asked.plot else None
        try:
            result = Execution(cell, default_session(), settings).run(None if shown is None else shown.look)
            if shown is not None and result.frames:
                shown.show(result.frames[-1][1], "")
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
            self._namespace[asked.into] = frame
        return None if asked.into or shown is not None else frame


def load(shell: Any) -> None:
    """Offer the magic in a shell of IPython."""
    shell.register_magic_function(CellMagic(shell).run, magic_kind="cell", magic_name="headrace")


def _variables(text: str, namespace: dict[str, Any]) -> dict[str, str]:
    """Return the variables of the notebook that a text names."""
    names = re.findall(r"\$\{(\w+)\}", text)
    return {name: str(namespace[name]) for name in names if isinstance(namespace.get(name), str | int | float)}


def _told(report: JobReport) -> str:
    """Return the numbers of records that a job has read, written and not used, with the reasons."""
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
        self._handle: Any = None
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
        made: Any = frame if self._picture is None else _image(data=self._picture.drawn(frame, title), format="png")
        if self._handle is None:
            self._handle = _display(made, display_id=True)
        else:
            self._handle.update(made)


class _Picture:
    """Draws rows: lines over numbers and times, bars beside each other over anything else."""

    def __init__(self, x: str | None, y: str | None) -> None:
        self._x, self._y = x, y

    def drawn(self, frame: pl.DataFrame, title: str) -> bytes:
        """Return a PNG. Raises OptionError for a column that the rows do not have, or that is not a number."""
        x = self._x or frame.columns[0]
        wanted = [each.strip() for each in (self._y or "").split(",") if each.strip()]
        for name in (x, *wanted):
            if name not in frame.columns:
                raise OptionError(f"no column {name!r}", hint=did_you_mean(name, frame.columns, known="columns"))
        numbers = [name for name, kind in frame.schema.items() if kind.is_numeric() and name != x]
        wanted = wanted or numbers
        if not wanted or not set(wanted) <= set(numbers):
            raise OptionError("a chart needs a numeric column", hint=f"numbers: {', '.join(numbers) or 'none'}")
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
