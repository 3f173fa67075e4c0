"""Find the programs that the servers need, and install Debian packages where we are allowed to."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from tests.servers.directories import cache_directory, locked
from tests.servers.errors import MissingProgramError

# Debian keeps daemons where the search path of an ordinary user does not lead.
_DAEMON_DIRECTORIES = ("/usr/local/sbin", "/usr/sbin", "/sbin")


def find_program(name: str) -> Path | None:
    """The path of a program on PATH or in one of Debian's directories for daemons."""
    search = os.pathsep.join([os.environ.get("PATH", os.defpath), *_DAEMON_DIRECTORIES])
    found = shutil.which(name, path=search)
    return Path(found) if found else None


def require_program(name: str, debian_package: str) -> Path:
    """As `find_program`, but installs the Debian package first if we are root; else says what to install."""
    found = find_program(name)
    if found is None:
        install_debian_package(name, debian_package)
        found = find_program(name)
    if found is None:
        raise MissingProgramError(f"{name} is still missing after {debian_package} was installed")
    return found


def install_debian_package(purpose: str, package: str) -> None:
    """apt-get install; raises MissingProgramError, naming the command, where we are not root or have no apt."""
    command = f"apt-get update && apt-get install -y --no-install-recommends {package}"
    if os.getuid() != 0 or shutil.which("apt-get") is None:
        raise MissingProgramError(f"{purpose} is not installed. On Debian or Ubuntu, as root: {command}")
    with locked(cache_directory() / "apt.lock"):
        # RUNLEVEL=1: install the program, but do not start the distribution's own service.
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
        done = subprocess.run(["sh", "-c", command], env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise MissingProgramError(f"{purpose} is not installed, and `{command}` failed:\n{done.stderr[-2000:]}")
