"""``headrace service``: the server as a service of the operating system."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from headrace_server.commands.serving import OnStop
from headrace_server.commands.showing import Debug

if TYPE_CHECKING:
    from headrace_server.service.description import ServiceDescription
    from headrace_server.service.installation import ServiceManager

service_app = typer.Typer(
    name="service", help="Run the server as a service: systemd, or launchd on macOS.", no_args_is_help=True
)
Name = Annotated[
    str, typer.Option("--name", metavar="NAME", help="The name of the service, for a second server on this machine.")
]
System = Annotated[
    bool, typer.Option("--system", help="A service of the whole machine.", show_default="a service of this user")
]
#: Set by the command itself, or secret: the file of a service can be read by everybody.
_NOT_AS_OPTIONS = ("--jobs", "--data", "--on-stop", "--registry", "--help")


@service_app.command("install")
def install_service(
    jobs: Annotated[Path, typer.Option("--jobs", metavar="DIR", help="The directory of jobs.")] = Path("jobs"),
    data: Annotated[
        Path | None,
        typer.Option(
            "--data",
            metavar="DIR",
            help="The data directory of the server.",
            show_default="./headrace-data; with --system /var/lib/NAME",
        ),
    ] = None,
    on_stop: Annotated[
        OnStop, typer.Option("--on-stop", help="leave: the processes of jobs keep running when the server ends.")
    ] = OnStop.LEAVE,
    writable: Annotated[
        list[Path] | None,
        typer.Option("--writable", metavar="DIR", help="A directory into which jobs write; may be repeated."),
    ] = None,
    system: System = False,
    run_as: Annotated[
        str | None,
        typer.Option("--run-as", metavar="USER", help="With --system: the user of the server."),
    ] = None,
    environment_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A file of NAME=VALUE lines with secrets; its mode must be 600.",
            show_default="~/.config/headrace/NAME.env; with --system /etc/headrace/NAME.env",
        ),
    ] = None,
    name: Name = "headrace",
    sandbox: Annotated[
        bool, typer.Option("--sandbox/--no-sandbox", help="Let systemd restrict the rights of the server and the jobs.")
    ] = True,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the file and change nothing.")] = False,
    start: Annotated[
        bool, typer.Option("--start", help="Start the service now, and whenever the machine starts.")
    ] = False,
    options: Annotated[
        list[str] | None,
        typer.Argument(metavar="[-- OPTIONS]", help="Further options of headrace serve.", show_default=False),
    ] = None,
    debug: Debug = False,
) -> None:
    """Write the file of a service that runs headrace serve. Without --start nothing is started."""
    from headrace_console import reporting

    with reporting.errors_as_messages(debug=debug):
        from headrace_server.service import installation

        _check_options(options or [])
        manager = _manager(system)
        description = _description(
            jobs=jobs, data=data, on_stop=on_stop.value, writable=writable or [], run_as=_user(system, run_as),
            environment_file=environment_file or manager.environment_file(name), name=name, sandbox=sandbox,
            options=options or [],
        )  # fmt: skip
        if dry_run:
            typer.echo(manager.content(description).decode(), nl=False)
            return
        file = installation.install(description, manager)
        typer.echo(f"{file}: written")
        _carry_out(manager.start_commands(name), now=start)
        if not system and isinstance(manager, installation.Systemd):
            typer.echo("loginctl enable-linger lets it run while you are not logged in")


@service_app.command("uninstall")
def uninstall_service(
    name: Name = "headrace",
    system: System = False,
    stop: Annotated[bool, typer.Option("--stop", help="Stop the server first.")] = False,
    debug: Debug = False,
) -> None:
    """Remove the file of the service. Its data and its jobs stay; running jobs continue, unless --stop is given."""
    from headrace_console import reporting

    with reporting.errors_as_messages(debug=debug):
        from headrace_server.service import installation

        manager = _manager(system)
        installation.read(name, manager)
        if stop:
            _carry_out(manager.stop_commands(name), now=True)
        file = installation.uninstall(name, manager)
        typer.echo(f"{file}: removed")


@service_app.command("show")
def show_service(name: Name = "headrace", system: System = False, debug: Debug = False) -> None:
    """Show the file of the service as it is installed."""
    from headrace_console import reporting

    with reporting.errors_as_messages(debug=debug):
        from headrace_server.service import installation

        manager = _manager(system)
        text = installation.read(name, manager)
        reporting.say(str(manager.file(name)))
        typer.echo(text, nl=False)


def _manager(system: bool) -> ServiceManager:
    import sys

    from headrace_server.service.installation import Launchd, Systemd

    kind = Launchd if sys.platform == "darwin" else Systemd
    return kind(system=system, home=Path.home())


def _description(
    *, jobs: Path, data: Path | None, on_stop: Literal["stop", "leave"], writable: list[Path], run_as: str | None,
    environment_file: Path, name: str, sandbox: bool, options: list[str],
) -> ServiceDescription:  # fmt: skip
    import sys

    from headrace_server.commands.places import data_directory
    from headrace_server.service.description import ServiceDescription

    if data is None:
        data = data_directory() if run_as is None else Path("/var/lib") / name
    return ServiceDescription(
        name=name, python=sys.executable, jobs=_absolute(jobs), data=_absolute(data), on_stop=on_stop,
        environment_file=_absolute(environment_file), writable=[_absolute(each) for each in writable], run_as=run_as,
        sandbox=sandbox, options=options,
    )  # fmt: skip


def _absolute(path: Path) -> Path:
    """Return a path without dots, which systemd refuses in some settings. Links stay: they may lead elsewhere later."""
    import os

    return Path(os.path.abspath(path))


def _user(system: bool, run_as: str | None) -> str | None:
    from headrace.foundation.errors import OptionError

    if system and run_as is None:
        raise OptionError("a system service needs a user", option="run_as", hint="--run-as headrace")
    if run_as is not None and not system:
        raise OptionError("a user service always runs as you", option="run_as", hint="give --system")
    return run_as


def _check_options(options: list[str]) -> None:
    """Refuse what ``headrace serve`` would refuse, and what does not belong into a file that everybody can read."""
    from headrace.foundation.errors import OptionError
    from typer.main import get_command

    from headrace_server.commands.serving import serve_app

    for each in options:
        if each.partition("=")[0] in _NOT_AS_OPTIONS:
            raise OptionError(
                f"{each.partition('=')[0]} is not given as an option of serve",
                option="options",
                hint="--jobs, --data and --on-stop are written before --; HEADRACE_REGISTRY is set in the file of variables",
            )
    try:
        get_command(serve_app).make_context("serve", list(options))
    except Exception as error:
        # An error of use, whose class has no name in typer that stays; typer.BadParameter is another one of that kind.
        if not isinstance(error, typer.BadParameter.__bases__):
            raise
        raise OptionError(f"headrace serve: {error}", option="options") from error


def _carry_out(commands: list[list[str]], *, now: bool) -> None:
    """Run commands of the service manager, or show them."""
    import shlex
    import subprocess

    from headrace.foundation.errors import JobError

    for command in commands:
        if not now:
            typer.echo(f"next: {shlex.join(command)}")
            continue
        try:
            subprocess.run(command, check=True)
        except FileNotFoundError:
            raise JobError(
                f"the program {command[0]} is not installed", hint="start headrace serve in another way"
            ) from None
        except subprocess.CalledProcessError as error:
            raise JobError(f"{shlex.join(command)} has ended with code {error.returncode}") from error
