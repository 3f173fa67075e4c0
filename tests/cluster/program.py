"""Runs cases on a Spark cluster, as a user's program does: ``job.run(master=…)``, or ``job.run()`` under spark-submit.

python -m tests.cluster.program MASTER DIRECTORY NAME …
spark-submit … program.py submitted DIRECTORY NAME …

``HEADRACE_TEST_CLUSTER`` may hold further options as JSON: ``conf`` for Spark, ``rows`` for the size of larger cases, ``freezes``
for the case that stops its worker process, ``meets`` for the one whose tasks wait for their copies, and options of the run. A case
that is done leaves a file ``done``; started again, the program continues with the others.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from tests.cluster.cases import larger_cases
from tests.cluster.freezing import freezing_case
from tests.cluster.meeting import meeting_case
from tests.conformance import run_cases

ROOT = Path(__file__).resolve().parents[2]
VARIABLE = "HEADRACE_TEST_CLUSTER"
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
    given: dict[str, Any] = json.loads(os.environ.get(VARIABLE, "{}"))
    conf, rows = {**CONF, **given.pop("conf", {})}, given.pop("rows", None)
    freezes, meets = given.pop("freezes", None), given.pop("meets", None)
    options: dict[str, Any] = {"max_micro_batch_records": _RECORDS, **given}
    if master != "submitted":
        options |= {"master": master, "conf": conf}
    cases = run_cases.CASES if rows is None else larger_cases(rows)
    if freezes is not None:
        cases = [freezing_case(*freezes)]
    if meets is not None:
        cases = [meeting_case(*meets)]
    run_cases.main("spark", directory, names, cases, **options)
