"""The job with which reading of a table's changes is measured, for MySQL and for PostgreSQL."""

from __future__ import annotations

import tempfile
import time
from datetime import timedelta

import headrace as hr
from headrace.interfaces.source import Reader


def seconds_of_reader(reader: Reader) -> float:
    """Return the seconds of CPU in which a reader reads to the end; it is closed."""
    end, begun = reader.latest, time.process_time()
    while reader.position.offset < end:
        reader.poll(65_536, timedelta(seconds=1))
    reader.close()
    return time.process_time() - begun


def seconds_of_job(source: hr.Source) -> float:
    """Return the seconds of CPU for a job that filters and writes files."""
    with tempfile.TemporaryDirectory() as place:
        job = (
            hr.stream("benchmark", "changes")
            .from_(source)
            .where("customer < 900")
            .select("id", "customer", total="amount * 2")
            .to_file(f"{place}/out", format="json", changes="column")
        )
        begun = time.process_time()
        job.run("light", checkpoint=f"{place}/checkpoint", show_progress=False)
        return time.process_time() - begun
