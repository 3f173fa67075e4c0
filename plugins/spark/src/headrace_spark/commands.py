"""``headrace package``: one archive with a job and all that Spark's workers need to run it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(name="package", context_settings={"help_option_names": ["-h", "--help"]})


@app.command()
def package(
    target: Annotated[
        str,
        typer.Argument(metavar="FILE[:NAME]", help="The file that builds the job.", show_default=False),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="The archive to write; its name ends in .tar.gz.",
            show_default="the job file's name with .tar.gz",
        ),
    ] = None,
    include: Annotated[
        list[str] | None,
        typer.Option("--include", "-i", metavar="NAME", help="Also pack this distribution; may be repeated."),
    ] = None,
    whole_environment: Annotated[
        bool, typer.Option("--whole-environment", help="Pack all distributions of this environment.")
    ] = False,
    with_python: Annotated[
        bool, typer.Option("--with-python", help="Pack Python itself too, for workers that have none of this version.")
    ] = False,
    allow_literals: Annotated[
        bool, typer.Option("--allow-literals", help="Pack files of yours that seem to hold secrets.")
    ] = False,
    parameters: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="An argument for the file's job() function; may be repeated."),
    ] = None,
    debug: Annotated[bool, typer.Option("--debug", help="Show the whole traceback of an error.")] = False,
) -> None:
    """Pack a job for Spark's workers: the job file, the modules that it imports, and the packages that they need.

    The archive holds the versions that are installed here. Workers need a Python of the same version, and nothing else.
    Files of secrets are not packed. What to do with the archive is printed at the end.
    """
    from headrace_console import reporting

    with reporting.errors_as_messages(debug=debug):
        from headrace_spark.packaging.making import PackageRequest, make_package

        file = Path(target if Path(target).is_file() else target.rpartition(":")[0] or target)
        make_package(
            PackageRequest(
                target=target,
                output=output or Path(f"{file.stem}.tar.gz"),
                parameters=parameters or (),
                include=include or (),
                whole_environment=whole_environment,
                with_python=with_python,
                allow_literals=allow_literals,
            )
        )
