"""A driver program whose rows are large enough for files between its stages: ``python blob_program.py DIRECTORY MASTER [CHECKPOINT]``.

The function of its keyed stage runs while the files of a micro-batch are there. It notes them in ``DIRECTORY/seen.json``, and then
waits to be killed if ``DIRECTORY/hold`` exists, or removes them if ``DIRECTORY/lose`` exists.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import headrace as hr
from spark_parts import CountingSource, DatabaseSink, laid_out

from tests.eventually import eventually

RECORDS = {"a": 3000, "b": 2000}
KEYS = 7
#: How often each number is in the output: numbers count the rows of a key.
EXPECTED = Counter(
    n
    for key in range(KEYS)
    for n in range(1, 1 + sum(1 for count in RECORDS.values() for n in range(count) if n % KEYS == key))
)
_SCHEMA = {"n": "int64", "queue": "string"}


def with_text(row: dict[str, Any]) -> dict[str, Any]:
    """Make the row large. A text that all rows had would be held once."""
    return {**row, "text": f"{row['queue']}{row['n']}," * 100}


def lay_out(directory: Path) -> DatabaseSink:
    """Write the input of the job; return the sink that it writes to."""
    return laid_out(directory, RECORDS)


def files_between_stages() -> list[Path]:
    """Return the files that jobs have between their stages now."""
    return sorted(Path(tempfile.gettempdir()).glob("headrace-run-*/blobs/*/*"))


def run(directory: Path, master: str, checkpoint: Path | None = None) -> hr.JobReport:
    """Count the rows of each key."""

    def counted(row: dict[str, Any], state: dict[str, Any], timers: Any) -> Iterator[dict[str, Any]]:
        if not state:
            look_at_files(directory)
        state["n"] = state.get("n", 0) + 1
        assert row == {**with_text(row), "k": row["n"] % KEYS}
        yield {"n": state["n"]}

    source = CountingSource(directory / "queues")
    stream = hr.stream("test", "blobs").from_(source, format="json", schema=_SCHEMA)
    large = stream.map(with_text, schema={**_SCHEMA, "text": "string"})
    keyed = large.with_columns(k=f"n % {KEYS}").key_by("k")
    job = keyed.process(counted, schema={"n": "int64"}).to(DatabaseSink(directory / "rows.db"))
    return job.run(
        "spark",
        master=master,
        checkpoint=checkpoint,
        shards=2,
        max_micro_batch_records=2000,
        show_progress=False,
    )


def look_at_files(directory: Path) -> None:
    """Note the files, then do what a test asks for, once."""
    files = files_between_stages()
    seen = directory / "seen.json"
    if not seen.exists():
        new = seen.with_suffix(".new")
        new.write_text(json.dumps(list(map(str, files))), encoding="utf-8")
        new.replace(seen)
    if (directory / "hold").exists():
        eventually(lambda: False, "the test kills this program")
    if (directory / "lose").exists():
        for path in files:
            path.unlink()


if __name__ == "__main__":
    print(run(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]) if len(sys.argv) > 3 else None), flush=True)
