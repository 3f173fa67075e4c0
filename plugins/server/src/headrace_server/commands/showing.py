"""``headrace jobs``, ``status`` and ``logs``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any

import typer

Debug = Annotated[bool, typer.Option("--debug", help="Show the whole traceback of an error.")]
Job = Annotated[
    str, typer.Argument(metavar="NAME", help="The job: its path below jobs/ without suffix.", show_default=False)
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
jobs_app, status_app, logs_app, schedule_app, servers_app = (typer.Typer(add_completion=False) for _ in range(5))
_COLOURS = {"running": "green", "finished": "green", "failing": "red", "resting": "red", "refused": "red"}


@jobs_app.command()
def jobs(
    select: Annotated[
        str, typer.Argument(metavar="NAME|FOLDER/|LABEL=VALUE", help="Show only these jobs.", show_default="all")
    ] = "--all",
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Show changes until Ctrl-C.")] = False,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Show the jobs of the server as a table."""
    from headrace_console import reporting

    with reporting.errors_as_messages(debug=debug):
        from rich.console import Console
        from rich.live import Live

        from headrace_server.commands.client import Client

        with Client.of_environment() as client:
            if not watch:
                found = client.ask("GET", "/v1/jobs", select=select)
                if as_json:
                    typer.echo(json.dumps(found, indent=1))
                else:
                    Console(width=None if Console().is_terminal else 140).print(_table(found))
                return
            with client.events("/v1/events", select=select) as tables, Live(auto_refresh=False) as live:
                for found in tables:
                    live.update(_table(found), refresh=True)


def _table(found: list[Mapping[str, Any]]) -> Any:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    # A server that is alone on its registry needs no column.
    several = len({job.get("server") for job in found}) > 1
    server = ("server",) if several else ()
    for name in ("job", "state", *server, "version", "records", "rows", "lag", "dead letters", "up", "problem"):
        right = name in ("version", "records", "rows", "lag", "dead letters", "up")
        table.add_column(name, justify="right" if right else "left", no_wrap=name != "problem")
    for job in found:
        newest = "" if job["newest_version"] == job["version"] else f" ({job['newest_version']})"
        state = Text(job["state"], style=_COLOURS.get(job["state"], ""))
        up = "" if job["seconds"] is None else str(timedelta(seconds=int(job["seconds"])))
        problem = (job["problem"] or "").partition("\n")[0]
        if not problem and job.get("next_due_seconds") is not None:
            problem = f"next run {time_text(job['next_due_seconds'])} UTC"
        figures = [_number(job[key]) for key in ("records_read", "rows_written", "lag_records", "dead_letters")]
        where = (job.get("server") or "",) if several else ()
        table.add_row(job["name"], state, *where, f"{job['version'] or '-'}{newest}", *figures, up, Text(problem))
    return table


def _number(value: int | None) -> str:
    return "" if value is None else f"{value:,}"


@servers_app.command()
def servers(as_json: AsJson = False, debug: Debug = False) -> None:
    """Show the servers that share a registry: where they are, how many jobs each has, when it has last shown a sign of life."""
    from headrace_console import reporting

    with reporting.errors_as_messages(debug=debug):
        from rich.console import Console
        from rich.table import Table

        from headrace_server.commands.client import Client

        with Client.of_environment() as client:
            found = client.ask("GET", "/v1/servers")
        if as_json:
            typer.echo(json.dumps(found, indent=1))
            return
        table = Table(box=None, pad_edge=False)
        for name in ("server", "state", "address", "jobs", "should run", "cores used", "seen", "version"):
            table.add_column(name, no_wrap=True)
        for each in found:
            reads = " (reads the jobs directory)" if each["reads_jobs"] and len(found) > 1 else ""
            cores = f"{each['cores_used']:g} of {each['cores'] or '?'}"
            table.add_row(
                each["name"] + reads, each["state"], each["url"] or "", str(each["jobs"]), str(each["running"]), cores,
                f"{each['seen_seconds_ago']:.0f} s ago", each["version"] or "",
            )  # fmt: skip
        Console(width=None if Console().is_terminal else 160).print(table)


