"""What one job has together and tests of parts do not: several formats, sinks, late rows, dead letters, restarts, moved checkpoints."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import headrace as hr
import pytest

pytestmark = pytest.mark.spark
BEGIN = datetime(2026, 3, 1, tzinfo=UTC)
SCHEMA = {"id": "int64", "k": "string", "v": "float64", "at": "timestamp"}
OUTPUTS = ("rows", "windows", "late", "best", "matched", "bad")


def lay_out(place: Path, part: int) -> None:
    """Write the next part of the input: JSON and CSV files with bad records, and with rows that are late wherever they come."""
    rng = random.Random(part)
    for kind in ("json", "csv"):
        lines = []
        for n in range(150):
            at = BEGIN + timedelta(seconds=part * 150 + n - (200 if part and rng.random() < 0.1 else 0))
            row = {"id": part * 1000 + n, "k": f"k{rng.randrange(7)}", "v": n / 4, "at": at.isoformat()}
            bad = rng.random() < 0.05
            if kind == "json":
                lines.append("{broken" if bad else json.dumps(row))
            else:
                lines.append(f"x,{row['k']},no,{row['at']}" if bad else ",".join(map(str, row.values())))
        path = place / "in" / kind / f"{part}.{kind}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(("" if kind == "json" else "id,k,v,at\n") + "\n".join(lines) + "\n")


def job_in(place: Path, out: Path) -> hr.Job:
    """Two formats in one stream; windows with a stream of late rows, Top-N, a join with windows, and six sinks."""
    pipe = hr.stream("combined", "job", bad_records="dead_letters")
    left = pipe.from_file(f"{place}/in/json/*", format="json", schema=SCHEMA, name="left")
    right = pipe.from_file(f"{place}/in/csv/*", format="csv", schema=SCHEMA, name="right")
    rows = left.union(right).where("v >= 0")
    timed = rows.watermark("at", delay="5 s")
    windows = timed.key_by("k").window(hr.tumbling("20 s", on="at")).agg(n="COUNT(*)", total="SUM(v)", most="MAX(id)")
    matched = timed.join(
        windows.select("k AS wk", "n", "window_end").watermark("window_end"),
        [("k", "wk")],
        within=("-20 s", "20 s"),
        time=("at", "window_end"),
    )
    best = rows.key_by("k").top_n(2, by="v desc, id")
    told = rows.dead_letters(
        lambda bad: bad.select("queue", "offset").to_file(str(out / "bad"), format="json", name="bad")
    )
    written: hr.Job = told.to_file(str(out / "rows"), format="json", name="rows")
    written = written.also(windows.to_file(str(out / "windows"), format="json", name="windows"))
    written = written.also(windows.late().select("id", "k").to_file(str(out / "late"), format="json", name="late"))
    written = written.also(matched.select("id", "n").to_file(str(out / "matched"), format="json", name="matched"))
    written = written.also(best.to_file(str(out / "best"), format="json", name="best", changes="column"))
    return written


def written(out: Path) -> dict[str, Counter[str]]:
    """Return the rows of each output; of the one whose rows change those that are left."""
    found = {}
    for name in OUTPUTS:
        lines = [line for path in sorted((out / name).glob("*.*")) for line in path.read_text().splitlines()]
        found[name] = Counter(lines) if name != "best" else left_of(map(json.loads, lines))
    return found


def left_of(changes: Iterable[dict[str, Any]]) -> Counter[str]:
    table: Counter[str] = Counter()
    for row in changes:
        sign = 1 if row.pop("change") in ("insert", "update_after") else -1
        table[json.dumps(row, sort_keys=True)] += sign
    assert not -table
    return +table


def run(place: Path, out: Path, backend: str, **options: Any) -> None:
    job_in(place, out).run(backend, show_progress=False, **options)


@pytest.mark.slow  # its parts are each killed or restarted in tests of every run
def test_a_job_with_everything_over_restarts(tmp_path: Path) -> None:
    """Each run reads one more part: with other micro-batches, other parallelism, and a checkpoint that was moved."""
    spark = [
        {"max_micro_batch_records": 40},
        {"parallelism": 1, "max_batch_records": 17},
        {"max_micro_batch_records": 333},
    ]
    checkpoint = tmp_path / "checkpoint-0"
    for part, options in enumerate(spark):
        lay_out(tmp_path, part)
        run(tmp_path, tmp_path / "spark", "spark", checkpoint=checkpoint, shards=3 if part == 0 else None, **options)
        run(tmp_path, tmp_path / "light", "light", checkpoint=tmp_path / "state")
        checkpoint = checkpoint.rename(tmp_path / f"checkpoint-{part + 1}")
        found, expected = written(tmp_path / "spark"), written(tmp_path / "light")
        for name in OUTPUTS:
            assert (found[name] - expected[name], expected[name] - found[name]) == (Counter(), Counter()), (part, name)
    assert all(expected[name] for name in OUTPUTS), {name: rows.total() for name, rows in expected.items()}
