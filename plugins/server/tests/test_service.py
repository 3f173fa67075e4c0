"""``headrace service``: files that systemd and launchd read, and where they are put."""

from __future__ import annotations

import os
import plistlib
import pwd
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from headrace.foundation.errors import HeadraceError, JobError, OptionError
from headrace_console.app import app
from headrace_server.service import systemd
from headrace_server.service.description import ServiceDescription
from headrace_server.service.installation import Launchd, ServiceManager, Systemd, install, read, uninstall
from headrace_server.service.launchd import label_of
from typer.testing import CliRunner

#: As what a directory may be called; systemd reads quotes, dollars, percents and backslashes.
ODD = ["plain", "two words", "100%s", "a$HOME$$b", "${X}", 'in "quotes"', "it's", "back\\slash", "k=v;#", "ünïcode ", " first",
       "a:b"]  # fmt: skip
analyze = shutil.which("systemd-analyze")
with_systemd = pytest.mark.skipif(analyze is None, reason="this machine has no systemd-analyze")


def description(**given: Any) -> ServiceDescription:
    values = {
        "name": "headrace", "python": sys.executable, "jobs": Path("/srv/jobs"), "data": Path("/srv/data"),
        "environment_file": Path("/etc/headrace/headrace.env"),
    }  # fmt: skip
    return ServiceDescription(**{**values, **given})


def settings(text: str) -> dict[str, str]:
    """Return the settings of a unit, of which each stands once."""
    pairs = [line.partition("=")[::2] for line in text.splitlines() if line and line[0] not in "#["]
    assert len({name for name, _ in pairs}) == len(pairs)
    return dict(pairs)


def unit_of(**given: Any) -> str:
    return systemd.unit_text(description(**given), "# head")


