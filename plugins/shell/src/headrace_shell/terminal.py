"""The loop on a terminal: lines with history, colours and completion, until the user leaves."""

from __future__ import annotations

import os
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.auto_suggest import AutoSuggestFromHistory
from prompt_toolkit.completion import ThreadedCompleter
from prompt_toolkit.filters import Condition
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.lexers import PygmentsLexer
from pygments.lexers.sql import SqlLexer

from headrace_shell.completion import SqlCompleter
from headrace_shell.shell import COMMANDS, Leave, Shell
from headrace_shell.splitting import is_complete


def history_path() -> Path:
    """Return the file of the input history."""
    state = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    return Path(state) / "headrace" / "sql-history"


def _history() -> History:
    path = history_path()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # What is typed may hold secrets.
        os.close(os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600))
    except OSError:
        return InMemoryHistory()
    return FileHistory(str(path))


def _bindings() -> KeyBindings:
    made = KeyBindings()

    @Condition
    def incomplete() -> bool:
        from prompt_toolkit.application import get_app

        return not is_complete(get_app().current_buffer.text)

    @made.add("enter", filter=~incomplete)
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.validate_and_handle()

    return made


def prompt_session(shell: Shell) -> PromptSession[str]:
    """Return what reads lines for a shell: Enter runs complete statements, and begins a new line in others."""
    completer = SqlCompleter(shell.session, [each.name for each in COMMANDS])
    shell.changed = completer.known.forget
    return PromptSession(
        message=lambda: f"{shell.session.place.database if shell.session.place.database != 'default_database' else 'headrace'}> ",
        multiline=True, prompt_continuation=lambda width, number, wrapped: "." * (width - 2) + "  ", history=_history(),
        completer=ThreadedCompleter(completer), complete_while_typing=True, auto_suggest=AutoSuggestFromHistory(),
        lexer=PygmentsLexer(SqlLexer), key_bindings=_bindings(), enable_history_search=False,
    )  # fmt: skip


def loop(shell: Shell) -> None:
    """Take statements until the user leaves by Ctrl-D, ``quit`` or ``\\q``. Ctrl-C discards the typed text."""
    session = prompt_session(shell)
    shell.output.console.print(
        r"headrace sql: statements end in a semicolon; \? lists commands, Ctrl-D leaves.", style="dim"
    )
    while True:
        try:
            text = session.prompt()
        except KeyboardInterrupt:
            continue
        except EOFError:
            return
        if not text.strip():
            continue
        try:
            shell.take(text)
        except Leave:
            return
