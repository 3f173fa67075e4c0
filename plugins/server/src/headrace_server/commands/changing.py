"""The commands that change what runs: start, stop, restart, pause, resume, submit, upgrade, rollback, offsets, rules, savepoint."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from headrace_server.commands.showing import Debug, Job

Select = Annotated[
    str | None,
    typer.Argument(metavar="NAME|FOLDER/|LABEL=VALUE", help="The jobs, by name, folder or label.", show_default=False),
]
All = Annotated[bool, typer.Option("--all", help="All jobs of the server.")]
start_app, stop_app, restart_app, pause_app, resume_app, submit_app, upgrade_app, rollback_app, shadow_app = (
    typer.Typer(add_completion=False) for _ in range(9)
)
offsets_app = typer.Typer(
    name="offsets", help="Show the offsets of a job, or move a stopped job to other offsets.", no_args_is_help=True
)
rules_app = typer.Typer(name="rules", no_args_is_help=True)


@start_app.command()
def start(
    what: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME|FOLDER/|LABEL=VALUE|DIRECTORY", help="The jobs, by name, folder or label.", show_default=False
        ),
    ] = None,
    everything: All = False,
    detach: Annotated[
        bool, typer.Option("--detach", help="With a directory of jobs: start a server for it in the background.")
    ] = False,
    data: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="With --detach: the data directory.", show_default="./headrace-data"),
    ] = None,
    debug: Debug = False,
) -> None:
    """Start jobs. With a directory and --detach: start a server for the jobs in it, in the background."""
    from headrace_console import reporting

    with reporting.errors_as_messages(debug=debug):
        if detach:
            from headrace_server.commands.background import start_in_background

            start_in_background(what, data)
        else:
            _act("start", what, everything)


@stop_app.command()
def stop(
    what: Select = None,
    everything: All = False,
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Without jobs: the data directory of the server that is stopped.",
            show_default="./headrace-data",
        ),
    ] = None,
    debug: Debug = False,
) -> None:
    """Stop jobs at a checkpoint. Without a job: stop the server of this machine with all of its jobs."""
    from headrace_console import reporting

    with reporting.errors_as_messages(debug=debug):
        if what is None and not everything:
            from headrace_server.commands.background import stop_server

            stop_server(data)
        else:
            _act("stop", what, everything)


@restart_app.command()
def restart(what: Select = None, everything: All = False, debug: Debug = False) -> None:
    """Stop jobs at a checkpoint and start them again."""
    _acting("restart", what, everything, debug)


@pause_app.command()
def pause(what: Select = None, everything: All = False, debug: Debug = False) -> None:
    """Stop jobs at a checkpoint until they are resumed; start --all leaves them out."""
    _acting("pause", what, everything, debug)


@resume_app.command()
def resume(what: Select = None, everything: All = False, debug: Debug = False) -> None:
    """Start jobs that are paused."""
    _acting("resume", what, everything, debug)


def _acting(action: str, what: str | None, everything: bool, debug: bool) -> None:
    from headrace_console import reporting

    with reporting.errors_as_messages(debug=debug):
        _act(action, what, everything)


def _act(action: str, what: str | None, everything: bool) -> None:
    from headrace.foundation.errors import JobError

    from headrace_server.commands.client import Client

    if (what is None) == (not everything):
        raise JobError("name jobs, or give --all", hint=f"headrace {action} NAME")
    with Client.of_environment() as client:
        begun = client.ask("POST", "/v1/actions", {"action": action, "select": what or "--all"})
        for job, phase in (_followed(client, begun) or {}).items():
            typer.echo(f"{job}: {phase}")


def _followed(client: Any, begun: Mapping[str, Any]) -> Any:
    """Show the steps of an operation until it has ended; return its result. Raises JobError if it has failed."""
    import msgspec
    from headrace.foundation.errors import JobError
    from headrace_console.reporting import say

    shown = None
    with client.events(f"/v1/operations/{begun['id']}/events") as steps:
        for found in steps:
            if found["state"] == "failed":
                raise JobError(found["error"])
            if found["state"] == "done":
                return msgspec.json.decode(found["result"]) if found["result"] else None
            if found["step"] != shown:
                shown = found["step"]
                say(shown)
    raise JobError("the server stopped before it had answered", hint="headrace jobs shows the state of each job")


def _text_of(file: Path) -> str:
    from headrace.foundation.errors import JobError

    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise JobError(f"{file} cannot be read: {error}") from error


@submit_app.command()
def submit(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A .py or .sql file, or a pipeline in YAML.", show_default=False)
    ],
    name: Annotated[
        str | None, typer.Option("--name", metavar="NAME", help="The job.", show_default="the file's name")
    ] = None,
    debug: Debug = False,
) -> None:
    """Put a file into the server's jobs directory: a new job, or a new version of one."""
    from headrace_console import reporting

    with reporting.errors_as_messages(debug=debug):
        from headrace_server.commands.client import Client, path_of

        text = _text_of(file)
        with Client.of_environment() as client:
            body = {"suffix": file.suffix, "text": text}
            done = client.ask("PUT", path_of(name or file.stem) + "/file", body)
            typer.echo(
                f"{done['file']}: the server plans it and rolls it out; headrace status {name or file.stem} shows how far it is"
            )


