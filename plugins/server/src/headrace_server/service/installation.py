"""Puts the file of a service where the service manager reads it, and takes it away."""

from __future__ import annotations

import os
import pwd
import stat
from abc import ABC, abstractmethod
from pathlib import Path

from headrace.foundation.durable_files import replace_durably
from headrace.foundation.errors import JobError, OptionError
from headrace.foundation.private_files import DIRECTORY_MODE

from headrace_server.service.description import ServiceDescription
from headrace_server.service.launchd import label_of, property_list
from headrace_server.service.systemd import unit_text

#: Files with this text are ours: others are neither replaced nor removed.
MARK = "written by headrace service install"


class ServiceManager(ABC):
    """A service manager: the place of its files, and the commands that start them. ``root`` is put before paths of the system."""

    def __init__(self, *, system: bool, home: Path, root: Path = Path("/")) -> None:
        self._system = system
        self._home = home
        self._root = root

    @abstractmethod
    def file(self, name: str) -> Path:
        """Return the file of a service."""

    @abstractmethod
    def content(self, description: ServiceDescription) -> bytes:
        """Return the content of a service's file."""

    @abstractmethod
    def start_commands(self, name: str) -> list[list[str]]:
        """Return the commands that start a service now and at each start of the machine; one that runs is started again."""

    @abstractmethod
    def stop_commands(self, name: str) -> list[list[str]]:
        """Return the commands that stop a service for good, while its file is still there."""

    def links(self, name: str) -> list[Path]:
        """Return links to the file that the service manager may have made."""
        return []

    def environment_file(self, name: str) -> Path:
        """Return where the variables of a service are, unless another place is given."""
        place = self._root / "etc" if self._system else self._home / ".config"
        return place / "headrace" / f"{name}.env"


class Systemd(ServiceManager):
    """systemd: of the system, or of one user."""

    def _place(self) -> Path:
        return self._root / "etc/systemd/system" if self._system else self._home / ".config/systemd/user"

    def file(self, name: str) -> Path:
        return self._place() / f"{name}.service"

    def content(self, description: ServiceDescription) -> bytes:
        head = f"# {MARK.capitalize()}, which replaces it. Your own settings: systemctl edit {description.name}."
        return unit_text(description, head).encode()

    def start_commands(self, name: str) -> list[list[str]]:
        control = ["systemctl"] if self._system else ["systemctl", "--user"]
        unit = f"{name}.service"
        return [[*control, "daemon-reload"], [*control, "enable", unit], [*control, "restart", unit]]

    def stop_commands(self, name: str) -> list[list[str]]:
        return [["systemctl", *([] if self._system else ["--user"]), "disable", "--now", f"{name}.service"]]

    def links(self, name: str) -> list[Path]:
        return [self._place() / f"{'multi-user' if self._system else 'default'}.target.wants" / f"{name}.service"]


class Launchd(ServiceManager):
    """launchd of macOS: of the system, or of one user."""

    def file(self, name: str) -> Path:
        place = self._root / "Library/LaunchDaemons" if self._system else self._home / "Library/LaunchAgents"
        return place / f"{label_of(name)}.plist"

    def content(self, description: ServiceDescription) -> bytes:
        head, separator, rest = property_list(description).partition(b"\n")
        return head + separator + f"<!-- {MARK}, which replaces it -->\n".encode() + rest

    def _domain(self) -> str:
        return "system" if self._system else f"gui/{os.getuid()}"

    def start_commands(self, name: str) -> list[list[str]]:
        return [["launchctl", "bootstrap", self._domain(), str(self.file(name))]]

    def stop_commands(self, name: str) -> list[list[str]]:
        return [["launchctl", "bootout", f"{self._domain()}/{label_of(name)}"]]


def install(description: ServiceDescription, manager: ServiceManager) -> Path:
    """Make the directories of a service and write its file; return that. Raises JobError, and OptionError if something is not ready."""
    if not description.jobs.is_dir():
        raise OptionError(
            f"{description.jobs} is not a directory", option="jobs", hint="create the directory, and put jobs into it"
        )
    for each in description.writable:
        if not each.is_dir():
            raise OptionError(f"{each} is not a directory", option="writable", hint="create it for the service's user")
    _check_secrets(description.environment_file)
    file = manager.file(description.name)
    try:
        _refuse_foreign(file)
        for directory in (description.data, description.temporary):
            _make_directory(directory, description.run_as)
        file.parent.mkdir(parents=True, exist_ok=True)
        replace_durably(file, manager.content(description), private=False)
        file.chmod(0o644)
    except PermissionError as error:
        raise JobError(
            f"{error.filename} cannot be written: {error.strerror}", hint="a system service must be installed by root"
        ) from error
    return file


def uninstall(name: str, manager: ServiceManager) -> Path:
    """Remove the file of a service; return where it was. Data, jobs and variables stay. Raises JobError if it is not there or not ours."""
    file = manager.file(name)
    read(name, manager)
    _refuse_foreign(file)
    try:
        for link in manager.links(name):
            if link.is_symlink():
                link.unlink()
        file.unlink()
    except PermissionError as error:
        raise JobError(f"{file} cannot be removed: {error.strerror}", hint="run the command as root") from error
    return file


def read(name: str, manager: ServiceManager) -> str:
    """Return the file of an installed service. Raises JobError if there is none."""
    file = manager.file(name)
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise JobError(f"no service is installed as {file}", hint="headrace service install") from None
    except OSError as error:
        raise JobError(f"{file} cannot be read: {error.strerror}") from error


def _refuse_foreign(file: Path) -> None:
    if file.exists() and MARK not in file.read_text(encoding="utf-8", errors="replace").lower():
        raise JobError(f"{file} was not written by headrace", hint="remove it, or choose another name with --name")


def _check_secrets(file: Path) -> None:
    try:
        mode = file.stat().st_mode
    except FileNotFoundError:
        return
    except OSError as error:
        raise OptionError(f"{file} cannot be read: {error.strerror}", option="environment_file") from error
    if stat.S_IMODE(mode) & 0o077:
        raise OptionError(
            f"other users can read the secrets in {file}", option="environment_file", hint=f"chmod 600 {file}"
        )


def _make_directory(directory: Path, owner: str | None) -> None:
    """Make a directory for the service's user alone, or check that it belongs to this user."""
    try:
        uid, gid = (os.getuid(), os.getgid()) if owner is None else pwd.getpwnam(owner)[2:4]
    except KeyError:
        raise OptionError(
            f"there is no user {owner}", option="run_as", hint=f"useradd --system {owner} makes it"
        ) from None
    directory.parent.mkdir(parents=True, exist_ok=True)
    try:
        directory.mkdir(mode=DIRECTORY_MODE)
    except FileExistsError:
        found = directory.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != uid:
            raise OptionError(
                f"{directory} does not belong to the service's user",
                option="data",
                hint="change its owner to that user",
            ) from None
        return
    if uid != os.getuid():
        os.chown(directory, uid, gid, follow_symlinks=False)
