"""Nexmark: the published SQL queries over events from a file, on headrace and on PyFlink, in one run.

    python -m benchmarks.nexmark [--events 1000000] [--queries q0 q1 …] [--only check|light|flink|spark] [--results FILE]

Both are given the published texts (see benchmarks.nexmark_queries) and the same file; results go into a blackhole, as published, so
that no encoder is measured. Each query runs once over fewer events to warm up, then over all, from its text to the end of its input, in
one process. light runs before and after Flink, and the mean counts: others may use the machine. ``check`` compares sums over final results.
What it prints, and appends to the file ``--results``, is JSON lines; ``python -m benchmarks.nexmark_page`` makes docs/benchmarks-sql.md.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

from benchmarks import nexmark_events
from benchmarks import nexmark_queries as queries
from benchmarks.measure import ROOT
from benchmarks.peers.run import HERE as PEERS
from benchmarks.peers.run import environment

#: As Flink's own documentation advises for aggregates, and as the suite's configuration has it.
FLINK_SETTINGS = {
    "table.exec.mini-batch.enabled": "true",
    "table.exec.mini-batch.allow-latency": "2 s",
    "table.exec.mini-batch.size": "50000",
}
#: Memory of the JVM.
FLINK_HEAP = "-Xmx3g"
#: Events that each query runs over before it is measured, in the same process.
WARM_UP_EVENTS = 100_000
#: Queries over fewer events: PyFlink takes 6 minutes for 500,000.
EVENTS_MAX = {"cep_q3": 100_000}
COUNT_CHAR_SOURCE = "nexmark-flink/src/main/java/com/github/nexmark/flink/udf/CountChar.java"


class Places:
    """Where everything is; what is missing is made."""

    def __init__(self, directory: Path, environments: Path, events: int) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        environments.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.environments = environments
        self.texts = queries.checkout(directory / "nexmark")
        self.side_input = directory / "side_input.csv"
        queries.make_side_input(self.side_input)
        self.events = self._made(events)
        self.warm_up = self._made(min(events, WARM_UP_EVENTS))

    def _made(self, events: int) -> Path:
        path = self.directory / f"events-{events}.ndjson"
        if not path.exists():
            nexmark_events.make(path, events)
        return path

    def halves(self) -> Path:
        """Return a directory with the same events in two files: Flink gives a file to one reader as a whole."""
        place = self.events.with_suffix(".halves")
        if not place.exists():
            place.mkdir()
            # Blocks of lines in turn, so that both readers go through event time together.
            with self.events.open("rb") as lines, (place / "0").open("wb") as even, (place / "1").open("wb") as odd:
                for number, line in enumerate(lines):
                    (odd if number // 100 % 2 else even).write(line)
        return place

    def jar(self, python: str) -> Path:
        """Return a jar with the function of q14, which is the published one, and the lookup source of q13."""
        made = self.directory / "nexmark.jar"
        if not made.exists():
            libraries = next(Path(python).parent.parent.glob("lib/*/site-packages/pyflink/lib"))
            classes = self.directory / "classes"
            sources = [str(self.texts / COUNT_CHAR_SOURCE), str(PEERS / "java" / "SideInputFactory.java")]
            subprocess.run(["javac", "-cp", f"{libraries}/*", "-d", str(classes), *sources], check=True)
            with zipfile.ZipFile(made, "w") as jar:
                for path in sorted(classes.rglob("*.class")):
                    jar.write(path, str(path.relative_to(classes)))
                jar.writestr("META-INF/services/org.apache.flink.table.factories.Factory", "SideInputFactory\n")
        return made

    def flink_statements(self, name: str, events: Path) -> list[str]:
        text = queries.text_of(
            name, self.texts, output=f"file://{self.directory}/out-flink",
            events=f"'connector' = 'filesystem', 'path' = 'file://{events}', 'format' = 'json'",
            side_input=f"'connector' = 'side-input', 'path' = '{self.side_input}'",
        )  # fmt: skip
        return [part for each in text.split(";") if (part := each.strip())]


def flink(places: Places, names: Sequence[str], parallelism: int, *, check: bool = False) -> Iterator[dict[str, Any]]:
    """Run queries in PyFlink, one process for all, and yield what it prints."""
    python = environment("pyflink", places.environments)
    events = places.events if parallelism == 1 else places.halves()
    inputs = [events] if check else [places.warm_up, events]
    job = {
        "queries": {name: [places.flink_statements(name, each) for each in inputs] for name in names},
        "parallelism": parallelism, "settings": FLINK_SETTINGS, "jars": [f"file://{places.jar(python)}"],
        "check": check, "outputs": [f"{places.directory}/out-flink"],
    }  # fmt: skip
    described = places.directory / f"job-{parallelism}.json"
    described.write_text(json.dumps(job))
    variables = {**os.environ, "PYTHONPATH": "", "JVM_ARGS": FLINK_HEAP}
    yield from _printed([python, str(PEERS / "nexmark_pyflink_job.py"), str(described)], variables)


def headrace(places: Places, names: Sequence[str], backend: str, **more: Any) -> Iterator[dict[str, Any]]:
    """Run queries in headrace, one process for all, and yield what it prints."""
    job = {
        "texts": str(places.texts), "events": str(places.events), "warm_up": str(places.warm_up), **more,
        "side_input": str(places.side_input), "output": f"{places.directory}/out-{backend}", "queries": list(names),
        "backend": backend,
    }  # fmt: skip
    yield from _printed([sys.executable, "-m", "benchmarks.nexmark_headrace", json.dumps(job)], dict(os.environ))


def _printed(command: Sequence[str], variables: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    with tempfile.TemporaryFile() as errors:
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=errors, env=variables) as process:
            assert process.stdout is not None
            for line in process.stdout:
                if line.startswith(b"{"):
                    yield json.loads(line)
        if process.returncode:
            errors.seek(0)
            raise RuntimeError(f"{command[:3]} failed:\n{errors.read().decode(errors='replace')[-4000:]}")


_results: Path | None = None


def say(side: str, events: int, found: Mapping[str, Any]) -> None:
    """Print one result, with the load of the machine."""
    line = json.dumps({"side": side, "events": events, "load": round(os.getloadavg()[0], 1), **found})
    print(line, flush=True)
    if _results is not None:
        with _results.open("a") as file:
            file.write(line + "\n")


def compare(places: Places, names: Sequence[str], events: int) -> None:
    """Compare sums over final results of both sides. Raises RuntimeError when some are not the same."""
    own = {found["query"]: found["sums"] for found in headrace(places, names, "light", check=True)}
    wrong = []
    for found in flink(places, names, 1, check=True):
        name, theirs = found["query"], found["sums"]
        same = [_number(value) for value in own[name]] == [_number(value) for value in theirs]
        say("check", events, {"query": name, "rows": int(theirs[0]), "same": same})
        if not same:
            wrong.append(f"{name}: {own[name]} here, {theirs} in Flink")
    if wrong:
        raise RuntimeError("results are not the same:\n" + "\n".join(wrong))


def _number(value: str | None) -> Decimal | None:
    return None if value is None else Decimal(value)


def run(places: Places, names: Sequence[str], events: int, parts: Sequence[str]) -> None:
    """Compare the results of queries and measure them over so many events, light before and after PyFlink."""
    if "check" in parts:
        compare(places, names, events)
    for part in ("light", "flink-1", "flink-2", "light", "spark"):
        if part.partition("-")[0] not in parts:
            continue
        name, _, parallelism = part.partition("-")
        found = flink(places, names, int(parallelism)) if parallelism else headrace(places, names, name)
        for one in found:
            say(part, events, one)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    base = Path(tempfile.gettempdir()) / "headrace-peers"
    parser.add_argument("--environments", type=Path, default=base / "environments")
    parser.add_argument("--directory", type=Path, default=base / "nexmark")
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--queries", nargs="*", default=[*queries.QUERIES, *queries.PATTERNS])
    parser.add_argument("--only", nargs="*", choices=("check", "light", "flink", "spark"))
    parser.add_argument("--results", type=Path)
    given = parser.parse_args(arguments)
    global _results
    _results = given.results
    if _results is not None:
        _results.parent.mkdir(parents=True, exist_ok=True)
    parts = given.only or ("check", "light", "flink", "spark")
    groups: dict[int, list[str]] = {}
    for name in given.queries:
        groups.setdefault(min(given.events, EVENTS_MAX.get(name, given.events)), []).append(name)
    for events, names in groups.items():
        run(Places(given.directory, given.environments, events), names, events, parts)


if __name__ == "__main__":
    main()
