"""The commands and their options. What they do is in modules of their own, imported only by the command that runs."""

from __future__ import annotations

import enum
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any

import typer
import typer.core
import typer.main

#: Entry points of this group are typer applications: the commands that other distributions add.
COMMANDS_GROUP = "headrace.commands"


class Commands(typer.core.TyperGroup):
    """The commands of this module, and those that installed distributions add; these are imported when they are used."""

    def list_commands(self, ctx: Any) -> list[str]:
        own = super().list_commands(ctx)
        return [*own, *sorted({entry.name for entry in metadata.entry_points(group=COMMANDS_GROUP)} - set(own))]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        own = super().get_command(ctx, cmd_name)
        added = metadata.entry_points(group=COMMANDS_GROUP, name=cmd_name)
        if own is not None or not added:
            return own
        found = typer.main.get_command(next(iter(added)).load())
        found.name = cmd_name
        return found


app = typer.Typer(
    name="headrace",
    cls=Commands,
    help="Stream processing that installs with pip: run jobs, explain them, see what is installed, begin a plug-in.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_TARGET_HELP = "The file that builds the job, with [bold]:name[/bold] behind it where the file has several."


class Until(enum.StrEnum):
    """When a run ends."""

    END = "end"
    NEVER = "never"


class PlanFormat(enum.StrEnum):
    """How a plan is shown."""

    TEXT = "text"
    MERMAID = "mermaid"
    SVG = "svg"


class ProjectKind(enum.StrEnum):
    """What a new project is to hold."""

    SINK = "sink"
    SOURCE = "source"
    UDF = "udf"
    OPERATOR = "operator"


Target = Annotated[str, typer.Argument(metavar="FILE[:NAME]", help=_TARGET_HELP, show_default=False)]
Parameters = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="An argument for the file's job() function; may be repeated."),
]
Debug = Annotated[bool, typer.Option("--debug", help="Show the whole traceback of an error.")]


@app.command()
def run(
    target: Target,
    backend: Annotated[
        str | None,
        typer.Option("--backend", "-b", help="spark, light or another that is installed.", show_default="spark"),
    ] = None,
    until: Annotated[
        Until, typer.Option(help="end: read what is there, then stop. never: go on until Ctrl-C or SIGTERM.")
    ] = Until.END,
    checkpoint: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Keep progress in this directory and go on from it.", show_default=False),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option("--option", "-o", metavar="KEY=VALUE", help="An option of the run or backend; may be repeated."),
    ] = None,
    parameters: Parameters = None,
    debug: Debug = False,
) -> None:
    """Run a job and report what it did.

    Rows that a job prints go to standard output, everything else to standard error. Exit code: 0 the job has finished
    or was stopped, 1 it failed, 2 the job or the command is wrong.
    """
    from headrace_console import reporting

    with reporting.errors_as_messages(debug=debug):
        from headrace_console import running

        running.run(
            target,
            backend=backend,
            until=None if until is Until.NEVER else "end",
            checkpoint=checkpoint,
            options=option or (),
            parameters=parameters or (),
        )


@app.command()
def explain(
    target: Target,
    format: Annotated[
        PlanFormat | None,
        typer.Option(
            "--format", "-f", help="How to show it; the suffix of the output decides too.", show_default="text"
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write to this file.", show_default="standard output"),
    ] = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="As for run: dead letters go beside it.", show_default=False),
    ] = None,
    parameters: Parameters = None,
    debug: Debug = False,
) -> None:
    """Show a job's plan as text, as a Mermaid flowchart or as an SVG picture. Nothing is read or connected."""
    from headrace_console import reporting

    with reporting.errors_as_messages(debug=debug):
        from headrace_console import explaining

        explaining.explain(
            target,
            format=format.value if format else None,
            output=output,
            checkpoint=checkpoint,
            parameters=parameters or (),
        )


@app.command()
def plugins(
    name: Annotated[
        str | None,
        typer.Argument(help="A plug-in, or anything it offers: kafka, json, where, …", show_default=False),
    ] = None,
    debug: Debug = False,
) -> None:
    """List what is installed, or show all that a plug-in offers with every option."""
    from headrace_console import reporting

    with reporting.errors_as_messages(debug=debug):
        from headrace_console import catalog

        if name is None:
            catalog.show_installed()
        else:
            catalog.show_plugin(name)


@app.command()
def new(
    kind: Annotated[ProjectKind, typer.Argument(help="What to write.", show_default=False)],
    name: Annotated[str, typer.Argument(help="Its name, as in to_NAME: a-z, 0-9 and dashes.", show_default=False)],
    directory: Annotated[
        Path | None,
        typer.Option("--directory", "-d", metavar="DIR", help="Where to make it.", show_default="./headrace-NAME"),
    ] = None,
    debug: Debug = False,
) -> None:
    """Make a plug-in project: package, entry point, tests with the contract suite. It passes its tests at once."""
    from headrace_console import reporting

    with reporting.errors_as_messages(debug=debug):
        from headrace_console import projects

        projects.create(kind.value, name, directory)


@app.command()
def version() -> None:
    """Show the versions of headrace and of the plug-ins."""
    from headrace_console import catalog

    catalog.show_versions()


def main() -> None:
    """Entry point of the ``headrace`` script."""
    app()


if __name__ == "__main__":
    main()
