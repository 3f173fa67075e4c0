"""The job that tests kill: numbered records from files into an index.

python elasticsearch_job.py DIRECTORY (options of to_elasticsearch as JSON on standard input)
"""

from __future__ import annotations

import json
import sys

import headrace as hr


def main(directory: str) -> None:
    report = (
        hr.stream("test", "kills")
        .from_file(f"{directory}/in/*.ndjson", format="json", schema={"id": "int64", "text": "string"})
        .where("id % 10 <> 3")
        .dead_letters(lambda bad: bad.to_file(f"{directory}/dead", format="json"))
        .to_elasticsearch(
            **json.load(sys.stdin), batch_size=40, request_rows=15, flush_interval="10 ms", max_cached_rows=100
        )
        .run(
            "light",
            show_progress=False,
            checkpoint=f"{directory}/checkpoint",
            checkpoint_interval="30 ms",
            max_batch_records=70,
        )
    )
    print(report.state.value)


if __name__ == "__main__":
    main(sys.argv[1])
