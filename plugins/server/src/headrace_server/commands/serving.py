"""``headrace serve``."""

from __future__ import annotations

import enum
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from headrace_console.app import LogFormat

from headrace_server.commands.showing import Debug

if TYPE_CHECKING:
    from headrace_server.access import TLSOptions

_KEY_PASSWORD = "HEADRACE_TLS_KEY_PASSWORD"
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
        typer.Option("--data", metavar="DIR", help="The data directory of the server.", show_default="./headrace-data"),
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
    name: Annotated[
        str | None,
        typer.Option(
            help="The name of this server in the registry.",
            show_default="the name of the machine, if a registry is given",
        ),
    ] = None,
    shared: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="A directory that all servers of a registry share: checkpoints, savepoints, rules."
        ),
    ] = None,
    no_jobs: Annotated[
        bool, typer.Option("--no-jobs", help="Run jobs that other servers of the registry read; no jobs directory.")
    ] = False,
    lease_duration: Annotated[
        str,
        typer.Option(
            metavar="TIME", help="After this time without a sign of life, the jobs of a server go to other servers."
        ),
    ] = "8 s",
    ext: Annotated[
        Path | None,
        typer.Option(
            "--ext", metavar="DIR", help="Directory of the wheels of plug-ins.", show_default="ext/ beside the jobs"
        ),
    ] = None,
    log_format: Annotated[
        LogFormat, typer.Option("--log-format", help="How the server and the processes of jobs log.")
    ] = LogFormat.CONSOLE,
    host: Annotated[
        str,
        typer.Option(help="The address to listen on."),
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port to listen on; 0 chooses a free port.")] = 8731,
    host_names: Annotated[
        list[str] | None,
        typer.Option(
            "--host-name", metavar="NAME", help="A name of the server for clients elsewhere; may be repeated."
        ),
    ] = None,
    tls_certificate: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="The certificate of the server and its chain, PEM. The port then uses https."
        ),
    ] = None,
    tls_key: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="The key of the certificate, PEM. HEADRACE_TLS_KEY_PASSWORD has its password."
        ),
    ] = None,
    tls_client_authority: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Authority of the certificates that clients must have, PEM.",
        ),
    ] = None,
    behind_proxy: Annotated[
        bool, typer.Option("--behind-proxy", help="A proxy on this machine uses https for browsers.")
    ] = False,
    health_port: Annotated[
        int | None,
        typer.Option(
            min=0, max=65535, help="Another port for health and readiness only, with plain http.", show_default="none"
        ),
    ] = None,
    health_host: Annotated[str, typer.Option(help="The address of the health port.")] = "127.0.0.1",
    on_stop: Annotated[
        OnStop,
        typer.Option(
            "--on-stop", help="stop: stop all jobs at a checkpoint. leave: the processes of jobs keep running."
        ),
    ] = OnStop.STOP,
    debug: Debug = False,
) -> None:
    """Run the jobs of a directory: start, watch and restart them, and roll out their changes. Ends on Ctrl-C or SIGTERM."""
    from headrace.foundation.errors import OptionError
    from headrace_console import reporting
    from headrace_console.running import events_logged

    with reporting.errors_as_messages(debug=debug), events_logged(log_format.value, "info"):
        from headrace_server.commands.places import data_directory
        from headrace_server.serving import HeadraceServer, ServerOptions

        if no_jobs and registry is None:
            raise OptionError(
                "a server without a jobs directory needs other servers that have one",
                option="no_jobs",
                hint="give --registry",
            )
        options = ServerOptions(
            jobs=jobs, data=data or data_directory(), registry=registry, ext=ext,
            log_format=log_format.value, host=host, port=port, on_stop=on_stop.value,
            host_names=tuple(host_names or ()), tls=_tls_of(tls_certificate, tls_key, tls_client_authority),
            health_port=health_port, health_host=health_host,
            behind_proxy=behind_proxy, name=name, shared=shared, reads_jobs=not no_jobs, lease_duration=_duration(lease_duration),
        )  # fmt: skip
        server = HeadraceServer(options)
        reporting.say(f"serving {jobs} at {server.url}")
        reporting.say(f"token: {server.data.token}")
        server.run()


def _duration(text: str) -> timedelta:
    from headrace.foundation.errors import OptionError
    from headrace.interfaces.settings import parse_duration

    try:
        return parse_duration(text)
    except ValueError as error:
        raise OptionError(str(error), option="lease_duration") from None


def _tls_of(certificate: Path | None, key: Path | None, client_authority: Path | None) -> TLSOptions | None:
    import os

    from headrace.foundation.errors import OptionError

    from headrace_server.access import TLSOptions

    if certificate is None and key is None:
        if client_authority is not None:
            raise OptionError("it needs --tls-certificate and --tls-key", option="tls_client_authority")
        return None
    if certificate is None or key is None:
        missing = "tls_certificate" if certificate is None else "tls_key"
        raise OptionError("TLS needs both a certificate and its key", option=missing)
    values = {"certificate": str(certificate), "key": str(key)}
    if client_authority is not None:
        values["client_authority"] = str(client_authority)
    if os.environ.get(_KEY_PASSWORD):
        values["key_password"] = f"${{{_KEY_PASSWORD}}}"
    return TLSOptions.of(values)
