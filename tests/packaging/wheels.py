"""Builds a wheel of every distribution of the workspace: ``python -m tests.packaging.wheels DIRECTORY``."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_BUILDING = """
import os, sys
from hatchling.build import build_wheel
for directory in sys.argv[2:]:
    os.chdir(directory)
    build_wheel(sys.argv[1])
"""
DISTRIBUTIONS = [ROOT / "core", *sorted(path.parent for path in ROOT.glob("*/*/pyproject.toml"))]


def build_wheels(place: Path) -> list[Path]:
    """Build all wheels into a directory, which may hold other files, and return them."""
    from uv import find_uv_bin

    for directory in DISTRIBUTIONS:
        command = [find_uv_bin(), "build", "--quiet", "--wheel", "--no-create-gitignore", "--python", sys.executable]
        subprocess.run([*command, "--out-dir", place, directory], check=True, cwd=place)
    return sorted(place.glob("headrace*.whl"))


def build_wheels_here(place: Path) -> list[Path]:
    """Build all wheels as ``build_wheels`` does, in one process, with the build backend of this environment; return them.

    They are the same to the byte. An environment of its own for each, with its installed backend, takes ten times as long.
    """
    backends = {
        tomllib.loads((each / "pyproject.toml").read_text())["build-system"]["build-backend"] for each in DISTRIBUTIONS
    }
    assert backends == {"hatchling.build"}
    subprocess.run([sys.executable, "-c", _BUILDING, place, *DISTRIBUTIONS], check=True)
    return sorted(place.glob("headrace*.whl"))


def installed(place: Path, *requirements: str, wheels: Sequence[Path], copies: bool = False) -> Path:
    """Install into a new environment, our own distributions from their wheels, and return its Python.

    ``copies``: its files may be changed; else they can be those of the cache of uv.
    """
    from uv import find_uv_bin

    subprocess.run([find_uv_bin(), "venv", "--quiet", "--python", sys.executable, str(place)], check=True)
    python = place / "bin" / "python"
    command = [find_uv_bin(), "pip", "install", "--quiet", "--python", str(python)]
    if copies:
        command += ["--link-mode", "copy"]
    places = ["--constraint", str(ROOT / "constraints.txt"), "--find-links", str(wheels[0].parent)]
    subprocess.run([*command, *places, *requirements], check=True, cwd=place)
    return python


if __name__ == "__main__":
    target = Path(sys.argv[1]).absolute()
    target.mkdir(parents=True, exist_ok=True)
    for wheel in build_wheels(target):
        sys.stdout.write(f"{wheel}\n")
