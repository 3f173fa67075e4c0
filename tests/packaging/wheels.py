"""Builds a wheel of every distribution of the workspace: ``python -m tests.packaging.wheels DIRECTORY``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DISTRIBUTIONS = [ROOT / "core", *sorted(path.parent for path in ROOT.glob("*/*/pyproject.toml"))]


def build_wheels(place: Path) -> list[Path]:
    """Build all wheels into a directory, which may hold other files, and return them."""
    from uv import find_uv_bin

    for directory in DISTRIBUTIONS:
        command = [find_uv_bin(), "build", "--quiet", "--wheel", "--no-create-gitignore", "--python", sys.executable]
        subprocess.run([*command, "--out-dir", place, directory], check=True, cwd=place)
    return sorted(place.glob("headrace*.whl"))


if __name__ == "__main__":
    target = Path(sys.argv[1]).absolute()
    target.mkdir(parents=True, exist_ok=True)
    for wheel in build_wheels(target):
        sys.stdout.write(f"{wheel}\n")
