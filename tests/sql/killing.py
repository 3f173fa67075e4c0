"""Runs SQL texts with ``headrace run job.sql --checkpoint …`` in processes that a test can kill.

Their sinks write files: every change is a row of them, its kind in the column ``change``.
"""

from __future__ import annotations

import collections
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import polars as pl
from headrace.foundation.faults import VARIABLE

from tests.sql import golden

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_SECONDS = 900
#: What cases call their functions, and where those are.
_CLASSES = {
    "nx.udf.SplitTags": "split_tags", "nx.udf.ParseUdtf": "parse_udtf", "nx.udf.StrLen": "str_len", "nx.udf.WAvg": "WeightedAverage",
}  # fmt: skip
#: Options by which a run stores little at a time: there is much to lose and to double.
SMALL_STEPS = {
    "light": ["checkpoint_interval=20 ms", "max_batch_records=300"],
    "spark": ["max_batch_records=2000"],
}


#: Tables of orders and payments, as SQL texts of tests read them from files.
ORDERS_AND_PAYS = """
CREATE TABLE orders (oid BIGINT, uid BIGINT, cur VARCHAR, amount DECIMAL(12, 2), otime TIMESTAMP(3),
  WATERMARK FOR otime AS otime - INTERVAL '2' SECOND)
  WITH ('connector' = 'filesystem', 'path' = '${DATA}/orders_a.ndjson', 'format' = 'json');
CREATE TABLE pays (pid BIGINT, oid BIGINT, paid DECIMAL(12, 2), ptime TIMESTAMP(3),
  WATERMARK FOR ptime AS ptime - INTERVAL '2' SECOND)
  WITH ('connector' = 'filesystem', 'path' = '${DATA}/pays_a.ndjson', 'format' = 'json');
"""


@dataclass(frozen=True)
class Killable:
    """One text, laid out in a directory of its own. ``name`` is the golden case that it is, or any other name."""

    name: str
    directory: Path
    backend: str = "light"

    @property
    def job(self) -> Path:
        return self.directory / f"{self.name}.sql"

    @property
    def log(self) -> Path:
        return self.directory / "log.txt"

    def lay_out(self, data: Path, text: str | None = None) -> None:
        """Write the text, or that of the case, with files as sinks."""
        text = golden.text_of(self.name, data) if text is None else text.replace("${DATA}", data.as_uri())
        for named, function in _CLASSES.items():
            text = text.replace(f"'{named}'", f"'tests.sql.golden:{function}'")
        self.job.write_text(_with_files(text, self.directory / "out"), encoding="utf-8")

    def start(self, *, fault: str | None = None) -> subprocess.Popen[bytes]:
        """Start ``headrace run`` in a process group of its own, with its checkpoint in the case's directory."""
        environment = {key: value for key, value in os.environ.items() if key != VARIABLE}
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), environment.get("PYTHONPATH")]))
        if fault is not None:
            environment[VARIABLE] = f"{fault}:kill"
        options = [part for each in SMALL_STEPS[self.backend] for part in ("--option", each)]
        command = [
            sys.executable, "-m", "headrace_console.app", "run", str(self.job), "--backend", self.backend,
            "--checkpoint", str(self.directory / "checkpoint"), *options,
        ]  # fmt: skip
        with self.log.open("ab") as log:
            return subprocess.Popen(
                command, cwd=ROOT, env=environment, start_new_session=True, stdout=log, stderr=subprocess.STDOUT
            )

    def run(self, *, fault: str | None = None, kill_after_seconds: float | None = None) -> int:
        """Run to the end, or until it is killed; return the exit code. Nothing of the process group survives."""
        process = self.start(fault=fault)
        try:
            process.wait(TIMEOUT_SECONDS if kill_after_seconds is None else kill_after_seconds)
        except subprocess.TimeoutExpired:
            assert kill_after_seconds is not None, f"the run hangs: {self.log.read_text()[-3000:]}"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        return process.returncode

    def finish(self) -> None:
        """Run to the end."""
        assert self.run() == 0, self.log.read_text()[-3000:]

    def check(self) -> None:
        """Compare what the files come to with what Flink gives."""
        for stem, meta in golden.sinks_of(self.name).items():
            sink = stem.split(".")[-1]
            frame = in_the_end(self.directory / "out" / sink, [name for name, _ in meta["columns"]])
            difference = golden.differing(golden.expected_rows(stem), frame, meta["columns"])
            assert not difference, f"{stem}: {difference}"


def _with_files(text: str, output: Path) -> str:
    """Replace what the sinks of a text are: files with a column that says what each row does."""

    def replaced(found: re.Match[str]) -> str:
        return (
            f"{found[1]} WITH ('connector' = 'filesystem', 'path' = '{output / found[2]}', 'format' = 'json', "
            "'changes' = 'column', 'fsync' = 'false', 'flush-interval' = '20 ms')"
        )

    sink = (
        r"(?s)(CREATE TABLE (\w+) \((?:(?!CREATE TABLE).)*?\)\s*)WITH \((?:'connector' = 'blackhole'|type = 'print')\)"
    )
    text, count = re.subn(sink, replaced, text)
    assert count, "the text has no sink that is replaced"
    return text


def in_the_end(place: Path, columns: list[str]) -> pl.DataFrame:
    """Return the rows that a changelog in files comes to. Raises AssertionError when more rows are taken back than given."""
    rows = [json.loads(line, parse_float=Decimal) for line in counted(place).elements()]
    return pl.DataFrame({name: pl.Series([row.get(name) for row in rows], dtype=pl.Object) for name in columns})


def counted(place: Path) -> collections.Counter[str]:
    """Return the rows that a changelog in files comes to, as JSON."""
    counts: collections.Counter[str] = collections.Counter()
    for part in sorted(place.glob("*.json")):
        for line in part.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            adds = row.pop("change", "insert") in ("insert", "update_after")
            counts[json.dumps(row, sort_keys=True)] += 1 if adds else -1
    negative = {row: count for row, count in counts.items() if count < 0}
    assert not negative, f"rows are taken back more often than they were given: {list(negative.items())[:3]}"
    return +counts
