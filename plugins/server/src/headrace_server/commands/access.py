"""``headrace users``, ``tokens`` and ``audit``: who may use a server, and what was changed."""

from __future__ import annotations

import enum
from typing import Annotated, Any

import typer

from headrace_server.commands.showing import AsJson, Debug

users_app = typer.Typer(name="users", help="Show and change who may log in to the server.", no_args_is_help=True)
tokens_app = typer.Typer(name="tokens", help="Show, make and revoke tokens for programs.", no_args_is_help=True)
audit_app = typer.Typer(add_completion=False)


class RoleChoice(enum.StrEnum):
    """The role of a user. Each role includes the permissions of the ones before it."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    AUTHOR = "author"


Role = Annotated[
    RoleChoice, typer.Option("--role", help="viewer: read. operator: also start, stop, roll back. author: everything.")
]
Name = Annotated[str, typer.Argument(metavar="NAME", show_default=False)]


@users_app.command("list")
def list_users(as_json: AsJson = False, debug: Debug = False) -> None:
    """Show all users."""
    _show("/v1/users", ["name", "role", "created_seconds"], as_json, debug)


@users_app.command("put")
def put_user(
    name: Name,
    role: Role,
    keep_password: Annotated[bool, typer.Option("--keep-password", help="Change the role only.")] = False,
    debug: Debug = False,
) -> None:
    """Make a user, or change its role and password. The password is asked for, or read from standard input."""
    from headrace_console import reporting

    with reporting.errors_as_messages(debug=debug):
        from headrace_server.commands.client import Client

        password = None if keep_password else _password()
        with Client.of_environment() as client:
            client.ask("PUT", _path("users", name), {"role": role.value, "password": password})
        typer.echo(f"{name} is {role.value}; sessions of before have ended")


@users_app.command("remove")
def remove_user(name: Name, debug: Debug = False) -> None:
    """Remove a user and end its sessions."""
    _remove("users", name, f"{name} is removed", debug)


@tokens_app.command("list")
def list_tokens(as_json: AsJson = False, debug: Debug = False) -> None:
    """Show all tokens by their ids. Their secrets are not kept."""
    _show("/v1/tokens", ["id", "name", "role", "created_seconds", "expires_seconds"], as_json, debug)


@tokens_app.command("make")
def make_token(
    name: Annotated[str, typer.Argument(metavar="NAME", help="What the token is for.", show_default=False)],
    role: Role,
    days: Annotated[
        float | None, typer.Option(min=0.001, help="For how many days the token is valid.", show_default="no end")
    ] = None,
    debug: Debug = False,
) -> None:
    """Make a token and print it, this once. A program sends it as Authorization: Bearer TOKEN."""
    from headrace_console import reporting

    with reporting.errors_as_messages(debug=debug):
        from headrace_server.commands.client import Client

        body = {"name": name, "role": role.value, "lifetime_seconds": None if days is None else days * 86_400}
        with Client.of_environment() as client:
            typer.echo(client.ask("POST", "/v1/tokens", body)["token"])


@tokens_app.command("revoke")
def revoke_token(
    token_id: Annotated[
        str, typer.Argument(metavar="ID", help="The id of the token, from headrace tokens list.", show_default=False)
    ],
    debug: Debug = False,
) -> None:
    """Revoke a token, from the next request on."""
    _remove("tokens", token_id, f"{token_id} is revoked", debug)


@audit_app.command()
def audit(
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="JOB|USER|TOKEN", help="Show only changes of this job, user or token.", show_default="all"
        ),
    ] = None,
    lines: Annotated[int, typer.Option("--lines", "-n", min=1, max=1_000, help="How many of the last changes.")] = 20,
    differences: Annotated[bool, typer.Option("--diff", help="Show the differences of each change.")] = False,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Show the audit log: who made which change, the latest at the end."""
    from headrace_console import reporting

    with reporting.errors_as_messages(debug=debug):
        import json

        from headrace_server.commands.client import Client
        from headrace_server.commands.showing import time_text

        query = {"limit": str(lines), **({"target": target} if target is not None else {})}
        with Client.of_environment() as client:
            found = client.ask("GET", "/v1/audit", **query)
        if as_json:
            typer.echo(json.dumps(found, indent=1))
            return
        for each in reversed(found):
            who = f"{each['who']} ({each['role']})"
            typer.echo(f"{time_text(each['time_seconds'])}  {who}  {each['action']}  {each['target']}")
            if differences:
                typer.echo("".join(f"    {line}\n" for line in each["difference"].splitlines()), nl=False)


def _password() -> str:
    import sys

    if sys.stdin.isatty():
        return str(typer.prompt("Password", hide_input=True, confirmation_prompt=True))
    return sys.stdin.readline().rstrip("\n")


def _path(kind: str, name: str) -> str:
    from urllib.parse import quote

    return f"/v1/{kind}/{quote(name, safe='')}"


def _remove(kind: str, name: str, done: str, debug: bool) -> None:
    from headrace_console import reporting

    with reporting.errors_as_messages(debug=debug):
        from headrace_server.commands.client import Client

        with Client.of_environment() as client:
            client.ask("DELETE", _path(kind, name))
        typer.echo(done)


def _show(path: str, columns: list[str], as_json: bool, debug: bool) -> None:
    from headrace_console import reporting

    with reporting.errors_as_messages(debug=debug):
        import json

        from headrace_server.commands.client import Client

        with Client.of_environment() as client:
            found = client.ask("GET", path)
        if as_json:
            typer.echo(json.dumps(found, indent=1))
        else:
            _print_table(found, columns)


def _print_table(found: list[dict[str, Any]], columns: list[str]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from headrace_server.commands.showing import time_text

    table = Table(box=None, pad_edge=False)
    for column in columns:
        table.add_column(column.removesuffix("_seconds"), no_wrap=True)
    for each in found:
        values = [(column, each[column]) for column in columns]
        table.add_row(
            *(
                Text("never" if value is None else time_text(value) if column.endswith("_seconds") else str(value))
                for column, value in values
            )
        )
    Console(width=None if Console().is_terminal else 140).print(table)
