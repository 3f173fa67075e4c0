"""``headrace rules …``: check rules, explain one on a message, profile them on many."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    name="rules",
    help="Check rules, explain a rule on a message, measure the cost of each rule.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Job = Annotated[
    str | None,
    typer.Option(
        "--job", "-j", metavar="FILE[:NAME]", help="Take rules and columns from this job.", show_default=False
    ),
]
RulesFile = Annotated[
    str | None,
    typer.Option("--rules", "-r", metavar="FILE", help="A .yaml or .sql file, or a pattern.", show_default=False),
]
Columns = Annotated[
    str | None,
    typer.Option(
        metavar="'NAME: TYPE, …'", help="The columns. Default: those of the job or the messages.", show_default=False
    ),
]
Debug = Annotated[bool, typer.Option("--debug", help="Show the whole traceback of an error.")]


@app.command()
def check(
    rules: Annotated[
        str, typer.Argument(metavar="FILE", help="A .yaml or .sql file, or a pattern.", show_default=False)
    ],
    job: Job = None,
    columns: Columns = None,
    on: Annotated[
        Path | None,
        typer.Option(metavar="MESSAGES", help="A file of JSON messages that gives the columns.", show_default=False),
    ] = None,
    debug: Debug = False,
) -> None:
    """Check every rule of a file and print the errors of each. Exit code 2 if a rule is wrong.

    If neither columns nor a job nor messages are given, only the syntax is checked.
    """
    from headrace_console import reporting

    with reporting.errors_as_messages(debug=debug):
        from headrace_rules import console

        console.check(rules, job=job, columns=columns, on=on)


@app.command()
def explain(
    rule_id: Annotated[str, typer.Argument(metavar="ID", help="The id of the rule.", show_default=False)],
    on: Annotated[Path, typer.Option(metavar="MESSAGE", help="A file with one JSON message.", show_default=False)],
    rules: RulesFile = None,
    job: Job = None,
    columns: Columns = None,
    debug: Debug = False,
) -> None:
    """Show why a rule matches a message or not: each clause, the trigger, and its cost."""
    from headrace_console import reporting

    with reporting.errors_as_messages(debug=debug):
        from headrace_rules import console

        console.explain(rule_id, on=on, rules=rules, job=job, columns=columns)


@app.command()
def profile(
    on: Annotated[
        Path, typer.Option(metavar="MESSAGES", help="A file of JSON messages, one per line.", show_default=False)
    ],
    rules: RulesFile = None,
    job: Job = None,
    columns: Columns = None,
    top: Annotated[int, typer.Option(min=1, help="How many rules to show.")] = 20,
    debug: Debug = False,
) -> None:
    """Run rules over messages and show what each costs, how often its trigger is met and how often it matches."""
    from headrace_console import reporting

    with reporting.errors_as_messages(debug=debug):
        from headrace_rules import console

        console.profile(on=on, rules=rules, job=job, columns=columns, top=top)
