"""Begins the shell with the options of the command."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from headrace.foundation.errors import OptionError
from headrace_console.job_files import parse_assignments

from headrace_shell.execution import Settings
from headrace_shell.shell import Shell
from headrace_shell.showing import Output


def start(
    *,
    texts: Sequence[str],
    file: Path | None,
    init: Path | None,
    format: str,
    output: Path | None,
    backend: str,
    until: str,
    checkpoint: Path | None,
    parameters: Sequence[str],
    timing: bool,
) -> None:
    """Run the file or text of the command, else standard input, else a shell on the terminal. Raises JobError."""
    if until not in ("auto", "end", "never"):
        raise OptionError(f"--until {until}: auto, end or never")
    settings = Settings(
        backend, until, None if checkpoint is None else str(checkpoint), parse_assignments(parameters, flag="--set")
    )
    shell = Shell(Output(format, output), settings)
    shell.timing = timing
    place = str(Path.cwd())
    if place not in sys.path:
        sys.path.insert(0, place)  # CREATE FUNCTION names modules of this directory
    for path in (init, file):
        if path is not None:
            shell.run(_text(path))
    for text in texts:
        shell.run(text)
    if texts or file is not None:
        return
    if not sys.stdin.isatty():
        shell.run(sys.stdin.read())
        return
    from headrace_shell.terminal import loop

    loop(shell)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise OptionError(f"{path} cannot be read: {error.strerror}") from error
