"""``headrace lint job.sql``: compile a text without running it, and say what in it has no effect here."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    name="lint", help="Check a SQL text without running it.", context_settings={"help_option_names": ["-h", "--help"]}
)


@app.command()
def lint(
    file: Annotated[Path, typer.Argument(metavar="FILE.sql", help="The text.", show_default=False)],
    parameters: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Fills in ${KEY}; may be repeated.")
    ] = None,
    debug: Annotated[bool, typer.Option("--debug", help="Show the whole traceback of an error.")] = False,
) -> None:
    """Check a SQL text without running it. Exit code 0: it can run; 2: it is wrong. Notices go to standard output."""
    # The console imports this module to list its commands: what a command needs is imported when it runs. The console itself is no
    # dependency of this package.
    from headrace_console import reporting

    with reporting.errors_as_messages(debug=debug):
        from headrace_console.job_files import parse_assignments

        from headrace_sql.api import SqlLanguage

        notices = SqlLanguage().lint(str(file), parse_assignments(parameters or (), flag="--set"))
        for notice in notices:
            print(f"notice: {notice}")
        print(f"{file}: ok" + (f", {len(notices)} notice{'s' if len(notices) > 1 else ''}" if notices else ""))
