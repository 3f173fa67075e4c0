"""The job that the test of a table's changes kills: a SQL text from a file.

python mysql_changes_job.py TEXT CHECKPOINT UNTIL [RECORDS OF A BATCH]
"""

from __future__ import annotations

import sys
from pathlib import Path

import headrace as hr


def main(text: str, checkpoint: str, until: str, batch_records: str = "200") -> None:
    report = hr.sql(Path(text).read_text(), pipeline="changes").run(
        "light",
        until=None if until == "never" else "end",
        show_progress=False,
        checkpoint=checkpoint,
        checkpoint_interval="100 ms",
        max_batch_records=int(batch_records),
    )
    print(report.state.value)


if __name__ == "__main__":
    main(*sys.argv[1:])