def verify(unit: str, place: Path, *, user: bool) -> str:
    """Return what systemd has against a unit."""
    file = place / "headrace.service"
    file.write_text(unit)
    done = subprocess.run(
        [str(analyze), "verify", "--man=no", *(["--user"] if user else []), str(file)],
        env={**os.environ, "XDG_RUNTIME_DIR": str(place)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    # Systemd before 254 does not know the setting, says so and goes on.
    said = [line for line in (done.stdout + done.stderr).splitlines() if "'DelegateSubgroup'" not in line]
    return "\n".join(said) + (f"code {done.returncode}" if done.returncode else "")


# ------------------------------------------------------------------------------------------------------------ systemd


@with_systemd
@pytest.mark.parametrize("on_stop", ["stop", "leave"])
@pytest.mark.parametrize("run_as", [None, "daemon"])
def test_systemd_takes_the_unit(tmp_path: Path, on_stop: str, run_as: str | None) -> None:
    found = verify(unit_of(on_stop=on_stop, run_as=run_as), tmp_path, user=run_as is None)
    assert [line for line in found.splitlines() if "/headrace.service" in line or "code" in line] == []


@with_systemd
@pytest.mark.parametrize("name", [each for each in ODD if not set(each) & set("\"'\\")])
def test_systemd_finds_the_program_at_odd_paths(tmp_path: Path, name: str) -> None:
    place = tmp_path / name
    place.mkdir()
    (place / "python").symlink_to("/bin/true")
    text = unit_of(python=str(place / "python"), data=Path("/srv") / name, writable=[Path("/srv") / name / "out"])
    assert "headrace.service" not in verify(text, tmp_path, user=True)
    (place / "python").unlink()
    assert "is not executable" in verify(text, tmp_path, user=True)  # so it was this file that systemd looked at


@pytest.mark.parametrize("name", ODD)
def test_words_and_whole_values_follow_the_rules_of_systemd(name: str) -> None:
    path = f"/srv/{name}"
    text = settings(unit_of(jobs=Path(path), data=Path(path), writable=[Path(path)], environment_file=Path(path)))
    arguments = words(text["ExecStart"])
    assert arguments[0] == ":" + sys.executable
    assert arguments[arguments.index("--jobs") + 1] == arguments[arguments.index("--data") + 1] == path
    assert words(text["ReadWritePaths"]) == [path]
    for setting, prefix in (("EnvironmentFile", "-"), ("WorkingDirectory", "")):
        assert text[setting].replace("%%", "%") == prefix + path
        assert text[setting].count("%") == 2 * path.count("%")


def words(value: str) -> list[str]:
    """Read a setting of words as `man systemd.syntax` says: quotes, backslashes, then two percents for one."""
    found, rest = [], value
    while rest:
        assert rest[0] == '"'
        taken, place = "", 1
        while rest[place] != '"':
            if rest[place] == "\\":
                place += 1
                assert rest[place] in '\\"'  # what all settings read in the same way
            elif rest[place] == "%":
                place += 1
                assert rest[place] == "%"
            taken += rest[place]
            place += 1
        found.append(taken)
        assert rest[place + 1 : place + 2] in ("", " ")
        rest = rest[place + 2 :]
    return found


def test_jobs_go_on_when_the_server_ends_unless_they_are_to_stop() -> None:
    leave, stop = settings(unit_of()), settings(unit_of(on_stop="stop"))
    assert (leave["KillMode"], stop["KillMode"]) == ("process", "mixed")
    # A PrivateTmp would go with the server, with what jobs have in it.
    assert ("PrivateTmp" in leave, stop["PrivateTmp"]) == (False, "yes")
    assert leave["BindPaths"] == '"/srv/data/tmp":/tmp "/srv/data/tmp":/var/tmp'
    assert words(leave["ExecStart"])[-2:] == ["--on-stop", "leave"]
    assert words(stop["ExecStart"])[-2:] == ["--on-stop", "stop"]
    assert leave["OOMPolicy"] == stop["OOMPolicy"] == "continue"


def test_the_sandbox_holds_for_units_of_users_and_of_the_system() -> None:
    user, system = settings(unit_of()), settings(unit_of(run_as="streams"))
    for unit in (user, system):
        assert (unit["NoNewPrivileges"], unit["ProtectSystem"], unit["UMask"]) == ("yes", "strict", "0077")
    # Without a user namespace the manager of a user cannot mount anything.
    assert (user["PrivateUsers"], "PrivateUsers" in system) == ("yes", False)
    assert (system["User"], system["CapabilityBoundingSet"], "User" in user) == ("streams", "", False)
    assert (user["WantedBy"], system["WantedBy"]) == ("default.target", "multi-user.target")
    bare = settings(unit_of(sandbox=False))
    assert not {"ProtectSystem", "BindPaths", "ReadWritePaths", "PrivateUsers"} & set(bare)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"name": "../evil"}, "is not a name of a service"),
        ({"name": "a b"}, "is not a name of a service"),
        ({"run_as": "root"}, "must not run as root"),
        ({"run_as": "x\nExecStartPre=/bin/evil"}, "is not a name of a user"),
        ({"jobs": Path("/srv/a\nExecStartPre=/bin/evil")}, "control characters"),
        ({"options": ["--host\n[Install]"]}, "control characters"),
        ({"data": Path("/srv/ends\\")}, "backslash at its end"),
        ({"data": Path("/srv/\udcff")}, "is not UTF-8"),
        ({"python": "/srv/it's/python"}, "cannot start a program whose path has quotes"),
        ({"jobs": Path("jobs")}, "is not an absolute path"),
        ({"data": Path("/tmp/data")}, "directory for temporary files"),
        ({"writable": [Path("/var/tmp/out")]}, "directory for temporary files"),
    ],
)
def test_what_a_unit_cannot_hold_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        unit_of(**given)


# ------------------------------------------------------------------------------------------------------------ launchd


