"""A whole job as it runs on a box at the edge: readings of files into SQLite. ``python edge_job.py DIRECTORY``."""

from __future__ import annotations

import resource
import sys

import headrace as hr

SCHEMA = {"n": "int64", "sensor": "string", "celsius": "float64", "note": "string"}


def main(directory: str) -> None:
    (
        hr.stream("edge", "readings")
        .from_file(f"{directory}/in", format="json", schema=SCHEMA)
        .where("celsius > -40")
        .with_columns(fahrenheit="celsius * 1.8 + 32")
        .to_sqlite("readings", f"{directory}/readings.db", create_table=True, batch_size=5000)
        .run("light", checkpoint=f"{directory}/checkpoint", show_progress=False)
    )
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


if __name__ == "__main__":
    main(*sys.argv[1:])
