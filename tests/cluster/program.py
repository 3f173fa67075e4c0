"""Runs conformance cases on a Spark cluster, as a user's program does: ``job.run(master=…)``, or ``job.run()`` under spark-submit.

    python -m tests.cluster.program MASTER DIRECTORY NAME …
    spark-submit … program.py submitted DIRECTORY NAME …

A case that is done leaves a file ``done`` in its directory; started again, the process goes on with the others.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
from tests.conformance.run_cases import CASES  # noqa: E402

#: Micro-batches are small, so that there are enough of them to kill something in.
_RECORDS = 100


def main(master: str, directory: str, names: list[str]) -> None:
    conf: dict[str, object] = {
        "spark.driver.host": "127.0.0.1",
        "spark.executor.memory": "512m",
        # The functions of the cases are in modules of the tests, which no worker has.
        "spark.executorEnv.PYTHONPATH": str(ROOT),
    }
    options: dict[str, Any] = {} if master == "submitted" else {"master": master, "conf": conf}
    for case in CASES:
        place = Path(directory) / case.name
        if case.name not in names or (place / "done").exists():
            continue
        print(f"begins {case.name}", flush=True)
        case.build(place).run(
            checkpoint=place / "checkpoint", max_micro_batch_records=_RECORDS, show_progress=False, **options
        )
        (place / "done").touch()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