@pytest.mark.parametrize("name", ODD)
def test_launchd_starts_the_server_with_the_variables_of_the_file(tmp_path: Path, name: str) -> None:
    place = tmp_path / name
    place.mkdir()
    (place / "variables").write_text("DB_PASSWORD='two words'\n")
    program = place / "python"
    program.write_text('#!/bin/sh\necho "$DB_PASSWORD"\nfor each do echo "$each"; done\n')
    program.chmod(0o700)
    one = description(python=str(program), data=place, jobs=place, environment_file=place / "variables")
    found = plistlib.loads(Launchd(system=False, home=tmp_path).content(one))
    run = subprocess.run(found["ProgramArguments"], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert run.stdout.splitlines() == ["two words", *one.command()[1:]]
    (place / "variables").unlink()
    run = subprocess.run(found["ProgramArguments"], capture_output=True, text=True, check=True, env={}, cwd=tmp_path)
    assert run.stdout.splitlines() == ["", *one.command()[1:]]
    assert found["WorkingDirectory"] == str(place)
    assert found["AbandonProcessGroup"] is True


def test_launchd_has_agents_of_users_and_daemons_of_the_machine(tmp_path: Path) -> None:
    agent, daemon = (Launchd(system=each, home=tmp_path, root=tmp_path / "root") for each in (False, True))
    assert agent.file("other") == tmp_path / "Library/LaunchAgents/headrace.other.plist"
    assert daemon.file("headrace") == tmp_path / "root/Library/LaunchDaemons/headrace.plist"
    content = plistlib.loads(daemon.content(description(run_as="streams", on_stop="stop")))
    assert (content["UserName"], content["Umask"], content["AbandonProcessGroup"]) == ("streams", 0o077, False)
    assert content["KeepAlive"] == {"SuccessfulExit": False}
    assert content["Label"] == label_of("headrace") == "headrace"
    assert daemon.stop_commands("other") == [["launchctl", "bootout", "system/headrace.other"]]


# -------------------------------------------------------------------------------------------------------- installation


@pytest.fixture(params=[Systemd, Launchd])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> ServiceManager:
    made: ServiceManager = request.param(system=False, home=tmp_path / "home")
    return made


def real(tmp_path: Path, **given: Any) -> ServiceDescription:
    (tmp_path / "jobs").mkdir(exist_ok=True)
    values = {"jobs": tmp_path / "jobs", "data": tmp_path / "data", "environment_file": tmp_path / "variables"}
    return description(sandbox=False, **{**values, **given})


def test_a_service_is_installed_again_and_removed_without_its_data(manager: ServiceManager, tmp_path: Path) -> None:
    file = install(real(tmp_path), manager)
    assert install(real(tmp_path, options=["--port", "9000"]), manager) == file
    assert "9000" in read("headrace", manager)
    assert stat.S_IMODE(file.stat().st_mode) == 0o644
    for directory in (tmp_path / "data", tmp_path / "data" / "tmp"):
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    for link in manager.links("headrace"):  # as `systemctl enable` makes it
        link.parent.mkdir()
        link.symlink_to(file)
    assert uninstall("headrace", manager) == file
    assert not file.exists()
    assert not any(link.is_symlink() for link in manager.links("headrace"))
    assert (tmp_path / "data" / "tmp").is_dir()
    for gone in (read, uninstall):
        with pytest.raises(JobError, match="no service is installed"):
            gone("headrace", manager)


def test_a_file_of_somebody_else_is_neither_replaced_nor_removed(manager: ServiceManager, tmp_path: Path) -> None:
    file = manager.file("headrace")
    file.parent.mkdir(parents=True)
    file.write_text("[Service]\nExecStart=/bin/true\n")
    with pytest.raises(JobError, match="was not written by headrace"):
        install(real(tmp_path), manager)
    with pytest.raises(JobError, match="was not written by headrace"):
        uninstall("headrace", manager)
    assert file.read_text() == "[Service]\nExecStart=/bin/true\n"


def test_secrets_that_others_can_read_are_refused(manager: ServiceManager, tmp_path: Path) -> None:
    (tmp_path / "variables").write_text("DB_PASSWORD=hunter2\n")
    (tmp_path / "variables").chmod(0o640)
    with pytest.raises(OptionError, match="other users can read the secrets") as refused:
        install(real(tmp_path), manager)
    assert "chmod 600" in str(refused.value)
    (tmp_path / "variables").chmod(0o600)
    assert "hunter2" not in install(real(tmp_path), manager).read_text()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"jobs": Path("/nowhere")}, "/nowhere is not a directory"),
        ({"writable": [Path("/nowhere")]}, "/nowhere is not a directory"),
        ({"run_as": "nobody-has-this-name"}, "there is no user nobody-has-this-name"),
    ],
)
def test_what_is_not_ready_is_refused(tmp_path: Path, given: dict[str, Any], message: str) -> None:
    manager = Systemd(system=True, home=tmp_path, root=tmp_path)
    with pytest.raises(HeadraceError, match=message):
        install(real(tmp_path, **given), manager)
    assert not manager.file("headrace").exists()