@upgrade_app.command()
def upgrade(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="The job.", show_default=False)] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="All jobs that have a newer version, or still run with an earlier headrace.")
    ] = False,
    version: Annotated[int | None, typer.Option("--version", help="The version.", show_default="the newest")] = None,
    shadow: Annotated[
        bool,
        typer.Option(
            "--shadow", help="First run both versions over the last records; roll out only if their rows are the same."
        ),
    ] = False,
    records: Annotated[
        int, typer.Option(min=1, max=1_000_000, help="With --shadow: how many of the last records of each queue.")
    ] = 10_000,
    debug: Debug = False,
) -> None:
    """Roll out a version. The old one runs until the new one is ready, and comes back if the new one is not healthy."""
    from headrace_console import reporting

    with reporting.errors_as_messages(debug=debug):
        from headrace.foundation.errors import JobError

        if everything:
            if name is not None or version is not None or shadow:
                raise JobError("--all cannot be combined with a job, --version or --shadow")
            _upgrade_all()
            return
        if name is None:
            raise JobError("name a job, or give --all", hint="headrace upgrade NAME")
        if shadow and not _shadowed(name, version, None, records):
            raise JobError(
                "the two versions write different rows, so the new one was not rolled out", job=name,
                hint="to roll it out anyway, run the same command without --shadow",
            )  # fmt: skip
        _roll_out("upgrade", name, version)


@shadow_app.command()
def shadow(
    name: Job,
    version: Annotated[
        int | None, typer.Option("--version", help="The new version.", show_default="the newest")
    ] = None,
    against: Annotated[
        int | None, typer.Option("--against", help="The version to compare with.", show_default="the current one")
    ] = None,
    records: Annotated[
        int, typer.Option(min=1, max=1_000_000, help="How many of the last records of each queue.")
    ] = 10_000,
    debug: Debug = False,
) -> None:
    """Run two versions over the same last records, into memory, and compare their rows. Exit code 1 if they differ."""
    from headrace_console import reporting

    with reporting.errors_as_messages(debug=debug):
        equal = _shadowed(name, version, against, records)
    if not equal:
        raise typer.Exit(1)


def _shadowed(name: str, version: int | None, against: int | None, records: int) -> bool:
    """Compare two versions and print what differs; return whether their rows are the same."""
    from headrace_server.commands.client import Client, path_of

    body = {"version": version, "against": against, "records": records}
    with Client.of_environment() as client:
        found = _followed(client, client.ask("POST", f"{path_of(name)}/shadow", body))
    typer.echo(f"{name}: versions {found['before']} and {found['after']} over the same {found['records']:,} records")
    for sink, each in found["sinks"].items():
        only = f"{each['only_before']:,} only of {found['before']}, {each['only_after']:,} only of {found['after']}"
        typer.echo(f"  {sink}: {each['same']:,} rows are the same, {only}")
        for sign, rows in (("-", each["examples_before"]), ("+", each["examples_after"])):
            for row in rows:
                typer.echo(f"    {sign} {row}")
    return bool(found["equal"])


@rollback_app.command()
def rollback(
    name: Job,
    version: Annotated[
        int | None, typer.Option("--version", help="The version.", show_default="the previous one")
    ] = None,
    debug: Debug = False,
) -> None:
    """Go back to the version before."""
    from headrace_console import reporting

    with reporting.errors_as_messages(debug=debug):
        _roll_out("rollback", name, version)


def _upgrade_all() -> None:
    """Upgrade all jobs that are not up to date, one after the other. Raises JobError at the end if some were refused or taken back."""
    from headrace.foundation.errors import JobError

    from headrace_server.commands.client import Client

    with Client.of_environment() as client:
        jobs = client.ask("GET", "/v1/jobs")
    old = [job for job in jobs if job["has_earlier_headrace"] or job["newest_version"] != job["version"]]
    moved: set[str] = set()
    failed = []
    for job in old:
        only_headrace = job["newest_version"] == job["version"]
        if only_headrace and job["unit"] in moved:
            continue  # a job of the same group has moved their process
        try:
            _roll_out("upgrade", job["name"], None)
        except JobError as error:
            failed.append(f"{job['name']}: {error.message}")
        else:
            moved.add(job["unit"])
    if failed:
        raise JobError("not upgraded:\n  " + "\n  ".join(failed))
    if not old:
        typer.echo("all jobs are up to date")


