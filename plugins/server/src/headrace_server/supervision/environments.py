"""Python environments for jobs with their own plug-ins: the server's packages and some additional wheels."""

from __future__ import annotations

import hashlib
import logging
import shutil
import subprocess
import sys
import sysconfig
import threading
import venv
from collections import defaultdict
from pathlib import Path

from headrace.foundation.durable_files import write_durably
from headrace.foundation.errors import JobError
from headrace.foundation.private_files import make_private_directory

from headrace_server.jobs_directory.plugin_wheels import PluginWheels, wheels_of

logger = logging.getLogger(__name__)
_INSTALL_TIMEOUT_SECONDS = 600.0
_READY = "ready"


class Environments:
    """Makes an environment for each set of wheels, once. May be used from any thread.

    Nothing is downloaded: wheels, and packages that they need and the server does not have, are in ``ext``. Environments are not
    removed; one that is removed by hand is made again when a job needs it.
    """

    def __init__(self, directory: Path, ext: Path) -> None:
        self._directory = directory
        self._wheels = PluginWheels(ext)
        self._locks: dict[str, threading.Lock] = defaultdict(threading.Lock)

    def python_of(self, lock: str) -> str:
        """Return the interpreter of the environment with these wheels; make it if it is not there.

        Takes some seconds the first time. Raises JobError if a wheel is not there any more, was changed, or cannot be installed.
        """
        # Packages that were installed for this Python cannot be used with another Python of the server.
        key = hashlib.sha256(f"{sys.version}\n{sys.prefix}\n{lock}".encode()).hexdigest()[:16]
        place = self._directory / key
        with self._locks[key]:
            if not (place / _READY).exists():
                self._make(place, lock)
        return str(place / "bin" / "python")

    def _make(self, place: Path, lock: str) -> None:
        wheels = wheels_of(lock)
        for name, expected in wheels.items():
            if self._wheels.hash_of(name) != expected:
                raise JobError(
                    f"{name} in {self._wheels.directory} is not the wheel that this version was made with", option="plugins",
                    hint="restore the old wheel, or change the job's files: this creates a new version",
                )  # fmt: skip
        logger.info("making the environment %s with %s", place.name, ", ".join(wheels))
        shutil.rmtree(place, ignore_errors=True)  # of a server that was killed on the way
        make_private_directory(place.parent)
        try:
            venv.EnvBuilder(symlinks=True).create(place)
            python = place / "bin" / "python"
            self._see_what_the_server_has(place)
            self._install(python, [str(self._wheels.directory / name) for name in wheels])
        except (OSError, subprocess.SubprocessError) as error:
            raise JobError(
                f"the Python environment of the plug-ins cannot be created: {error}", option="plugins"
            ) from error
        write_durably(place / _READY, lock.encode())

    @staticmethod
    def _see_what_the_server_has(place: Path) -> None:
        """Add the server's packages behind those of the environment, also packages that are installed as links."""
        own = {sysconfig.get_path(kind) for kind in ("purelib", "platlib")}
        [packages] = place.glob("lib/python*/site-packages")
        lines = "".join(f"import site; site.addsitedir({path!r})\n" for path in sorted(own))
        (packages / "headrace-server.pth").write_text(lines, encoding="utf-8")

    def _install(self, python: Path, wheels: list[str]) -> None:
        command = [
            sys.executable,
            "-m",
            "pip",
            "--python",
            str(python),
            "install",
            "--no-index",
            "--disable-pip-version-check",
        ]
        found = subprocess.run(
            [*command, "--quiet", "--find-links", str(self._wheels.directory), *wheels],
            capture_output=True, text=True, timeout=_INSTALL_TIMEOUT_SECONDS, check=False,
        )  # fmt: skip
        if found.returncode:
            said = (found.stderr or found.stdout).strip().splitlines() or ["pip said nothing"]
            raise JobError(
                "the plug-ins cannot be installed:\n  " + "\n  ".join(said[-8:]), option="plugins",
                hint=f"packages that they need, and the server does not have, must be in {self._wheels.directory}; pip must be installed",
            )  # fmt: skip