@pytest.mark.skipif(os.getuid() != 0, reason="only root installs services of the system")
def test_root_gives_the_data_to_the_user_of_the_service_and_takes_nothing_from_others(tmp_path: Path) -> None:
    manager = Systemd(system=True, home=tmp_path, root=tmp_path)
    install(real(tmp_path, run_as="daemon"), manager)
    for directory in (tmp_path / "data", tmp_path / "data" / "tmp"):
        assert directory.stat().st_uid == pwd.getpwnam("daemon").pw_uid
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    with pytest.raises(OptionError, match="does not belong to the service's user"):
        install(real(tmp_path, run_as="daemon", data=foreign), manager)
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "data")
    with pytest.raises(OptionError, match="does not belong to the service's user"):
        install(real(tmp_path, run_as="daemon", data=link), manager)


# ------------------------------------------------------------------------------------------------------------ commands


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home with a jobs directory, where no service manager can be asked."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.delenv("HEADRACE_DATA", raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "jobs").mkdir()
    return tmp_path


def test_commands_install_show_and_remove_and_ask_no_service_manager(place: Path) -> None:
    unit = place / ".config/systemd/user/headrace.service"
    dry = CliRunner().invoke(app, ["service", "install", "--no-sandbox", "--dry-run", "--", "--port", "9000"])
    assert dry.exit_code == 0, dry.output
    assert not unit.exists()
    assert not (place / "headrace-data").exists()
    done = CliRunner().invoke(app, ["service", "install", "--no-sandbox", "--", "--port", "9000"])
    assert done.exit_code == 0, done.output
    assert "next: systemctl --user enable headrace.service" in done.stdout
    assert unit.read_text() == dry.stdout == CliRunner().invoke(app, ["service", "show"]).stdout
    assert words(settings(dry.stdout)["ExecStart"])[-2:] == ["--port", "9000"]
    assert CliRunner().invoke(app, ["service", "uninstall"]).exit_code == 0
    assert not unit.exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["install"], "directory for temporary files"),
        (["install", "--no-sandbox", "--start"], "the program systemctl is not installed"),
        (["install", "--no-sandbox", "--", "--prt", "1"], "No such option"),
        (["install", "--no-sandbox", "--", "--registry", "mysql://u:hunter2@h/d"], "--registry is not given"),
        (["install", "--no-sandbox", "--", "--registry=mysql://u:hunter2@h/d"], "--registry is not given"),
        (["install", "--system"], "needs a user"),
        (["install", "--run-as", "streams"], "runs as you"),
        (["install", "--system", "--run-as", "root"], "must not run as root"),
        (["show"], "no service is installed"),
        (["uninstall", "--name", "other"], "no service is installed"),
    ],
)
def test_wrong_use_is_refused_with_the_reason(place: Path, arguments: list[str], message: str) -> None:
    if str(place).split("/")[1] != "tmp" and arguments == ["install"]:
        pytest.skip("the directory of tests is not below /tmp")
    result = CliRunner().invoke(app, ["service", *arguments])
    assert (result.exit_code, message in result.stderr) == (2, True), result.stderr
    assert "hunter2" not in result.output