def _roll_out(kind: str, name: str, version: int | None) -> None:
    from headrace_server.commands.client import Client, path_of

    with Client.of_environment() as client:
        report = _followed(client, client.ask("POST", f"{path_of(name)}/{kind}", {"version": version}))
    gap = report["gap_seconds"]
    typer.echo(
        f"{name}: version {report['accepted'][name]}" + ("" if gap is None else f", {gap:.2f} s between the two")
    )


@offsets_app.command("show")
def show_offsets(name: Job, debug: Debug = False) -> None:
    """Show the next offset of each queue."""
    _offsets(name, "GET", None, debug)


@offsets_app.command("set")
def set_offsets(
    name: Job,
    offsets: Annotated[
        list[str],
        typer.Argument(metavar="SOURCE/QUEUE=OFFSET", help="The next offset of each queue.", show_default=False),
    ],
    debug: Debug = False,
) -> None:
    """Let a stopped job continue at other offsets. Refused where state or a broker belongs to the old ones."""
    _offsets(name, "PUT", offsets, debug)


@offsets_app.command("reset")
def reset_offsets(name: Job, debug: Debug = False) -> None:
    """Reset a stopped job: its checkpoint is set aside, with state and dead letters."""
    _offsets(name, "DELETE", None, debug)


def _offsets(name: str, method: str, given: list[str] | None, debug: bool) -> None:
    from headrace_console import reporting

    with reporting.errors_as_messages(debug=debug):
        from headrace.foundation.errors import OptionError

        from headrace_server.commands.client import Client, path_of

        body = None
        if given is not None:
            parts = [text.rpartition("=") for text in given]
            for queue, _, offset in parts:
                if not queue or not (offset.isascii() and offset.isdigit()):
                    raise OptionError(f"{queue}={offset}: expected SOURCE/QUEUE=OFFSET", option="offsets")
            body = {"offsets": {queue: int(offset) for queue, _, offset in parts}}
        with Client.of_environment() as client:
            found = client.ask(method, path_of(name) + "/offsets", body)
        for queue, offset in found["offsets"].items():
            typer.echo(f"{queue} {offset}")
        if found["note"]:
            typer.echo(found["note"], err=True)


@rules_app.command("put")
def put_rules(
    name: Job,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A .yaml or .sql file of rules.", show_default=False)],
    node: Annotated[
        str | None, typer.Option("--node", metavar="ID", help="The verb, if the job has several rules verbs.")
    ] = None,
    debug: Debug = False,
) -> None:
    """Replace the rules of a job of the server while it runs."""
    from headrace_console import reporting

    with reporting.errors_as_messages(debug=debug):
        from headrace_server.commands.client import Client, path_of

        text = _text_of(file)
        with Client.of_environment() as client:
            found = client.ask("PUT", path_of(name) + "/rules", {"text": text, "suffix": file.suffix, "node": node})
        for key, value in found.items():
            typer.echo(f"{key}: {value}")


@rules_app.command("test")
def try_rules(
    name: Job,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A .yaml or .sql file of rules.", show_default=False)],
    node: Annotated[
        str | None, typer.Option("--node", metavar="ID", help="The verb, if the job has several rules verbs.")
    ] = None,
    records: Annotated[
        int, typer.Option(min=1, max=100_000, help="How many of the last records of each queue.")
    ] = 10_000,
    debug: Debug = False,
) -> None:
    """Show how often rules would match the last records, beside the present rules of a job. Nothing is replaced or written."""
    from headrace_console import reporting

    with reporting.errors_as_messages(debug=debug):
        from headrace_server.commands.client import Client, path_of

        body = {"text": _text_of(file), "suffix": file.suffix, "node": node, "records": records}
        with Client.of_environment() as client:
            found = client.ask("POST", path_of(name) + "/rules/test", body)
        typer.echo(f"{found['records']:,} records")
        for rule in sorted({*found["before"], *found["after"]}):
            before, after = (int(found[each].get(rule, 0)) for each in ("before", "after"))
            typer.echo(f"  {rule}: {before:,} now, {after:,} with the new rules")
        if found["dead_letters_before"] or found["dead_letters_after"]:
            typer.echo(f"  dead letters: {found['dead_letters_before']:,} now, {found['dead_letters_after']:,} then")


def savepoint(name: str, savepoint_name: str | None, stop: bool) -> str | None:
    """Ask the server for a savepoint of a job; return its path, or None if no server is known here.

    Called by ``headrace savepoint`` if its argument is not a checkpoint directory.
    """
    from headrace_server.commands.client import Client, is_known, path_of

    if not is_known():
        return None
    with Client.of_environment() as client:
        begun = client.ask("POST", path_of(name) + "/savepoints", {"name": savepoint_name, "stop": stop})
        return str(_followed(client, begun)["savepoint"])
