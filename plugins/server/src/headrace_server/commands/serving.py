"""``headrace serve``."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Annotated

import typer

from headrace_server.commands.showing import Debug

serve_app = typer.Typer(add_completion=False)


class OnStop(enum.StrEnum):
    """What becomes of the jobs when the server ends."""

    STOP = "stop"
    LEAVE = "leave"


@serve_app.command()
def serve(
    jobs: Annotated[Path, typer.Option("--jobs", metavar="DIR", help="The directory of jobs.")] = Path("jobs"),
    data: Annotated[
        Path | None,
        typer.Option("--data", metavar="DIR", help="Where the server keeps all.", show_default="./headrace-data"),
    ] = None,
    registry: Annotated[
        str | None,
        typer.Option(
            envvar="HEADRACE_REGISTRY",
            metavar="URL",
            help="Database of the registry.",
            show_default="SQLite in the data directory",
        ),
    ] = None,
    host: Annotated[str, typer.Option(help="A loopback address.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any that is free.")] = 8731,
    on_stop: Annotated[
        OnStop, typer.Option("--on-stop", help="stop: stop all jobs at a checkpoint. leave: their processes go on.")
    ] = OnStop.STOP,
    debug: Debug = False,
) -> None:
    """Run what lies in a directory of jobs: start it, watch it, restart it, roll out what changes. Ends on Ctrl-C or SIGTERM."""
    from headrace_console import reporting

    with reporting.errors_as_messages(debug=debug):
        import logging
        import sys

        from headrace_server.commands.client import data_directory
        from headrace_server.serving import HeadraceServer, ServerOptions

        logging.basicConfig(
            stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
        )
        options = ServerOptions(
            jobs=jobs, data=data or data_directory(), registry=registry, host=host, port=port, on_stop=on_stop.value
        )
        server = HeadraceServer(options)
        reporting.say(f"serving {jobs} at {server.url}")
        reporting.say(f"token: {server.data.token}")
        server.run()