@status_app.command()
def status(name: Job, as_json: AsJson = False, debug: Debug = False) -> None:
    """Show all about a job: state, figures, offsets, versions, the last runs."""
    from headrace_console import reporting

    with reporting.errors_as_messages(debug=debug):
        from headrace_server.commands.client import Client, path_of

        with Client.of_environment() as client:
            found = client.ask("GET", path_of(name))
        if as_json:
            typer.echo(json.dumps(found, indent=1))
        else:
            _show(found)


def _show(found: Mapping[str, Any]) -> None:
    job = found["job"]
    typer.echo(
        f"{job['name']}: {job['state']}, version {job['version'] or '-'}"
        + (f", process {job['pid']}" if job["pid"] else "")
        + (f", server {job['server']}" if job.get("server") else "")
    )
    if job["has_earlier_headrace"]:
        typer.echo(f"  its process has the headrace of an earlier server; headrace upgrade {job['name']} moves it")
    if job["problem"]:
        typer.echo(f"  problem: {job['problem']}")
    for queue in (found["figures"] or {}).get("queues", ()):
        lag = "?" if queue["lag"] is None else f"{queue['lag']:,}"
        typer.echo(f"  queue {queue['queue']}: offset {queue['offset']:,}, lag {lag}")
    for sink, count in (found["figures"] or {}).get("rows_written", {}).items():
        typer.echo(f"  {count:,} rows to {sink}")
    typer.echo("versions")
    for each in found["versions"]:
        reason = f": {each['reason'].partition(chr(10))[0]}" if each["reason"] else ""
        mark = "*" if each["number"] == job["version"] else " "
        typer.echo(f" {mark}{each['number']:>3}  {time_text(each['created_seconds'])}  {each['state']}{reason}")
        for notice in (each["note"] or "").splitlines():
            typer.echo(f"      {notice}")
    typer.echo("runs")
    for each in found["runs"][:10]:
        reason = f": {each['reason'].partition(chr(10))[0]}" if each["reason"] else ""
        typer.echo(
            f"  {time_text(each['started_seconds'])}  version {each['version']}  {each['outcome'] or 'runs'}{reason}"
        )


def time_text(seconds: float) -> str:
    """Return a time in UTC, for people."""
    from datetime import UTC, datetime

    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")


@schedule_app.command()
def schedule(name: Job, as_json: AsJson = False, debug: Debug = False) -> None:
    """Show when a job is started next, and the outcomes of the last times of its schedule."""
    from headrace_console import reporting

    with reporting.errors_as_messages(debug=debug):
        from headrace_server.commands.client import Client, path_of

        with Client.of_environment() as client:
            found = client.ask("GET", path_of(name) + "/schedule")
        if as_json:
            typer.echo(json.dumps(found, indent=1))
            return
        due = found["next_due_seconds"]
        typer.echo(
            f"{name}: {found['definition']}, next run {'not planned' if due is None else time_text(due) + ' UTC'}"
        )
        for each in found["history"]:
            reason = f": {each['reason']}" if each["reason"] else ""
            typer.echo(f"  {time_text(each['due_seconds'])}  {each['state']}{reason}")


@logs_app.command()
def logs(
    name: Job,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Follow new lines until Ctrl-C.")] = False,
    lines: Annotated[int, typer.Option("--lines", "-n", min=0, max=10_000, help="How many of the last lines.")] = 100,
    debug: Debug = False,
) -> None:
    """Show the end of a job's log. Jobs of a group share one."""
    from headrace_console import reporting

    with reporting.errors_as_messages(debug=debug):
        from headrace_server.commands.client import Client, path_of

        with Client.of_environment() as client:
            if not follow:
                for line in client.ask("GET", path_of(name) + "/logs", lines=str(lines))["lines"]:
                    typer.echo(line)
                return
            with client.events(path_of(name) + "/logs/events", lines=str(lines)) as found:
                for line in found:
                    typer.echo(line)
