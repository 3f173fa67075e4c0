"""Secrets by name, and what the audit log shows of changes."""

from __future__ import annotations

from pathlib import Path

import pytest
from access_world import World
from headrace.foundation.errors import MissingPluginError, OptionError
from headrace_server.access import AuditLog, Principal, Role, SecretPlaces
from headrace_server.access.audit import difference

ANN = Principal("ann", Role.AUTHOR, "session")


def test_secrets_come_from_the_environment_and_from_closed_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "db"
    file.write_text("hush\n")
    file.chmod(0o600)
    monkeypatch.setenv("DATABASE_PASSWORD", "quiet")
    places = SecretPlaces({"db": f"${{file:{file}}}", "other": "${DATABASE_PASSWORD}", "vault": "${vault:team/db}"})
    assert (places.reveal("db"), places.reveal("other")) == ("hush", "quiet")
    assert "hush" not in repr(places) + str(places.names())
    with pytest.raises(OptionError, match="there is no secret") as caught:
        places.reveal("dbb")
    assert "hush" not in str(caught.value)
    with pytest.raises(MissingPluginError, match="vault"):
        places.reveal("vault")


@pytest.mark.parametrize("mode", [0o644, 0o641, 0o604, 0o620])
def test_a_file_that_others_can_open_is_refused(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "db"
    file.write_text("hush")
    file.chmod(mode)
    with pytest.raises(OptionError, match="by other users") as caught:
        SecretPlaces({"db": f"${{file:{file}}}"}).reveal("db")
    assert "chmod 600" in str(caught.value)
    with pytest.raises(OptionError, match="No such file"):
        SecretPlaces({"db": f"${{file:{file}.gone}}"}).reveal("db")


@pytest.mark.parametrize("place", ["hush", "${}", "a${B}", "${file:}", "${B}hush", ""])
def test_a_secret_itself_is_refused_without_being_shown(place: str) -> None:
    with pytest.raises(OptionError, match="must be given by the place where it is stored") as caught:
        SecretPlaces({"db": place})
    assert "hush" not in str(caught.value)


def test_the_audit_log_says_who_changed_what(world: World) -> None:
    log = AuditLog(world.engine, world.clock)
    log.record(ANN, "jobs.put", "team/orders", before="a\nb\nc", after="a\nB\nc")
    world.clock.advance(5)
    log.record(Principal("ci", Role.OPERATOR, "token"), "jobs.start", "team/orders")
    newest, oldest = log.entries()
    assert (newest.who, newest.role, newest.action, newest.at - oldest.at) == ("ci", "operator", "jobs.start", 5)
    assert oldest.difference.splitlines()[2:] == ["@@ -1,3 +1,3 @@", " a", "-b", "+B", " c"]
    assert log.entries(before=newest.number) == [oldest]
    assert log.entries(target="other") == []


def test_a_change_and_its_entry_are_stored_together_or_not_at_all(world: World) -> None:
    log = AuditLog(world.engine, world.clock)

    def change() -> None:
        with world.engine.begin() as transaction:
            log.record(ANN, "jobs.put", "a", transaction=transaction)
            raise RuntimeError("the change failed")

    with pytest.raises(RuntimeError):
        change()
    assert log.entries() == []


def test_no_secret_is_in_a_difference() -> None:
    texts = [
        difference("password = 'hush1'", "password = 'hush2'"),
        difference({"db": {"password": "hush1", "n": 1}}, {"db": {"password": "hush2", "n": 2}}),
        difference({"list": [{"api_key": "hush1"}]}, {"list": [{"api_key": ["hush2"]}]}),
        difference("connect(hush1)", "connect(hush2)", ["hush1", "hush2"]),
        difference("", "mysql://user:hush1@host/db"),
    ]
    assert "hush" not in "".join(texts)
    assert texts[0] == texts[3] == "only secrets have changed"
    assert '+  "n": 2' in texts[1]
    assert "${NEW}" in difference({"password": "${OLD}"}, {"password": "${NEW}"})
    assert difference({"a": 1}, {"a": 1}) == ""


def test_a_change_cannot_forge_lines_of_the_log(world: World, caplog: pytest.LogCaptureFixture) -> None:
    log = AuditLog(world.engine, world.clock)
    caplog.set_level("INFO", "headrace_server.access")
    log.record(ANN, "jobs.put\nroot", "a\r\n2026 root (author): deleted\x1b[31m\u202e", after="x\x1b]0;evil\x07\ny")
    [entry] = log.entries()
    assert (entry.action + entry.target).isprintable()
    assert all(line.isprintable() for line in entry.difference.splitlines())
    assert len(caplog.messages) == 1
    assert caplog.messages[0].isprintable()
