"""The output of the command: messages on standard error, errors without tracebacks, exit codes."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

import typer
from headrace.foundation.errors import HeadraceError, JobError

from headrace_console.command import EXIT_INTERRUPTED as EXIT_INTERRUPTED
from headrace_console.user_code import UserCodeError

EXIT_JOB_FAILED = 1
EXIT_WRONG_USE = 2
EXIT_ALL_DEAD_LETTERS = 3
EXIT_BROKEN_QUEUES = 4


def say(text: str = "", *, style: str | None = None) -> None:
    """Print a line on standard error; ``style`` is its colour, which is used only on a terminal."""
    typer.echo(typer.style(text, fg=style) if style else text, err=True)


@contextmanager
def errors_as_messages(*, debug: bool) -> Iterator[None]:
    """Turn errors into a message and an exit code: 2 for a JobError, 1 for everything else, 130 for Ctrl-C.

    With ``debug`` the whole traceback comes first.
    """
    try:
        yield
    except KeyboardInterrupt as interrupt:
        say("interrupted")
        raise typer.Exit(EXIT_INTERRUPTED) from interrupt
    except Exception as error:  # every error must end as a message and an exit code
        if debug:
            say(traceback.format_exc().rstrip())
        _show(error, debug=debug)
        _leave_closed_pipe(error)
        raise typer.Exit(EXIT_WRONG_USE if isinstance(error, JobError) else EXIT_JOB_FAILED) from error


def _show(error: Exception, *, debug: bool) -> None:
    say(f"error: {_text(error)}", style="red")
    cause = error.__cause__
    # The message of a UserCodeError already contains its cause.
    while cause is not None and not isinstance(error, UserCodeError):
        say(f"  because of {_text(cause)}".replace("\n", "\n  "))
        cause = cause.__cause__
    for note in _notes(error):
        say(f"  {note}")
    if not debug and not isinstance(error, HeadraceError):
        say("  hint: this error was not expected; --debug shows the whole traceback")


def _notes(error: BaseException | None) -> Iterator[str]:
    """Yield the notes of an error and of its causes (``add_note``), such as the traceback of a worker process."""
    while error is not None:
        yield from getattr(error, "__notes__", ())
        error = error.__cause__


def _text(error: BaseException) -> str:
    if isinstance(error, HeadraceError):
        return str(error)
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _leave_closed_pipe(error: BaseException) -> None:
    """If the reader of standard output has ended, discard further output: else Python prints a second error when it exits."""
    found: BaseException | None = error
    while found is not None:
        if isinstance(found, BrokenPipeError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return
        found = found.__cause__
