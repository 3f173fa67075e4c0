"""The tests in another environment: another Python, or the lowest versions that the packages say they work with.

    python -m tests.packaging.other_environments --python 3.13
    python -m tests.packaging.other_environments --lowest

Each environment is made anew, below ``.venvs``. Further arguments are pytest's; without any it runs what needs neither servers nor
long, on all packages. The interpreter must be on this machine: ``uv`` finds it, or is told its path.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
UV = Path(sys.executable).with_name("uv")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.packaging.other_environments")
    parser.add_argument("--python", default=f"{sys.version_info.major}.{sys.version_info.minor}")
    parser.add_argument("--lowest", action="store_true", help="the lowest versions of direct dependencies")
    given, tests = parser.parse_known_args()
    name = Path(given.python).name  # of a path, the program: an absolute path would leave .venvs
    environment = ROOT / ".venvs" / (f"lowest-{name}" if given.lowest else name)
    subprocess.run([UV, "venv", "--quiet", "--seed", "--clear", "--python", given.python, environment], check=True)
    python = environment / "bin" / "python"
    packages = [
        path.parent
        for pattern in ("core", "plugins/*", "connectors/*", "contrib/*")
        for path in ROOT.glob(f"{pattern}/pyproject.toml")
    ]
    editable = [argument for package in sorted(packages) for argument in ("-e", str(package))]
    versions = ["--resolution", "lowest-direct"] if given.lowest else ["-c", str(ROOT / "constraints.txt")]
    subprocess.run([UV, "pip", "install", "--quiet", "--python", python, *versions, *editable], check=True)
    # Tools of the tests themselves are those of constraints.txt, in every environment.
    pins = environment / "tools.txt"
    pins.write_text(_pins_of_tools(_installed(python)), encoding="utf-8")
    tools = [argument for file in ("dev", "docs") for argument in ("-r", str(ROOT / f"requirements-{file}.txt"))]
    subprocess.run([UV, "pip", "install", "--quiet", "--python", python, "-c", str(pins), *tools], check=True)
    shown = subprocess.run([UV, "pip", "list", "--python", python], capture_output=True, text=True, check=True)
    print(shown.stdout, flush=True)
    wanted = tests or ["-m", "not slow and not servers", "-n", "2", "--dist", "loadfile", *_directories(packages)]
    return subprocess.run([python, "-m", "pytest", "-q", *wanted], cwd=ROOT, check=False).returncode


def _installed(python: Path) -> dict[str, str]:
    found = subprocess.run(
        [UV, "pip", "list", "--format", "json", "--python", python], capture_output=True, text=True, check=True
    )
    return {each["name"].lower().replace("_", "-"): each["version"] for each in json.loads(found.stdout)}


def _pins_of_tools(installed: dict[str, str]) -> str:
    """Return the versions of constraints.txt; of what is installed it may stay, unless a tool needs a later one."""
    lines = [line for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines() if "==" in line]
    pins = {line.partition("==")[0].lower().replace("_", "-"): line for line in lines}
    kept = {name: f"{name}>={version}" for name, version in installed.items() if name in pins}
    return "\n".join({**pins, **kept}.values()) + "\n"


def _directories(packages: list[Path]) -> list[str]:
    return [str(path / "tests") for path in sorted(packages) if (path / "tests").is_dir()] + [str(ROOT / "tests")]


if __name__ == "__main__":
    sys.exit(main())
