"""Running the cluster tests' program, and comparing what it has written with what light writes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from tests.cluster.program import ROOT, VARIABLE
from tests.conformance.case import Case, differences, outputs
from tests.conformance.run_cases import CASES
from tests.conformance.running import make, run
from tests.servers.spark_cluster import SparkCluster


class Named(Protocol):
    """A case, as far as its place is concerned."""

    @property
    def name(self) -> str: ...


def cases_of(names: Sequence[str]) -> list[Case]:
    """Return conformance cases by name."""
    return [case for case in CASES if case.name in names]


def lay_out(directory: Path, cases: Sequence[Case]) -> None:
    """Write the input of cases for a program of the same directory."""
    for case in cases:
        case.lay_out(make(directory / "cluster" / case.name))


def without_spark() -> dict[str, str]:
    """Return the environment without what tells Spark how to start."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK", "SPARK_"))}


@contextmanager
def program(
    cluster: SparkCluster | str,
    directory: Path,
    cases: Sequence[Named],
    options: Mapping[str, Any] | None = None,
    *,
    module: str = "tests.cluster.program",
) -> Iterator[subprocess.Popen[bytes]]:
    """Run cases on a cluster in a process of its own. PYSPARK_PYTHON is not set, and the shell's Python is another one."""
    names = [case.name for case in cases]
    master = cluster if isinstance(cluster, str) else cluster.master
    command = [sys.executable, "-m", module, master, str(directory / "cluster"), *names]
    environment = {**without_spark(), VARIABLE: json.dumps(options or {})}
    with log_of(directory).open("a") as log:
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=log, start_new_session=True
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def log_of(directory: Path) -> Path:
    """Return where a program's standard error goes."""
    return directory / "log.txt"


def ended_well(process: subprocess.Popen[bytes], directory: Path) -> None:
    """Wait for the end of a program, which must be a good one."""
    process.wait()
    assert process.returncode == 0, log_of(directory).read_text()[-4000:]


def same_as_light(directory: Path, cases: Sequence[Case]) -> None:
    """Compare what a program has written with what light writes."""
    for case in cases:
        run(case, make(directory / "light" / case.name), "light")
        found, wanted = (outputs(directory / where / case.name) for where in ("cluster", "light"))
        assert any(wanted.values()), case.name
        assert differences(found, wanted) == [], case.name


def completed(directory: Path, cases: Sequence[Named]) -> int:
    """Return how many micro-batches are completed over all cases: Spark keeps only the last ones, but numbers them."""
    places = [directory / "cluster" / case.name / "checkpoint" / "spark" / "commits" for case in cases]
    numbers = [[int(path.name) for path in place.glob("[0-9]*")] if place.exists() else [] for place in places]
    return sum(max(each) + 1 for each in numbers if each)
