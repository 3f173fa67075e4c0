"""Jobs over streaming DataFrames for the cluster tests, and the same jobs on light.

Their last rows are a year later than the others, so that all windows before are closed though a stream has no end.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import headrace as hr

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
_COLUMNS = "id BIGINT, k BIGINT, at TIMESTAMP"
_SCHEMA = {"id": "int64", "k": "int64", "at": "timestamp"}
#: Rows per file: a file is a micro-batch.
_PER_FILE = 25


def lay_out_frames(directory: Path, rows: int) -> None:
    """Write the input of all these jobs below a directory."""
    for number, begin in enumerate(range(0, rows, _PER_FILE)):
        last = begin + _PER_FILE >= rows
        of_file = [_row(n) for n in range(begin, min(begin + _PER_FILE, rows))]
        # Rows of every key, so that each shard gives a window that moves the time of the second keyed stage.
        of_file += [_row(rows + key, later) for later in (365, 366) for key in range(7)] if last else []
        for where, name in (("in", f"{number:05}.json"), ("other", "all.ndjson")):
            path = directory / where / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("a", encoding="utf-8") as file:
                file.writelines(json.dumps(row) + "\n" for row in of_file)
            os.utime(path, (number + 1, number + 1))  # Spark takes files in this order


def _row(n: int, later: int = 0) -> dict[str, Any]:
    return {"id": n, "k": n % 7, "at": (_BEGIN + timedelta(days=later, seconds=7 * n)).isoformat()}


def frame(spark: SparkSession, directory: Path) -> DataFrame:
    """Return the files as a streaming DataFrame that reads one in each micro-batch."""
    return spark.readStream.schema(_COLUMNS).option("maxFilesPerTrigger", 1).json(str(directory / "in"))


def windows(stream: hr.Stream) -> hr.Stream:
    """Count rows in windows of event time, then the windows of all keys: two keyed stages."""
    each = stream.watermark("at").key_by("k").window(hr.tumbling("70 s", on="at"))
    counts = each.agg(n="COUNT(*)", least="MIN(id)", ids="SUM(id)").select("k", "window_start AS starts", "n", "ids")
    made: hr.Stream = (
        counts.watermark("starts")
        .key_by()
        .window(hr.tumbling("7 min", on="starts"))
        .agg(n="SUM(n)", keys="COUNT(*)", ids="SUM(ids)")
    )
    return made


def beside(stream: hr.Stream, directory: Path) -> hr.Stream:
    """Return the rows together with those of a source of headrace."""
    other = hr.stream("cluster", "frames").from_file(
        f"{directory}/other/*.ndjson", format="json", schema=_SCHEMA, name="file"
    )
    made: hr.Stream = stream.select("id", "k", "at").union(other.select("id", "k", "at"))
    return made


@dataclass(frozen=True)
class FrameCase:
    """A chain of verbs over the rows of the DataFrame. ``between``: the result is a DataFrame; else headrace writes it."""

    name: str
    chain: Callable[[hr.Stream, Path], hr.Stream]
    between: bool


FRAME_CASES = [
    FrameCase("windows-between", lambda stream, directory: windows(stream), between=True),
    FrameCase("beside-between", lambda stream, directory: windows(beside(stream, directory)), between=True),
    FrameCase("windows-written", lambda stream, directory: windows(stream), between=False),
    FrameCase("beside-written", lambda stream, directory: windows(beside(stream, directory)), between=False),
    FrameCase("rows-written", lambda stream, directory: stream.where("id % 3 <> 0"), between=False),
]


def begun() -> Any:
    """Begin a job of these cases."""
    return hr.stream("cluster", "frames")


def of_light(case: FrameCase, directory: Path, place: Path) -> Counter[str]:
    """Return what light writes for the input in a directory, but for windows of the last rows."""
    files = begun().from_file(f"{directory}/in/*.json", format="json", schema=_SCHEMA, name="dataframe")
    case.chain(files, directory).to_file(str(place), format="json").run("light", show_progress=False)
    return written_rows(place)


def written_rows(place: Path) -> Counter[str]:
    """Return how often each row is in JSON files of headrace or of Spark, but for windows of the last rows."""
    lines = [line for path in completed_files(place) for line in path.read_text(encoding="utf-8").splitlines()]
    return Counter(
        _compared(row) for row in map(json.loads, lines) if not str(row.get("window_start")).startswith("2027")
    )


def completed_files(place: Path) -> list[Path]:
    """Return the files that count: of Spark's file sink those that its log names."""
    log = place / "_spark_metadata"
    if not log.exists():
        return sorted(place.glob("*.json"))
    logs = {path.name.removesuffix(".compact"): path for path in log.iterdir() if path.name[0].isdigit()}
    compacted = max((int(name) for name, path in logs.items() if path.suffix == ".compact"), default=-1)
    lines = [
        line
        for name, path in logs.items()
        if int(name) >= compacted
        for line in path.read_text(encoding="utf-8").splitlines()[1:]
    ]
    return [Path(json.loads(line)["path"].removeprefix("file://")) for line in lines]


def _compared(row: Mapping[str, Any]) -> str:
    """Return a row in one form: Spark and headrace write times differently."""
    return json.dumps(
        {
            name: str(value)[:16] if name in ("at", "window_start", "window_end") else value
            for name, value in row.items()
        },
        sort_keys=True,
    )
