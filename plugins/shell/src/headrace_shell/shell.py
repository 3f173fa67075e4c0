"""The shell without a terminal: runs typed text statement by statement, and commands that begin with a backslash."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from headrace.foundation.errors import HeadraceError, OptionError, did_you_mean
from headrace.interfaces.registry import default_registry
from headrace_sql import SqlSession
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from headrace_shell.execution import Execution, Result, Settings
from headrace_shell.showing import Output, counted, grid
from headrace_shell.splitting import statements_of

_REFRESH_S = 0.1


@dataclass(frozen=True)
class Command:
    """A command with a backslash."""

    name: str
    arguments: str
    says: str


COMMANDS = (
    Command(r"\d", "[NAME]", "lists tables and views; describes one"),
    Command(r"\df", "[PATTERN]", "lists functions"),
    Command(r"\dc", "", "lists catalogs and databases"),
    Command(r"\explain", "QUERY", "shows the plan of a query"),
    Command(r"\timing", "[on|off]", "shows how long statements take"),
    Command(r"\format", "table|csv|json|parquet", "the form of results"),
    Command(r"\o", "[FILE]", "writes results to a file; without a name to the terminal again"),
    Command(r"\i", "FILE", "runs the statements of a file"),
    Command(r"\set", "[NAME VALUE]", "fills in ${NAME}; without arguments lists the names"),
    Command(r"\backend", "[NAME]", "light, spark or another that is installed"),
    Command(
        r"\until", "auto|end|never", "when jobs end: auto reads files and tables to their end, and topics until Ctrl-C"
    ),
    Command(r"\checkpoint", "[DIR]", "directory of the checkpoint of INSERTs"),
    Command(r"\q", "", "leaves the shell"),
    Command(r"\?", "", "lists these commands"),
)


class Leave(Exception):
    """The user wants to leave the shell."""


class Shell:
    """Runs statements in one session, and shows their results."""

    def __init__(
        self, output: Output, settings: Settings, session: SqlSession | None = None, *, errors: Console | None = None
    ) -> None:
        self.session = session if session is not None else SqlSession()
        self.output, self.settings = output, settings
        self.errors = errors if errors is not None else Console(stderr=True, highlight=False)
        self.timing = False
        #: Called after each statement: definitions may have changed.
        self.changed: Callable[[], None] = lambda: None

    def take(self, text: str) -> bool:
        """Run typed text. Returns whether all of it has worked; errors are printed. Raises Leave."""
        stripped = text.strip()
        if stripped.startswith("\\"):
            return self._guarded(lambda: self._command(stripped))
        word = stripped.rstrip(";").strip().lower()
        if word in ("quit", "exit"):
            raise Leave
        if word == "help":
            return self._guarded(lambda: self._command(r"\?"))
        statements, rest = statements_of(text)
        for statement in (*statements, *([rest] if rest.strip() else [])):
            if not self._guarded(lambda statement=statement: self.run(statement)):  # type: ignore[misc]
                return False
        return True

    def _guarded(self, action: Callable[[], object]) -> bool:
        try:
            action()
        except HeadraceError as error:
            self.errors.print(Text(f"error: {error}", style="red"))
            return False
        finally:
            self.changed()
        return True

    def run(self, text: str) -> Result:
        """Run a text as a whole, and show its results. Raises JobError."""
        begun = time.perf_counter()
        execution = Execution(text, self.session, self.settings)
        if execution.script.is_job and self._is_live:
            result = self._run_live(execution)
        else:
            result = execution.run()
            self._show(result)
        for notice in result.notices:
            self.errors.print(Text(f"notice: {notice}", style="yellow"))
        self._report(result, time.perf_counter() - begun)
        return result

    @property
    def _is_live(self) -> bool:
        console = self.output.console
        return console.is_terminal and self.output.path is None and self.output.format == "table"

    def _run_live(self, execution: Execution) -> Result:
        """Run a job with its rows on the terminal, refreshed in place until it ends or Ctrl-C stops it."""
        streaming = execution.is_streaming
        console = self.output.console
        with Live(console=console, auto_refresh=False, transient=True) as live:
            shown_at = 0.0

            def refresh(running: Execution, seconds: float) -> None:
                nonlocal shown_at
                now = time.perf_counter()
                if now - shown_at < _REFRESH_S:
                    return
                shown_at = now
                live.update(self._picture(running, seconds, streaming=streaming), refresh=True)

            if streaming:
                live.update(self._picture(execution, 0.0, streaming=True), refresh=True)
            result = execution.run(refresh)
        self._show(result)
        return result

    def _picture(self, execution: Execution, seconds: float, *, streaming: bool) -> Group:
        lines_left = max(3, self.output.console.height - 6)
        parts: list[object] = []
        for view in execution.views:
            frame = view.frame(lines_left // max(1, len(execution.views)))
            if frame.width:
                parts.append(grid(frame))
            changes = f", {view.changes:,} changes" if view.is_updating else ""
            parts.append(Text(f"{counted(view.height)}{changes} after {seconds:.1f} s", style="dim"))
        if streaming:
            parts.append(Text("running; Ctrl-C stops", style="dim"))
        return Group(*parts)  # type: ignore[arg-type]

    def _show(self, result: Result) -> None:
        for said in self.output.write(result.frames):
            self._say(said)

    def _report(self, result: Result, seconds: float) -> None:
        if result.report is None and not result.frames:
            self._say("ok")
        for _, frame in result.frames if self.output.path is None and self.output.format == "table" else ():
            if frame.columns != ["result"]:
                self._say(counted(frame.height))
        if result.report is not None:
            for table, rows in result.report.rows_written.items():
                if table in result.written or not table.startswith("collect_"):
                    self._say(f"{counted(rows)} written to {table}")
            if result.report.dead_letters:
                places = ", ".join(result.report.dead_letter_places) or "nowhere"
                self.errors.print(Text(f"{result.report.dead_letters:,} dead letters to {places}", style="yellow"))
                for reason in result.report.dead_letter_reasons:
                    self.errors.print(Text(f"  {reason}", style="yellow"))
        if result.stopped:
            self._say("stopped")
        if self.timing:
            self._say(f"time: {seconds:.3f} s")

    def _say(self, text: str) -> None:
        self.errors.print(Text(text, style="dim"))

    # ------------------------------------------------------------------------------------------------------- commands

    def _command(self, text: str) -> None:
        name, _, rest = text.partition(" ")
        rest = rest.strip().rstrip(";").strip()
        known = {each.name: each for each in COMMANDS}
        if name not in known:
            raise OptionError(f"unknown command {name}", hint=did_you_mean(name, known, known="commands"))
        method = {r"\?": "help", r"\q": "leave"}.get(name, name[1:])
        getattr(self, f"_do_{method}")(rest)

    def _do_help(self, rest: str) -> None:
        for each in COMMANDS:
            self.output.console.print(Text(f"{each.name + ' ' + each.arguments:<32}{each.says}"))
        self.output.console.print(Text("Statements end in a semicolon. Ctrl-C stops a running job, Ctrl-D leaves."))

    def _do_leave(self, rest: str) -> None:
        raise Leave

    def _do_d(self, rest: str) -> None:
        self.run(f"DESCRIBE {rest}" if rest else "SHOW TABLES")

    def _do_df(self, rest: str) -> None:
        pattern = rest if "%" in rest or not rest else f"%{rest}%"
        escaped = pattern.replace("'", "''")
        self.run(f"SHOW FUNCTIONS ILIKE '{escaped}'" if rest else "SHOW FUNCTIONS")

    def _do_dc(self, rest: str) -> None:
        self.run("SHOW CATALOGS")
        self.run("SHOW DATABASES")

    def _do_explain(self, rest: str) -> None:
        if not rest:
            raise OptionError(r"\explain needs a query", hint=r"\explain SELECT * FROM t")
        self.run(f"EXPLAIN {rest}")

    def _do_timing(self, rest: str) -> None:
        if rest.lower() not in ("", "on", "off"):
            raise OptionError(rf"\timing {rest}: on or off")
        self.timing = not self.timing if not rest else rest.lower() == "on"
        self._say(f"timing is {'on' if self.timing else 'off'}")

    def _do_format(self, rest: str) -> None:
        self.output = Output(rest or "table", self.output.path, self.output.console)

    def _do_o(self, rest: str) -> None:
        path = Path(rest) if rest else None
        format = self.output.format
        if path is None and format == "parquet":
            format = "table"
        if path is not None and path.suffix.lstrip(".") in ("csv", "json", "parquet"):
            format = path.suffix.lstrip(".")
        self.output = Output(format, path, self.output.console)

    def _do_i(self, rest: str) -> None:
        try:
            text = Path(rest).read_text(encoding="utf-8")
        except OSError as error:
            raise OptionError(f"{rest} cannot be read: {error.strerror}") from error
        self.run(text)

    def _do_set(self, rest: str) -> None:
        name, _, value = rest.partition(" ")
        if not name:
            for key, known in self.settings.variables.items():
                self.output.console.print(Text(f"{key} = {known}"))
            return
        self.settings.variables[name] = value.strip()

    def _do_backend(self, rest: str) -> None:
        if rest:
            if not default_registry().has("backend", rest):
                default_registry().find("backend", rest)  # raises, saying what to install
            self.settings.backend = rest
        self._say(f"backend is {self.settings.backend}")

    def _do_until(self, rest: str) -> None:
        if rest not in ("auto", "end", "never"):
            raise OptionError(rf"\until {rest}: auto, end or never")
        self.settings.until = rest

    def _do_checkpoint(self, rest: str) -> None:
        self.settings.checkpoint = rest or None
        self._say(f"checkpoint is {self.settings.checkpoint or 'not kept'}")
