"""The commands of this package within ``headrace``, without and with a server that answers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from headrace_console.app import app
from typer.testing import CliRunner


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CliRunner:
    monkeypatch.chdir(tmp_path)
    for name in ("HEADRACE_DATA", "HEADRACE_SERVER", "HEADRACE_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    return CliRunner()


def test_sub_commands_of_two_distributions_stand_side_by_side(cli: CliRunner) -> None:
    shown = cli.invoke(app, ["rules", "--help"]).output
    assert " put " in shown
    assert " check " in shown


@pytest.mark.parametrize(
    "command",
    [
        ["jobs"], ["status", "a"], ["logs", "a"], ["start", "a"], ["stop", "a"], ["restart", "a"], ["pause", "a"], ["resume", "a"],
        ["upgrade", "a"], ["rollback", "a"], ["offsets", "show", "a"], ["offsets", "reset", "a"],
        ["users", "list"], ["users", "remove", "a"], ["tokens", "list"], ["tokens", "make", "a", "--role", "viewer"],
        ["audit"], ["schedule", "a"],
    ],
)  # fmt: skip
def test_without_a_server_each_command_says_how_to_start_one(cli: CliRunner, command: list[str]) -> None:
    result = cli.invoke(app, command)
    assert result.exit_code == 2
    assert "no server runs with the data directory headrace-data" in result.stderr
    assert "headrace serve" in result.stderr


def test_a_server_that_has_died_is_told_apart_from_none(cli: CliRunner, tmp_path: Path) -> None:
    data = tmp_path / "headrace-data"
    data.mkdir()
    (data / "server.json").write_text(json.dumps({"url": "http://127.0.0.1:9", "pid": 2**30}))
    (data / "token").write_text("secret-token")
    result = cli.invoke(app, ["jobs"])
    assert result.exit_code == 1
    assert "the server at http://127.0.0.1:9 does not answer" in result.stderr
    assert "secret-token" not in result.output
    assert "no server runs" in cli.invoke(app, ["stop"]).stderr


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["start"], "name jobs, or give --all"),
        (["stop", "a", "--all"], "name jobs, or give --all"),
        (["start", "nowhere", "--detach"], "is not a directory of jobs"),
        (["serve", "--jobs", "nowhere"], "nowhere is not a directory"),
        (["serve", "--jobs", ".", "--host", "0.0.0.0"], "listen only on a loopback address"),
        (["serve", "--jobs", ".", "--tls-certificate", "a.pem"], "TLS needs both a certificate and its key"),
        (["serve", "--jobs", ".", "--tls-client-authority", "a.pem"], "needs --tls-certificate and --tls-key"),
        (["serve", "--jobs", ".", "--tls-certificate", "a.pem", "--tls-key", "a.key"], "key 'a.key' cannot be read"),
        (["users", "put", "ann", "--role", "king"], "king"),
        (["audit", "--lines", "0"], "--lines"),
        (["serve", "--jobs", ".", "--registry", "nonsense", "--port", "0"], "the registry cannot be opened"),
        (
            ["serve", "--jobs", ".", "--registry", "mysql+nothing://u:hunter2@h/d", "--port", "0"],
            "the registry cannot be opened",
        ),
        (["submit", "nothing.py"], "nothing.py cannot be read"),
        (["offsets", "set", "a", "q"], "expected SOURCE/QUEUE=OFFSET"),
    ],
)
def test_wrong_use_is_refused_with_the_reason(cli: CliRunner, command: list[str], message: str) -> None:
    result = cli.invoke(app, command)
    assert (result.exit_code, message in result.stderr) == (2, True), result.stderr
    assert "hunter2" not in result.output
