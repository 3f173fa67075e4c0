"""The commands and their options. Their code is in separate modules, which only the running command imports."""

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
        added = sorted(metadata.entry_points(group=COMMANDS_GROUP, name=cmd_name), key=lambda entry: entry.value)
        if own is not None or not added:
            return own
        found, *others = (typer.main.get_command(entry.load()) for entry in added)
        for other in others:  # several distributions may add sub-commands to one group
            if not (isinstance(found, typer.core.TyperGroup) and isinstance(other, typer.core.TyperGroup)):
                raise typer.BadParameter(f"several distributions add the command {cmd_name}")
            found.commands = {**other.commands, **found.commands}
        found.name = cmd_name
        return found


app = typer.Typer(
    name="headrace",
    cls=Commands,
    help="Stream processing that installs with pip: run and explain jobs, see what is installed, start a new plug-in.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_TARGET_HELP = "The file that builds the job; with [bold]:name[/bold] at the end if the file has several jobs."


class Until(enum.StrEnum):
    """When a run ends."""

    END = "end"
    NEVER = "never"


class SinksAhead(enum.StrEnum):
    """What to do if a sink already has results from after the state with which the job starts."""

    REFUSE = "refuse"
    WRITE = "write"


class LogFormat(enum.StrEnum):
    """How events are logged."""

    CONSOLE = "console"
    JSON = "json"


class LogLevel(enum.StrEnum):
    """The least important events that are logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class PlanFormat(enum.StrEnum):
    """How a plan is shown."""

    TEXT = "text"
    MERMAID = "mermaid"
    SVG = "svg"


class StateFormat(enum.StrEnum):
    """How state is shown."""

    TABLE = "table"
    JSON = "json"


class ProjectKind(enum.StrEnum):
    """The kind of the plug-in in a new project."""

    SINK = "sink"
    SOURCE = "source"
    CONNECTOR = "connector"
    UDF = "udf"
    OPERATOR = "operator"
    STATEFUL_OPERATOR = "stateful-operator"
    CODEC = "codec"
    STATE_STORE = "state-store"
    LANGUAGE = "language"
    BACKEND = "backend"


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
        Until, typer.Option(help="end: read the input that exists, then stop. never: continue until Ctrl-C or SIGTERM.")
    ] = Until.END,
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Directory of the checkpoint; the run continues at its last checkpoint.",
            show_default=False,
        ),
    ] = None,
    allow_changed_input: Annotated[
        bool,
        typer.Option("--allow-changed-input", help="Continue with stored state although its inputs have changed."),
    ] = False,
    replace_output: Annotated[
        bool, typer.Option("--replace-output", help="First remove the output of earlier runs, if the sink supports it.")
    ] = False,
    from_savepoint: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="PATH",
            help="Begin at this savepoint, with an empty checkpoint or none.",
            show_default=False,
        ),
    ] = None,
    drop_state: Annotated[
        list[str] | None,
        typer.Option(
            "--drop-state", metavar="ID", help="Do not load the savepoint's state of this verb; may be repeated."
        ),
    ] = None,
    sinks_ahead: Annotated[
        SinksAhead | None,
        typer.Option(
            "--sinks-ahead",
            help="What to do when a sink has results from after the checkpoint or savepoint: refuse, or write them again.",
            show_default="refuse",
        ),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option("--option", "-o", metavar="KEY=VALUE", help="An option of the run or backend; may be repeated."),
    ] = None,
    parameters: Parameters = None,
    log_format: Annotated[
        LogFormat | None,
        typer.Option("--log-format", help="How events are logged on standard error.", show_default="console"),
    ] = None,
    log_level: Annotated[
        LogLevel | None,
        typer.Option("--log-level", help="The least important events that are logged.", show_default="warning"),
    ] = None,
    debug: Debug = False,
) -> None:
    """Run a job and report what it did.

    Rows that a job prints go to standard output, everything else to standard error. Exit code: 0 the job has finished
    or was stopped, 1 it failed, 2 the job or the command is wrong, 3 every record that was read is a dead letter, 4 a
    queue could not be read to its end.
    """
    from headrace_console import reporting

    code = 0
    with reporting.errors_as_messages(debug=debug):
        from headrace_console import running

        with running.events_logged(log_format and log_format.value, log_level and log_level.value):
            code = running.run(
                target,
                backend=backend,
                until=None if until is Until.NEVER else "end",
                checkpoint=checkpoint,
                from_savepoint=from_savepoint,
                drop_state=drop_state or (),
                options=option or (),
                parameters=parameters or (),
                choices={
                    "allow_changed_input": allow_changed_input,
                    "replace_output": replace_output,
                    "sinks_ahead": sinks_ahead and sinks_ahead.value,
                },
            )
    if code:
        raise typer.Exit(code)


@app.command()
def savepoint(
    checkpoint: Annotated[
        Path,
        typer.Argument(
            metavar="CHECKPOINT",
            help="The checkpoint directory of the running job; or a job of a server, by its name.",
            show_default=False,
        ),
    ],
    path: Annotated[
        Path | None,
        typer.Argument(
            metavar="PATH", help="Where to write the savepoint; for a job of a server: its name.", show_default=False
        ),
    ] = None,
    stop: Annotated[bool, typer.Option("--stop", help="Stop the job at the position of the savepoint.")] = False,
    debug: Debug = False,
) -> None:
    """Ask a job that runs on this machine to write a savepoint, from which a job can start (run --from)."""
    from headrace_console import reporting

    with reporting.errors_as_messages(debug=debug):
        from headrace_console import savepoints

        typer.echo(savepoints.take(checkpoint, path, stop=stop))


state_app = typer.Typer(name="state", help="Show the state in checkpoints and savepoints.", no_args_is_help=True)
app.add_typer(state_app)


@state_app.command()
def show(
    path: Annotated[
        Path, typer.Argument(metavar="PATH", help="A savepoint or a checkpoint directory.", show_default=False)
    ],
    key: Annotated[
        list[str] | None,
        typer.Option(
            "--key", metavar="COLUMN=VALUE", help="Show the rows of this key; may be repeated for its columns."
        ),
    ] = None,
    verb: Annotated[
        str | None, typer.Option("--verb", metavar="ID", help="Only the verb with this id.", show_default="all")
    ] = None,
    format: Annotated[StateFormat, typer.Option("--format", "-f", help="Format of the output.")] = StateFormat.TABLE,
    job: Annotated[
        str | None,
        typer.Option(
            "--job", metavar="FILE[:NAME]", help="The job, to combine the changes in a checkpoint.", show_default=False
        ),
    ] = None,
    debug: Debug = False,
) -> None:
    """Show what a savepoint or checkpoint holds: positions, verbs, sizes, and with --key the rows of a key."""
    from headrace_console import reporting

    with reporting.errors_as_messages(debug=debug):
        from headrace_console.state_showing import show_state

        show_state(path, keys=key or (), verb=verb, as_json=format is StateFormat.JSON, job=job)


@app.command()
def lint(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A SQL text, a pipeline, …", show_default=False)],
    parameters: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="The value of ${KEY} in the text; may be repeated."),
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Treat notices as mistakes: exit code 2.")] = False,
    debug: Debug = False,
) -> None:
    """Check a job in a language (.sql, .yaml) without running it. Exit code 0: it can run; 2: it is wrong."""
    from headrace_console import reporting
    from headrace_console.job_files import lint_job, parse_assignments

    with reporting.errors_as_messages(debug=debug):
        notices = lint_job(file, parse_assignments(parameters or (), flag="--set"))
    for notice in notices:
        print(f"notice: {notice}")
    counted = f"{len(notices)} notice{'s' if len(notices) > 1 else ''}" if notices else ""
    if strict and notices:
        print(f"{file}: {counted}, and --strict allows none")
        raise typer.Exit(2)
    print(f"{file}: ok" + (f", {counted}" if counted else ""))


@app.command()
def explain(
    target: Target,
    format: Annotated[
        PlanFormat | None,
        typer.Option(
            "--format",
            "-f",
            help="Format of the plan; without it, the suffix of the output file decides.",
            show_default="text",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write to this file.", show_default="standard output"),
    ] = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="The checkpoint of the run: dead letters without their own sink are stored beside it.",
            show_default=False,
        ),
    ] = None,
    parameters: Parameters = None,
    debug: Debug = False,
) -> None:
    """Show a job's plan as text, as a Mermaid flowchart or as an SVG picture.

    No record is read. A source without a declared schema may ask its server for the columns (mysql).
    """
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
        typer.Argument(help="A plug-in, or anything that a plug-in offers: kafka, json, where, …", show_default=False),
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
    kind: Annotated[ProjectKind, typer.Argument(help="Kind of the plug-in.", show_default=False)],
    name: Annotated[str, typer.Argument(help="Its name, as in to_NAME: a-z, 0-9 and dashes.", show_default=False)],
    directory: Annotated[
        Path | None,
        typer.Option("--directory", "-d", metavar="DIR", help="Directory to create.", show_default="./headrace-NAME"),
    ] = None,
    debug: Debug = False,
) -> None:
    """Make a plug-in project: package, entry point, tests with the contract suite. Its tests pass from the start."""
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
    """Run the command, as the ``headrace`` script does."""
    from headrace_console import command

    command.main()


if __name__ == "__main__":
    main()
