"""``headrace test pipeline.yaml``: run the cases of pipeline files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    name="test", help="Run the cases of pipeline files.", context_settings={"help_option_names": ["-h", "--help"]}
)


@app.command("test")
def run_tests(
    targets: Annotated[
        list[Path], typer.Argument(metavar="FILE…", help="Pipeline files, or folders of them.", show_default=False)
    ],
    parameters: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="The value of ${KEY} in the text; may be repeated."),
    ] = None,
    debug: Annotated[bool, typer.Option("--debug", help="Show the whole traceback of an error.")] = False,
) -> None:
    """Run the cases of pipeline files, with memory in place of sources and sinks.

    Exit code 0: all is as expected; 1: a case differs; 2: a file or a case is wrong, or there is none.
    """
    # The console imports this module to list its commands: what a command needs is imported when it runs. The console itself is no
    # dependency of this package.
    from headrace_console import reporting

    with reporting.errors_as_messages(debug=debug):
        from headrace_console.job_files import parse_assignments

        from headrace_pipeline.report import report_cases

        code = report_cases(targets, parse_assignments(parameters or (), flag="--set"))
    raise typer.Exit(code)
