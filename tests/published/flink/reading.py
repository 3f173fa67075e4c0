"""Finds Flink's programs: in the jars of its tests, below the folder that ``HEADRACE_FLINK_CHECKOUT`` names."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

VARIABLE = "HEADRACE_FLINK_CHECKOUT"
_TESTS = "flink-table-planner_*-tests.jar"
#: Jars of a checkout that hold other parts again (shaded), or nothing but sources.
_LEFT_OUT = re.compile(r"(-sources|-javadoc|original-.*|flink-dist.*|flink-sql-.*|.*-uber.*)\.jar$")
#: Programs about what headrace leaves out by decision.
OUTSIDE = ("ProcessTableFunction", "Variant", "Bitmap", "MLPredict", "VectorSearch")


class NoPrograms(Exception):
    """Why the programs cannot be read, and what to do."""


@dataclass(frozen=True)
class Program:
    """One program: steps that define tables, functions and options, and steps that run."""

    name: str
    setup: tuple[dict[str, Any], ...]
    run: tuple[dict[str, Any], ...]

    def steps(self, *kinds: str) -> list[dict[str, Any]]:
        """Return the steps whose kind begins so."""
        return [step for step in (*self.setup, *self.run) if step["kind"].startswith(kinds)]

    @property
    def restores(self) -> bool:
        """Whether it has rows for behind a stop."""
        return bool(self.steps("SOURCE_WITH_RESTORE_DATA"))


def programs_of(checkout: str | None = None) -> list[Program]:
    """Return the programs of a checkout that is built, or of a folder with the jars. Raises NoPrograms."""
    tests, jars = _jars(checkout)
    texts = _given_by("Programs.java", jars, lambda target: [str(tests), str(target)])
    return [
        Program(name, tuple(each["setup"]), tuple(each["run"]))
        for name, each in texts.items()
        if not name.startswith(OUTSIDE)
    ]


def flink_itself(names: Sequence[str], checkout: str | None = None) -> dict[str, dict[str, Any]]:
    """Run programs on Flink, each as a stream in one run: the changes of each sink, or ``error``: why not. Raises NoPrograms."""
    _, jars = _jars(checkout)
    return _given_by("OneRun.java", jars, lambda target: [str(target), *names]) if names else {}


def _jars(checkout: str | None) -> tuple[Path, list[Path]]:
    """Return the jar of Flink's tests, and all that are needed to run it."""
    place = checkout or os.environ.get(VARIABLE)
    if not place:
        raise NoPrograms(f"{VARIABLE} names no folder with Flink's jars (tests/published/README.md)")
    root = Path(place).expanduser()
    found = sorted(root.rglob(_TESTS))
    if not found:
        raise NoPrograms(f"{root} has no {_TESTS}: build the checkout, or copy the jars (tests/published/README.md)")
    others = [each for each in sorted(root.rglob("*.jar")) if not _LEFT_OUT.search(each.name)]
    return found[-1], [found[-1], *others]


def _given_by(source: str, jars: Sequence[Path], arguments: Callable[[Path], list[str]]) -> dict[str, Any]:
    """Run a program of Java, which writes JSON to a file. ``arguments``: those of the program, with that file."""
    java = shutil.which("java")
    if java is None:
        raise NoPrograms("there is no java on the path; Flink's programs are read by Java 17 or newer")
    with tempfile.TemporaryDirectory() as place:
        target = Path(place, "given.json")
        options = Path(place, "options")  # more jars than a command line holds
        opened = " ".join(f"--add-opens java.base/java.{each}=ALL-UNNAMED" for each in ("util", "lang", "time"))
        options.write_text(f'{opened} -cp "{os.pathsep.join(map(str, jars))}"', encoding="utf-8")
        command = [java, f"@{options}", str(Path(__file__).with_name(source)), *arguments(target)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode or not target.is_file():
            raise NoPrograms(f"java gave nothing for {source}: {done.stderr[-2000:]}")
        made: dict[str, Any] = json.loads(target.read_text(encoding="utf-8"))
        return made
