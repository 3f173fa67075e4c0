"""Finds Flink's programs: in the jars of its tests, below the folder that ``HEADRACE_FLINK_CHECKOUT`` names."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
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
    place = checkout or os.environ.get(VARIABLE)
    if not place:
        raise NoPrograms(f"{VARIABLE} names no folder with Flink's jars (tests/published/README.md)")
    root = Path(place).expanduser()
    found = sorted(root.rglob(_TESTS))
    if not found:
        raise NoPrograms(f"{root} has no {_TESTS}: build the checkout, or copy the jars (tests/published/README.md)")
    java = shutil.which("java")
    if java is None:
        raise NoPrograms("there is no java on the path; Flink's programs are read by Java 17 or newer")
    jars = [str(each) for each in sorted(root.rglob("*.jar")) if not _LEFT_OUT.search(each.name)]
    with tempfile.TemporaryDirectory() as place:
        target = Path(place, "programs.json")
        source = Path(__file__).with_name("Programs.java")
        arguments = Path(place, "arguments")  # more jars than a command line holds
        arguments.write_text(f'-cp "{os.pathsep.join([str(found[-1]), *jars])}"', encoding="utf-8")
        command = [java, f"@{arguments}", str(source), str(found[-1]), str(target)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode or not target.is_file():
            raise NoPrograms(f"java gave no programs: {done.stderr[-2000:]}")
        texts = json.loads(target.read_text(encoding="utf-8"))
    return [
        Program(name, tuple(each["setup"]), tuple(each["run"]))
        for name, each in texts.items()
        if not name.startswith(OUTSIDE)
    ]
