"""``headrace sql``: a shell for SQL texts, or one text with ``-e`` or ``-f``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    name="sql",
    help="Run SQL statements: in a shell, or a text with -e or -f.",
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.command()
def sql(
    execute: Annotated[
        list[str] | None,
        typer.Option("--execute", "-e", metavar="TEXT", help="Run these statements and exit; may be repeated."),
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", metavar="FILE", help="Run this file and exit.", show_default=False)
    ] = None,
    init: Annotated[
        Path | None,
        typer.Option("--init", "-i", metavar="FILE", help="Run this file before anything else.", show_default=False),
    ] = None,
    format: Annotated[str, typer.Option("--format", help="table, csv, json or parquet.")] = "table",
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Write results to this file; its suffix chooses the format.",
            show_default=False,
        ),
    ] = None,
    backend: Annotated[
        str, typer.Option("--backend", "-b", help="light, spark or another that is installed.")
    ] = "light",
    until: Annotated[
        str,
        typer.Option(help="When a job ends: end, never, or auto (as its sources decide)."),
    ] = "auto",
    checkpoint: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Directory of the checkpoint of INSERTs.", show_default=False)
    ] = None,
    parameters: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="The value of ${KEY} in the text; may be repeated."),
    ] = None,
    timing: Annotated[bool, typer.Option("--timing", help="Show how long each statement takes.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the whole traceback of an error.")] = False,
) -> None:
    """Run SQL statements: in a shell on a terminal, or those of -e, -f or standard input.

    A file or an -e text takes effect as a whole: after a mistake nothing of it runs. Exit code: 0 everything has worked, 1 a job
    has failed, 2 a statement is wrong.
    """
    # The console imports this module to list its commands: what a command needs is imported when it runs.
    from headrace_console import reporting

    with reporting.errors_as_messages(debug=debug):
        from headrace_shell import starting

        starting.start(
            texts=execute or (), file=file, init=init, format=format, output=output, backend=backend, until=until,
            checkpoint=checkpoint, parameters=parameters or (), timing=timing,
        )  # fmt: skip
