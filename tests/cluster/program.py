"""Runs conformance cases on a Spark cluster, as a user's program does: ``job.run(master=…)``, or ``job.run()`` under spark-submit.

python -m tests.cluster.program MASTER DIRECTORY NAME …
spark-submit … program.py submitted DIRECTORY NAME …
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from tests.conformance import run_cases

ROOT = Path(__file__).resolve().parents[2]
CONF = {
    "spark.driver.host": "127.0.0.1",
    "spark.executor.memory": "512m",
    # The functions of the cases are in modules of the tests, which no worker has.
    "spark.executorEnv.PYTHONPATH": str(ROOT),
}
#: Micro-batches are small, so that there are enough of them to kill something in.
_RECORDS = 100

if __name__ == "__main__":
    master, directory, *names = sys.argv[1:]
    options: dict[str, Any] = {} if master == "submitted" else {"master": master, "conf": CONF}
    run_cases.main("spark", directory, names, max_micro_batch_records=_RECORDS, **options)
